"""What is known of a model: everything about one, or a line about each that has a name on this machine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from elmokit.checkpoint import HEAD, VOCABULARY, read_card, read_config, tokenizer_file
from elmokit.config import build, read_json
from elmokit.errors import UserError
from elmokit.model.bilm import BiLM, BiLMConfig
from elmokit.model.shapes import shapes_only
from elmokit.sources import hub, locate
from elmokit.sources.bundled import bundled_folder, bundled_names
from elmokit.sources.folder import kind_of, read_folder
from elmokit.text.characters import ByteMapper
from elmokit.text.jamo import JamoMapper
from elmokit.text.tokens import TokenizerConfig
from elmokit.text.vocabulary import Vocabulary


def describe(source: str | Path, revision: str | None = None) -> dict[str, str | int]:
    """What `elmo info` shows: sizes, layers, tokenizer, digest of a model that `open_checkpoint` would open."""
    folder = locate(source, revision)
    checkpoint = read_folder(folder)
    config, mapper = checkpoint.bilm.config, checkpoint.mapper
    lstm = config.lstm
    facts: dict[str, str | int] = {
        "model": str(source),
        "format": "bundled" if folder == bundled_folder(folder.name) else kind_of(folder) or "unknown",
        "layers": config.layers,
        "width of a layer": config.width,
        "LSTM": f"{lstm.layers} layers per direction, {lstm.cells} cells projected to {lstm.width}",
        "clipping": f"cell {lstm.cell_clip}, projection {lstm.projection_clip}",
        "token encoder": config.encoder.kind,
        "parameters": checkpoint.number_of_parameters,
        "tokenizer": f"{checkpoint.tokenizer.name}, normalization {checkpoint.tokenizer.normalize}",
        "ids per token": mapper.width,
        "predicts": f"{len(checkpoint.vocabulary):,} words by a softmax {checkpoint.head.softmax_width} wide"
        if checkpoint.head and checkpoint.vocabulary
        else "nothing",
        "digest": checkpoint.digest,
    }
    if folder != Path(source):
        facts["folder"] = str(folder)
    if isinstance(mapper, ByteMapper):
        facts["spelling"] = "as published (bytes may be cut)" if mapper.published else "whole characters"
    elif isinstance(mapper, JamoMapper):
        facts["spelling"] = "jamo, whole syllables"
    return facts


def list_models() -> list[dict[str, Any]]:
    """What `elmo models` shows: the models with a name here, bundled or in the hub's cache; weights unread."""
    bundled = [_summary(name, bundled_folder(name), "bundled") for name in bundled_names()]
    return bundled + [_summary(model.name, model.folder, "hub cache") for model in hub.cached_models()]


def _summary(name: str, folder: Path, where: str) -> dict[str, Any]:
    text = read_card(folder) or ""
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
        return {**facts, **_sizes(folder)} if facts["format"] == "elmokit" else facts
    except (UserError, OSError) as error:  # one that is damaged must not hide the others
        return {**facts, "format": f"damaged: {error}"}


def _sizes(folder: Path) -> dict[str, Any]:
    """Of a model of ours, without its weights."""
    config = read_config(folder)
    path = folder / tokenizer_file(config.files)
    return {
        "layers": config.model.layers,
        "width": config.model.width,
        "parameters": _number_of_parameters(config.model),
        "tokenizer": build(TokenizerConfig, read_json(path)).name,
        "words predicted": len(Vocabulary.load(folder / VOCABULARY)) if HEAD in config.files else 0,
        "weights": config.weights,
    }


def _number_of_parameters(config: BiLMConfig) -> int:
    with shapes_only():
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
