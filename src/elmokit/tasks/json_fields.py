"""Fields of JSON data, checked for their type; what is wrong is said with its place."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from elmokit.errors import UserError, clipped, listed

F = TypeVar("F")
NAMES = {list: "a list", str: "text", int: "a whole number"}


def parse(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: not valid JSON: {clipped(error)}") from None


def field(table: Any, key: str, kind: type[F], where: str) -> F:
    """The value of a key; `kind` is one of NAMES."""
    if not isinstance(table, dict):
        raise UserError(f"{where}: expected a JSON object with the key {key!r}, found {str(table)[:60]!r}")
    if key not in table:
        raise UserError(f"{where}: expected the key {key!r}, found {listed(map(repr, table)) or 'none'}")
    value = table[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise UserError(f"{where}: expected {key!r} to be {NAMES[kind]}, found {str(value)[:60]!r}")
    return value
