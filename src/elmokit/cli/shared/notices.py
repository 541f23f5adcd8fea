"""What the library notices, on standard error: how a table was read."""

from __future__ import annotations

import logging

import typer


class _Notices(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        typer.echo(self.format(record), err=True)


def show_notices() -> None:
    logger = logging.getLogger("elmokit")
    if not any(isinstance(handler, _Notices) for handler in logger.handlers):
        logger.addHandler(_Notices())
        logger.setLevel(logging.INFO)
