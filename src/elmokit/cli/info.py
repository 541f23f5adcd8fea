"""elmo info: what a model, or a file of vectors, is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from elmokit.cli.shared.options import AsJson


def info(
    what: Annotated[
        str, typer.Argument(metavar="MODEL|VECTORS", help="A model's folder, name or hub id, or a vector file.")
    ],
    as_json: AsJson = False,
) -> None:
    """What a model or a file of vectors is: sizes, layers, tokenizer, digest.

    Examples:

    `elmo info MODEL`

    `elmo info vectors.h5 --json`
    """
    facts = _vector_facts(Path(what)) if Path(what).is_file() else _model_facts(what)
    if as_json:
        typer.echo(json.dumps(facts, ensure_ascii=False, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(show_header=False, box=None)
    table.add_column()
    table.add_column(overflow="fold")  # a digest is for copying
    for name, value in facts.items():
        table.add_row(f"[bold]{name}[/bold]", f"{value:,}" if isinstance(value, int) else str(value))
    Console().print(table)


def _model_facts(source: str) -> dict[str, str | int]:
    from elmokit.sources import bundled_folder, kind_of, locate, open_checkpoint
    from elmokit.text.characters import ByteMapper
    from elmokit.text.jamo import JamoMapper

    folder = locate(source)
    checkpoint = open_checkpoint(folder)
    config = checkpoint.bilm.config
    lstm, encoder, mapper = config.lstm, config.encoder, checkpoint.mapper
    facts: dict[str, str | int] = {
        "model": source,
        "format": "bundled" if folder == bundled_folder(folder.name) else kind_of(folder) or "unknown",
        "layers": config.layers,
        "width of a layer": config.width,
        "LSTM": f"{lstm.layers} layers a direction, {lstm.cells} cells projected to {lstm.width}",
        "clipping": f"cell {lstm.cell_clip}, projection {lstm.projection_clip}",
        "token encoder": encoder.kind,
        "parameters": sum(p.numel() for p in checkpoint.bilm.parameters()),
        "tokenizer": f"{checkpoint.tokenizer.name}, normalization {checkpoint.tokenizer.normalize}",
        "ids a token": mapper.width,
        "predicts": f"{len(checkpoint.vocabulary):,} words by a softmax {checkpoint.head.softmax_width} wide"
        if checkpoint.head and checkpoint.vocabulary
        else "nothing",
        "digest": checkpoint.digest,
    }
    if not Path(source).is_dir():
        facts["folder"] = str(folder)
    if isinstance(mapper, ByteMapper):
        facts["spelling"] = "as published (bytes may be cut)" if mapper.published else "whole characters"
    elif isinstance(mapper, JamoMapper):
        facts["spelling"] = "jamo, whole syllables"
    return facts


def _vector_facts(path: Path) -> dict[str, str | int]:
    from elmokit.embed.vectors import open_vectors

    vectors = open_vectors(path)
    return {
        "file": str(path),
        "bytes": path.stat().st_size,
        "sentences": len(vectors),
        "shape of a vector": " x ".join(str(n) for n in vectors.shape),
        **{key: vectors.metadata[key] for key in ("layers", "pooling", "model", "elmokit")},
    }
