"""Logs as lines of JSON: what happened to a request and how long it took, never what it said."""

from __future__ import annotations

import logging
import sys
import time
import traceback
from typing import Any

import orjson

LOGGER = logging.getLogger("elmokit.serve")


class JsonLines(logging.Formatter):
    """`extra={"fields": {...}}` becomes members of the object."""

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
        line = {"time": at, "level": record.levelname.lower(), "event": record.getMessage()}
        return orjson.dumps(line | getattr(record, "fields", {}), default=str).decode()


def log(event: str, level: int = logging.INFO, **fields: Any) -> None:
    if LOGGER.isEnabledFor(level):
        LOGGER.log(level, event, extra={"fields": fields})


def log_error(event: str, error: BaseException, **fields: Any) -> None:
    """Where it happened and what kind it is. Its message may hold a user's text, so that is left out."""
    frames = traceback.extract_tb(error.__traceback__)
    where = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames[-12:]]
    log(event, logging.ERROR, error=type(error).__name__, where=where, **fields)


def log_to_stderr(level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name in ("elmokit.serve", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level.upper() if name == "elmokit.serve" else "WARNING")
