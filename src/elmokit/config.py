"""TOML or JSON tables -> frozen dataclasses: every key is known, every value has its type.

A config dataclass sits beside the class that it configures; this file only reads and writes them. Where a
field may hold one of several dataclasses, each of them has a field `kind` with its own default, and the
table's `kind` chooses.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import sys
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from elmokit.errors import UserError, clipped, listed
from elmokit.regular import read_regular

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

T = TypeVar("T")
MOST_BYTES = 1 << 24  # of a file of settings
DEEPEST = 50  # tables and lists within one another; ours have five
LONGEST_SHOWN = 100  # characters of a value or a name in an error
OLD_SPELLINGS = {"tokeniser": "tokenizer", "normalise": "normalize", "optimiser": "optimizer"}  # 0.1.0's


def suggest(name: str, known: Iterable[str]) -> str:
    """The tail of an error about an unknown name: the nearest known ones, or all of them."""
    names = sorted(known)
    is_long = len(name) > LONGEST_SHOWN  # no misspelling, and to compare it could take for ever
    near = [] if is_long else difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    if near:
        return "did you mean " + " or ".join(repr(clipped(n)) for n in near) + "?"
    return "known: " + (listed(names, 30) or "none")


def shown(value: Any) -> str:
    """A value in an error message, cut short if it is long."""
    return clipped(repr(value), LONGEST_SHOWN)


def present_name(name: str) -> str:
    """A key or a dotted name as it is spelled today, where 0.1.0 spelled it otherwise."""
    first, dot, rest = name.partition(".")
    return OLD_SPELLINGS.get(first, first) + dot + rest


def present_names(table: Mapping[str, T]) -> dict[str, T]:
    return {present_name(name): value for name, value in table.items()}


def build(cls: type[T], table: Mapping[str, Any], where: str = "") -> T:
    """Make the dataclass `cls` from a table; unknown keys, missing keys and wrong types are UserErrors."""
    assert dataclasses.is_dataclass(cls)
    if not isinstance(table, Mapping):
        raise UserError(f"{where or 'config'}: expected a table of settings, found {shown(table)}")
    table = present_names(table)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    hints = typing.get_type_hints(cls)
    for key in table:
        if key not in fields:
            raise UserError(f"unknown key {_quoted(_join(where, key))}: {suggest(key, fields)}")
    missing = [
        name
        for name, field in fields.items()
        if name not in table
        and field.default is dataclasses.MISSING
        and field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise UserError(f"missing key '{_join(where, missing[0])}'")
    values = {key: _value(hints[key], value, _join(where, key)) for key, value in table.items()}
    try:
        return cls(**values)
    except UserError as error:
        raise UserError(f"{where}: {error}" if where else str(error)) from None


def dump(config: Any) -> dict[str, Any]:
    """The table that `build` makes the same dataclass from; JSON-ready."""

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: plain(item) for key, item in value.items()}
        if isinstance(value, (tuple, list)):
            return [plain(item) for item in value]
        return value

    table: dict[str, Any] = plain(dataclasses.asdict(config))
    return table


def check_positive(**settings: int) -> None:
    """Refuse numbers below 1, by their name."""
    for name, number in settings.items():
        if number < 1:
            raise UserError(f"{name}: expected 1 or more, found {shown(number)}")


def check_size(least: int, most: int, **settings: int) -> None:
    """Refuse by its name what is too small to be, or so large that no model has it: nothing is made of it yet."""
    for name, number in settings.items():
        if number < least:
            raise UserError(f"{name}: expected {least} or more, found {shown(number)}")
        if number > most:
            raise UserError(f"{name}: expected {most:,} at most, found {shown(number)}")


def check_dropout(**settings: float) -> None:
    """Refuse what is no probability to drop a number with, by its name."""
    for name, p in settings.items():
        if not 0 <= p < 1:
            raise UserError(f"{name}: expected 0 or more and less than 1, found {p}")


def read_toml(path: Path) -> dict[str, Any]:
    try:
        table: dict[str, Any] = tomllib.loads(read_regular(path, MOST_BYTES).decode("utf-8"))
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: expected UTF-8 text, found {error.reason} at byte {error.start}") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UserError(f"{path}: not valid TOML: {error}") from None
    _check_depth(table, path)
    return table


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object that a file of settings holds."""
    return parse_json(read_regular(path, MOST_BYTES), path)


def parse_json(content: bytes, path: Path) -> dict[str, Any]:
    """The JSON object that a file holds; `path` is for the error message."""
    try:
        table = json.loads(content)
    except RecursionError:
        raise UserError(f"{path}: not valid JSON: too many lists or tables within one another") from None
    except ValueError as error:
        raise UserError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(table, dict):
        raise UserError(f"{path}: expected a JSON object, found {type(table).__name__}")
    _check_depth(table, path)
    return table


def _check_depth(table: dict[str, Any], path: Path) -> None:
    """What is nested as deep as Python can just read, it cannot print, compare or write."""
    level: list[Any] = [table]
    for _ in range(DEEPEST):
        inner = (each.values() if isinstance(each, dict) else each for each in level)
        level = [value for values in inner for value in values if isinstance(value, (dict, list))]
        if not level:
            return
    raise UserError(f"{path}: expected settings, found more than {DEEPEST} lists or tables within one another")


def override(table: Mapping[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """Apply dotted `a.b=v` settings; v is read as TOML, and as a plain string where it is not TOML."""
    result = {k: dict(v) if isinstance(v, Mapping) else v for k, v in present_names(table).items()}
    for setting in settings:
        path, equals, text = setting.partition("=")
        keys = [present_name(key.strip()) for key in path.split(".")]
        if not equals or not all(keys):
            raise UserError(f"expected a setting such as model.lstm.cells=512, found {setting!r}")
        try:
            value = tomllib.loads(f"v = {text.strip()}")["v"]
        except tomllib.TOMLDecodeError:
            value = text.strip()
        inner = result
        for depth, key in enumerate(keys[:-1], start=1):
            child = inner.get(key, {})
            if not isinstance(child, Mapping):
                raise UserError(f"'{'.'.join(keys[:depth])}' is a value, not a table: cannot set {path!r}")
            inner[key] = dict(child)
            inner = inner[key]
        inner[keys[-1]] = value
    return result


def _join(where: str, key: str) -> str:
    return f"{where}.{key}" if where else str(key)


def _quoted(name: str) -> str:
    return f"'{clipped(name, LONGEST_SHOWN)}'"


def _value(hint: Any, value: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if dataclasses.is_dataclass(hint):
        return build(typing.cast("type[Any]", hint), value, where)
    if origin in (typing.Union, types.UnionType):
        return _choice(arguments, value, where)
    if origin is typing.Literal:
        if value not in arguments:
            raise UserError(f"'{where}': expected one of {_listing(arguments)}, found {shown(value)}")
        return value
    if origin is tuple:
        return _tuple(arguments, value, where)
    if hint is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return _finite(value, where)
    if not isinstance(value, hint) or (hint is not bool and isinstance(value, bool)):
        raise UserError(f"'{where}': expected {hint.__name__}, found {shown(value)}")
    return value


def _finite(value: int | float, where: str) -> float:
    """JSON and TOML write NaN and infinity too, and whole numbers that no float holds."""
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise UserError(f"'{where}': expected a finite number, found {shown(value)}")
    return number


def _choice(hints: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in hints:
        return None
    hints = tuple(hint for hint in hints if hint is not type(None))
    if len(hints) == 1:
        return _value(hints[0], value, where)
    kinds = {hint.kind: hint for hint in hints}
    if not isinstance(value, Mapping) or "kind" not in value:
        raise UserError(f"'{where}': expected a table with kind = one of {_listing(kinds)}, found {shown(value)}")
    kind = value["kind"]
    if not isinstance(kind, str) or kind not in kinds:
        raise UserError(f"'{where}.kind': expected one of {_listing(kinds)}, found {shown(kind)}")
    return build(kinds[kind], value, where)


def _tuple(hints: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise UserError(f"'{where}': expected a list, found {shown(value)}")
    if len(hints) == 2 and hints[1] is Ellipsis:
        hints = (hints[0],) * len(value)
    if len(hints) != len(value):
        raise UserError(f"'{where}': expected {len(hints)} values, found {shown(value)}")
    return tuple(_value(hint, item, f"{where}[{i}]") for i, (hint, item) in enumerate(zip(hints, value)))


def _listing(names: Iterable[Any]) -> str:
    return listed(map(repr, names), 30)
