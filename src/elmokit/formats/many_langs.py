"""A folder of ELMoForManyLangs to ours.

It has config.json, char.dic, word.dic, encoder.pkl and token_embedder.pkl. What differs: its highway gate keeps x
where ours lets the new value through, so the gate's weights change their sign; its forget gate needs no 1 added at
run time; its ids lack the 0 of a padded token, so every id moves up by one and every embedding gets a row of zeros
in front. Its LSTM gates stand in our order.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from elmokit.checkpoint import Checkpoint, check_tensors
from elmokit.config import build, check_size, read_json, shown
from elmokit.errors import UserError, listed
from elmokit.formats.torch_file import read_tensors
from elmokit.model.bilm import BiLM, BiLMConfig
from elmokit.model.char_encoder import CharEncoderConfig
from elmokit.model.lstm import MOST_LAYERS, WIDEST, LSTMConfig
from elmokit.model.shapes import shapes_only
from elmokit.regular import read_regular
from elmokit.text.characters import MASK_SHIFT, LexiconMapper
from elmokit.text.tokens import TokenizerConfig
from elmokit.text.vocabulary import MOST_BYTES

CONFIG, CHARACTERS, WORDS = "config.json", "char.dic", "word.dic"
ENCODER, EMBEDDER = "encoder.pkl", "token_embedder.pkl"
# our embedding, upstream's embedding, the list of what its rows stand for
EMBEDDINGS = (
    ("encoder.character_embedding.weight", f"{EMBEDDER}/char_emb_layer.embedding.weight", CHARACTERS),
    ("encoder.word_embedding.weight", f"{EMBEDDER}/word_emb_layer.embedding.weight", WORDS),
)
LSTM_TENSORS = {
    "input_weight": "input_linearity.weight",
    "hidden_weight": "state_linearity.weight",
    "bias": "state_linearity.bias",
    "projection_weight": "state_projection.weight",
}
SHORTEST_ROW = len("<bos>") + 2  # upstream itself refuses to run with less


@dataclass(frozen=True)
class _Encoder:
    """The table `encoder` of upstream's second configuration file."""

    name: str
    projection_dim: int
    dim: int
    n_layers: int
    cell_clip: float | None = None
    proj_clip: float | None = None

    def __post_init__(self) -> None:
        if self.name.lower() != "elmo":
            raise UserError(f"name: expected 'elmo', found {self.name!r}, an architecture that elmokit has not")


@dataclass(frozen=True)
class _TokenEmbedder:
    """The table `token_embedder`; char_dim or word_dim is 0 where the model goes without."""

    name: str
    word_dim: int
    char_dim: int
    max_characters_per_token: int
    filters: tuple[tuple[int, int], ...] = ()
    n_highway: int = 0
    activation: Literal["relu", "tanh"] | None = None

    def __post_init__(self) -> None:
        if self.name.lower() != "cnn":
            raise UserError(f"name: expected 'cnn', found {self.name!r}, an architecture that elmokit has not")
        check_size(0, WIDEST, word_dim=self.word_dim, char_dim=self.char_dim)
        check_size(0, MOST_LAYERS, n_highway=self.n_highway)
        if not self.word_dim and not self.char_dim:
            raise UserError("expected char_dim, word_dim or both above 0, found neither")
        if self.char_dim and not (self.filters and self.activation):
            raise UserError(f"char_dim is {self.char_dim}, which needs filters and activation too")
        shortest = max([SHORTEST_ROW, *(width for width, _ in self.filters)])
        if self.max_characters_per_token < shortest:
            raise UserError(
                f"max_characters_per_token: expected {shortest} or more, found {self.max_characters_per_token}"
            )


def read_many_langs(folder: str | Path) -> Checkpoint:
    """Upstream remembers the sentences before; our layers are those of its first call."""
    folder = Path(folder)
    encoder, embedder = _read_config(folder)
    characters = read_lexicon(folder / CHARACTERS) if embedder.char_dim else None
    words = read_lexicon(folder / WORDS) if embedder.word_dim else None
    try:
        mapper = LexiconMapper(characters, words, embedder.max_characters_per_token)
        config = _translate_config(encoder, embedder, characters, words)
    except UserError as error:
        raise UserError(f"{folder}: {error}") from None
    with shapes_only():
        bilm = BiLM(config)
    tensors = {**read_tensors(folder / ENCODER), **read_tensors(folder / EMBEDDER)}
    expected = _to_theirs(bilm.state_dict(), config)
    for _, theirs, lexicon in EMBEDDINGS:
        listed, rows = (x[theirs].shape[:1] if theirs in x else None for x in (expected, tensors))
        if listed and rows and listed != rows:
            raise UserError(
                f"{folder}: {lexicon} lists {listed[0]} entries, {theirs} has {rows[0]} rows: "
                "the two files are not of one model"
            )
    check_tensors(expected, tensors, folder)
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise UserError(f"{folder / name.partition('/')[0]}: {name} holds values that are not finite numbers")
    tensors = {name: tensor.float() for name, tensor in tensors.items()}
    bilm.load_state_dict(_to_ours(tensors, config), assign=True)
    return Checkpoint(bilm.eval(), mapper, TokenizerConfig("whitespace", "none"))


def _read_config(folder: Path) -> tuple[_Encoder, _TokenEmbedder]:
    path = folder / CONFIG
    if not path.is_file():
        raise UserError(f"{folder} is not a folder of ELMoForManyLangs: it has no {CONFIG}")
    table = read_json(path)
    if "encoder" not in table or "token_embedder" not in table:
        path = _second_config(folder, table)
        table = read_json(path)
    try:
        return (
            build(_Encoder, table.get("encoder", {}), "encoder"),
            build(_TokenEmbedder, table.get("token_embedder", {}), "token_embedder"),
        )
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def _second_config(folder: Path, table: dict[str, Any]) -> Path:
    """The file that config.json names. Published folders name a path of the machine of their training."""
    named = table.get("config_path")
    if not isinstance(named, str) or not named:
        raise UserError(
            f"{folder / CONFIG}: expected a key 'config_path' (or the tables 'encoder' and 'token_embedder'), "
            f"found {listed(map(repr, table)) or 'no keys'}"
        )
    name = re.split(r"[\\/]", named)[-1]
    # An absolute path is of another machine: no business of ours, even where such a file happens to exist.
    candidates = [folder / name] if Path(named).is_absolute() else [folder / named, folder / name]
    for path in candidates:
        if path.is_file():
            return path
    raise UserError(
        f"{folder / CONFIG} names the configuration {named!r}, which is not there: put {name} into {folder} "
        "(that of the published models comes with the elmoformanylangs package, in its folder configs)"
    )


def read_lexicon(path: Path) -> dict[str, int]:
    """Lines of an entry, a tab and its id, read exactly as upstream does it.

    Upstream strips the line first, so an entry of white space loses its field; what is left, one field,
    it takes for the ideographic space.
    """
    if not path.is_file():
        raise UserError(f"no file {path}, which lists the ids that the model's embedding was trained with")
    try:
        lines = read_regular(path, MOST_BYTES).decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        where = error.object[: error.start].count(b"\n") + 1
        raise UserError(f"{path}: line {where}: expected UTF-8, found {error.reason}") from None
    if not lines[-1]:
        lines.pop()
    lexicon: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        fields = line.strip().split("\t")
        try:
            entry, digits = fields if len(fields) > 1 else ("\u3000", *fields)
            identity = int(digits)
        except ValueError:
            raise UserError(
                f"{path}: line {number}: expected an entry, a tab and its id, found {shown(line)}"
            ) from None
        if lexicon.setdefault(entry, identity) != identity:
            raise UserError(f"{path}: line {number}: {entry!r} has two ids, {lexicon[entry]} and {identity}")
    entries: dict[int, str] = {}
    for entry, identity in lexicon.items():
        if not 0 <= identity < len(lexicon):
            raise UserError(
                f"{path}: expected the ids 0 to {len(lexicon) - 1} for {len(lexicon)} entries, "
                f"found {identity} for {entry!r}"
            )
        if identity in entries:
            raise UserError(f"{path}: found the id {identity} for both {entries[identity]!r} and {entry!r}")
        entries[identity] = entry
    return lexicon


def _translate_config(
    encoder: _Encoder,
    embedder: _TokenEmbedder,
    characters: dict[str, int] | None,
    words: dict[str, int] | None,
) -> BiLMConfig:
    return BiLMConfig(
        CharEncoderConfig(
            characters=len(characters or ()) + MASK_SHIFT,
            embedding=embedder.char_dim,
            filters=embedder.filters if characters else (),
            highway=embedder.n_highway if characters else 0,
            activation=embedder.activation or "relu",
            words=len(words) + MASK_SHIFT if words else 0,
            word_embedding=embedder.word_dim,
        ),
        LSTMConfig(
            layers=encoder.n_layers,
            cells=encoder.dim,
            width=encoder.projection_dim,
            cell_clip=encoder.cell_clip or None,  # upstream reads 0 as none
            projection_clip=encoder.proj_clip or None,
            skip=True,
            forget_bias=0.0,
        ),
    )


def _same(config: BiLMConfig) -> dict[str, str]:
    """Our name -> upstream's file and name, of every tensor that is the same in both."""
    assert isinstance(config.encoder, CharEncoderConfig)
    linear = ["projection", *(f"convolutions.{i}" for i in range(len(config.encoder.filters)))]
    names = {f"encoder.{n}.{part}": f"{EMBEDDER}/{n}.{part}" for n in linear for part in ("weight", "bias")}
    for direction in ("forward", "backward"):
        for layer in range(config.lstm.layers):
            for ours, theirs in LSTM_TENSORS.items():
                names[f"{direction}_lstms.{layer}.{ours}"] = f"{ENCODER}/{direction}_layer_{layer}.{theirs}"
    return names


def _highways(config: BiLMConfig) -> list[tuple[str, str, str]]:
    """(our transform, our carry, upstream's matrix or bias of both) of every highway layer."""
    assert isinstance(config.encoder, CharEncoderConfig)
    return [
        (
            f"encoder.highway.{i}.transform.{part}",
            f"encoder.highway.{i}.carry.{part}",
            f"{EMBEDDER}/highways._layers.{i}.{part}",
        )
        for i in range(config.encoder.highway)
        for part in ("weight", "bias")
    ]


def _to_theirs(state: dict[str, Tensor], config: BiLMConfig) -> dict[str, Tensor]:
    tensors = {theirs: state[ours] for ours, theirs in _same(config).items()}
    tensors |= {theirs: state[ours][MASK_SHIFT:] for ours, theirs, _ in EMBEDDINGS if ours in state}
    tensors |= {both: torch.cat([state[new], -state[carry]]) for new, carry, both in _highways(config)}
    return tensors


def _to_ours(tensors: dict[str, Tensor], config: BiLMConfig) -> dict[str, Tensor]:
    state = {ours: tensors[theirs] for ours, theirs in _same(config).items()}
    for ours, theirs, _ in EMBEDDINGS:
        if theirs in tensors:
            state[ours] = pad(tensors[theirs], (0, 0, MASK_SHIFT, 0))
    for new, carry, both in _highways(config):
        transform, gate = tensors[both].chunk(2)
        state[new], state[carry] = transform, -gate
    return {name: tensor.contiguous() for name, tensor in state.items()}
