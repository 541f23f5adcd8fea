"""elmo models: the models that are on this machine by name, bundled or in the hub's cache."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import typer

from elmokit.cli.shared.options import AsJson

NONE = "this release bundles no model; MODEL may be a folder's path or a Hugging Face Hub id (owner/name)"


def models(as_json: AsJson = False) -> None:
    """List the models that have a name here: those bundled, and those fetched from the Hugging Face Hub.

    Example: `elmo models --json`
    """
    from elmokit.sources import bundled_folder, bundled_names
    from elmokit.sources.hub import cached_models

    rows = [_facts(name, bundled_folder(name), "bundled") for name in bundled_names()]
    rows += [_facts(model.name, model.folder, "hub cache") for model in cached_models()]
    if as_json:
        typer.echo(json.dumps(rows, ensure_ascii=False, indent=2))
        return
    if not any(row["where"] == "bundled" for row in rows):
        typer.echo(NONE)
    if rows:
        _show(rows)


def _show(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None)
    table.add_column("model", no_wrap=True)  # a name is for copying
    for column in ("where", "layers", "parameters", "tokenizer", "predicts", "size", "languages"):
        table.add_column(column, overflow="fold")
    for row in rows:
        known = "parameters" in row
        table.add_row(
            row["model"],
            row["where"],
            f"{row['layers']} x {row['width']}" if known else row["format"],
            f"{row['parameters'] / 1e6:.1f} M" if known else "",
            row.get("tokenizer", ""),
            (f"{row['words predicted']:,} words" if row["words predicted"] else "nothing") if known else "",
            f"{row['bytes'] / 1e6:.1f} MB",
            ", ".join(row["languages"]),
        )
    Console().print(table)


def _facts(name: str, folder: Path, where: str) -> dict[str, Any]:
    """What the folder says of itself, weights unread."""
    from elmokit.checkpoint import CARD, HEAD, VOCABULARY, read_config, tokenizer_file
    from elmokit.config import build, parse_json
    from elmokit.sources import kind_of
    from elmokit.text.tokens import TokenizerConfig
    from elmokit.text.vocabulary import Vocabulary

    card = folder / CARD
    text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    facts: dict[str, Any] = {
        "model": name,
        "where": where,
        "format": "unknown",
        "bytes": sum(path.stat().st_size for path in folder.iterdir() if path.is_file()),
        "languages": languages(text),
        "folder": str(folder),
    }
    try:
        facts["format"] = kind_of(folder) or "unknown"
        if facts["format"] != "elmokit":
            return facts
        config = read_config(folder)
        path = folder / tokenizer_file(config.files)
        tokenizer = build(TokenizerConfig, parse_json(path.read_bytes(), path))
        words = len(Vocabulary.load(folder / VOCABULARY)) if HEAD in config.files else 0
    except (ValueError, OSError) as error:  # one that is damaged must not hide the others
        return {**facts, "format": f"damaged: {error}"}
    return {
        **facts,
        "layers": config.model.layers,
        "width": config.model.width,
        "parameters": _parameters(config.model),
        "tokenizer": tokenizer.name,
        "words predicted": words,
        "precision": config.precision,
    }


def _parameters(config: Any) -> int:
    import torch

    from elmokit.model.bilm import BiLM

    with torch.device("meta"):  # shapes only
        return sum(parameter.numel() for parameter in BiLM(config).parameters())


def languages(card: str) -> list[str]:
    """Of a model card: `language:` at its head, as on the hub, or a row of a table that begins so."""
    head = re.match(r"---\n(.*?)\n---\s*(?:\n|$)", card.replace("\r\n", "\n"), re.DOTALL)
    if head:
        said = re.search(r"^languages?:[ \t]*(.*(?:\n[ \t]*-[ \t].*)*)", head[1], re.MULTILINE)
        if said:
            return [word for word in re.split(r"[\s,\[\]\"']+|(?:^|\s)-\s", said[1]) if word and word != "-"]
    row = re.search(r"^\|\s*languages?\s*\|\s*(.*?)\s*\|", card, re.MULTILINE | re.IGNORECASE)
    return [word.strip() for word in row[1].split(",") if word.strip()] if row else []
