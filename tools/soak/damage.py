"""Random damage: of bytes, of what a JSON file says, and of a model that is sealed again afterwards."""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path
from random import Random
from typing import Any

from elmokit.checkpoint import CONFIG, config_digest

VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 2**31, 2**63, 10**30, 1e308, float("nan"), float("inf"), -0.5, 3.0),
    *(
        "",
        "x",
        "\0",
        "\ud800",
        "x" * 100_000,
        [],
        {},
        [[]],
        [1, 2],
        [[1, 1]] * 5000,
        {"kind": "words"},
        {"kind": []},
    ),
)


def damage_bytes(random: Random, content: bytes) -> bytes:
    """Some bytes changed, cut out, doubled or zeroed, or the end cut off."""
    found = bytearray(content)
    for _ in range(random.choice((1, 1, 2, 8, 64))):
        at = random.randrange(len(found) + 1)
        length = random.choice((1, 2, 4, 8, 64, 512))
        way = random.randrange(6)
        if way == 0:
            found[at : at + 1] = bytes([random.randrange(256)])
        elif way == 1:
            found[at : at + length] = random.randbytes(length)
        elif way == 2:
            found[at : at + length] = bytes([random.choice((0, 255))]) * length
        elif way == 3:
            del found[at : at + length]
        elif way == 4:
            found[at:at] = found[at : at + length]
        else:
            del found[max(at, len(found) // 8) :]
    return bytes(found)


def damage_json(random: Random, content: bytes) -> bytes:
    """One value replaced by another that hardly fits, or a key left out."""
    table = json.loads(content)
    inside = _containers(table)
    container = random.choice(inside)
    key = random.choice(list(container) if isinstance(container, dict) else range(len(container)))
    if isinstance(container, dict) and random.random() < 0.1:
        del container[key]
    else:
        container[key] = random.choice(VALUES)
    return json.dumps(table).encode()


def _containers(value: Any) -> list[Any]:
    if not isinstance(value, (dict, list)) or not value:
        return []
    inner = value.values() if isinstance(value, dict) else value
    return [value, *(each for item in inner for each in _containers(item))]


def seal_again(folder: Path) -> None:
    """Digests of a folder of ours as they should be, for what its files hold now."""
    try:
        table = json.loads((folder / CONFIG).read_bytes())
        for name, seal in table["files"].items():
            content = (folder / name).read_bytes()
            seal.update(sha256=hashlib.sha256(content).hexdigest(), bytes=len(content))
    except (ValueError, OSError, AttributeError, KeyError, TypeError):
        pass  # damaged beyond that
    else:
        write_config(folder, table)
        return
    with contextlib.suppress(ValueError, AttributeError):
        write_config(folder, json.loads((folder / CONFIG).read_bytes()))


def write_config(folder: Path, table: dict[str, Any]) -> None:
    (folder / CONFIG).write_text(json.dumps({**table, "sha256": config_digest(table)}))


def damage(random: Random, sample: Path) -> str:
    """Damage a file, or one of a folder's; says which and how."""
    files = sorted(path for path in sample.iterdir() if path.name != "README.md") if sample.is_dir() else [sample]
    path = random.choice(files)
    content = path.read_bytes()
    said = path.suffix == ".json" and random.random() < 0.8
    path.write_bytes(damage_json(random, content) if said else damage_bytes(random, content))
    sealed = (sample / "model.safetensors").exists() and random.random() < 0.9
    if sealed:
        seal_again(sample)
    return f"{path.name} {'value' if said else 'bytes'}{' sealed again' if sealed else ''}"
