"""elmo models: the models that are on this machine by name, bundled or in the hub's cache."""

from __future__ import annotations

import json
from typing import Any

import typer

from elmokit.cli.shared.options import AsJson

NONE = "this release bundles no model; MODEL may be a folder's path or a Hugging Face Hub id (owner/name)"


def models(as_json: AsJson = False) -> None:
    """List the models that have a name here: those bundled, and those fetched from the Hugging Face Hub.

    Example: `elmo models --json`
    """
    from elmokit.sources.catalogue import list_models

    rows = list_models()
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
