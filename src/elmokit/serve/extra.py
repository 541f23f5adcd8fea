"""The extra `serve`: whether what it installs is there, asked before anything of it is imported."""

from __future__ import annotations

from importlib.util import find_spec

from elmokit.errors import UserError, listed

NEEDED = {
    "fastapi": "fastapi",
    "httptools": "httptools",
    "orjson": "orjson",
    "prometheus_client": "prometheus-client",
    "uvicorn": "uvicorn",
}


def check_extra() -> None:
    missing = [package for module, package in NEEDED.items() if find_spec(module) is None]
    if missing:
        raise UserError(f'a server needs {listed(missing)}: pip install "elmokit[serve]"')
