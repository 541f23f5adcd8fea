"""A model as one folder, written and read whole.

It has config.json, model.safetensors, mapper.json, tokenizer.json, README.md (the model card) and, where the model
still predicts words, vocabulary.txt and head.safetensors. It appears whole or not at all. config.json lists the
other files' digests; loading checks those, and every tensor's name, shape and type, before anything is used. No
pickle is read or written.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Container, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from elmokit import __version__
from elmokit.atomic import replacing_folder
from elmokit.config import build, dump, parse_json, read_json, shown
from elmokit.errors import UserError
from elmokit.model.bilm import BiLM, BiLMConfig
from elmokit.model.char_encoder import CharEncoderConfig
from elmokit.model.language_head import LanguageHead
from elmokit.model.lstm import WIDEST
from elmokit.model.shapes import shapes_only
from elmokit.regular import read_regular, regular_size
from elmokit.text.characters import TokenMapper
from elmokit.text.tokens import TokenizerConfig
from elmokit.text.vocabulary import Vocabulary, make_mapper

FORMAT, VERSION = "elmokit", 1
CONFIG, WEIGHTS, HEAD, MAPPER = "config.json", "model.safetensors", "head.safetensors", "mapper.json"
TOKENIZER, VOCABULARY, CARD = "tokenizer.json", "vocabulary.txt", "README.md"
OLD_TOKENIZER = "tokeniser.json"  # 0.1.0's name of that file
MOST_TEXT = 1 << 30  # bytes of a mapper or a vocabulary
MOST_CARD = 1 << 20
MOST_NAMES = 1 << 20  # bytes of tensors' names and shapes
StoredWeights = Literal["float32", "float16"]  # in the file; in memory there are more (model/kernels/layers.py)
DTYPES = {"float32": torch.float32, "float16": torch.float16}
BYTES = {"float32": 4, "float16": 2}


@dataclass
class Checkpoint:
    """All that a model needs to read text: the biLM, how tokens become ids, how text becomes tokens."""

    bilm: BiLM
    mapper: TokenMapper
    tokenizer: TokenizerConfig
    vocabulary: Vocabulary | None = None
    head: LanguageHead | None = None
    card: str | None = None  # the text of README.md; one is written where there is none

    def __post_init__(self) -> None:
        if self.head is not None and (self.vocabulary is None or len(self.vocabulary) != len(self.head.bias)):
            found = "none" if self.vocabulary is None else f"{len(self.vocabulary)} words"
            raise UserError(f"the softmax head predicts {len(self.head.bias)} words, the vocabulary has {found}")

        encoder, (characters, words) = self.bilm.config.encoder, self.mapper.table_sizes
        known = encoder.characters if isinstance(encoder, CharEncoderConfig) and encoder.filters else 0
        if (known, encoder.words) != (characters, words):
            raise UserError(
                f"the token encoder has tables of {known} characters and {encoder.words} words, "
                f"its mapper makes ids for {characters} and {words}"
            )

    @cached_property
    def digest(self) -> str:
        """Names the function from tokens to vectors: equal digests, equal vectors. Key for caches."""
        digest = hashlib.sha256(_json({"model": dump(self.bilm.config), "mapper": self.mapper.to_dict()}))
        for name, tensor in sorted(self.bilm.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def save(self, folder: str | Path, *, weights: StoredWeights = "float32", overwrite: bool = False) -> None:
        """Write the folder, whole or not at all. float16 halves the file; loading makes float32 of it again."""
        if weights not in DTYPES:
            raise UserError(f"weights: expected {' or '.join(DTYPES)} in a file, found {weights!r}")
        files = {
            WEIGHTS: _tensor_bytes(self.bilm, weights),
            MAPPER: _json(self.mapper.to_dict()),
            TOKENIZER: _json(dump(self.tokenizer)),
            CARD: (self.card or self._default_card(weights)).encode("utf-8"),
        }
        if self.head is not None:
            files[HEAD] = _tensor_bytes(self.head, weights)
        config: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            "elmokit": __version__,
            "weights": weights,
            "model": dump(self.bilm.config),
            "files": {name: _seal(content) for name, content in files.items() if name != CARD},
        }
        if self.head is not None and self.head.projection_weight is not None:
            config["softmax_width"] = self.head.softmax_width
        with replacing_folder(Path(folder), overwrite) as temporary:
            for name, content in files.items():
                (temporary / name).write_bytes(content)
            if self.vocabulary is not None:
                self.vocabulary.save(temporary / VOCABULARY)
                config["files"][VOCABULARY] = _seal((temporary / VOCABULARY).read_bytes())
            (temporary / CONFIG).write_bytes(_json({**config, "sha256": config_digest(config)}))

    @classmethod
    def load(cls, folder: str | Path) -> Checkpoint:
        folder = Path(folder)
        config = read_config(folder)
        tokenizer = tokenizer_file(config.files)
        for name in (WEIGHTS, MAPPER, tokenizer):
            if name not in config.files:
                raise UserError(f"{folder / CONFIG}: lists no {name}")
        with shapes_only():
            bilm = BiLM(config.model)
        # What is small, and says how large the rest must be, is read first.
        known = dict.fromkeys((MAPPER, tokenizer, VOCABULARY), MOST_TEXT) | {WEIGHTS: _most_bytes(bilm, config)}
        contents = {
            name: config.unseal(folder, name, most) for name, most in known.items() if name in config.files
        }
        vocabulary = Vocabulary.load(folder / VOCABULARY) if VOCABULARY in contents else None
        _load_tensors(bilm, contents.pop(WEIGHTS), config.weights, folder / WEIGHTS)
        head = None
        if HEAD in config.files:
            with shapes_only():
                head = LanguageHead(len(vocabulary or ()), config.model.lstm.width, config.softmax_width)
            content = config.unseal(folder, HEAD, _most_bytes(head, config))
            _load_tensors(head, content, config.weights, folder / HEAD)
        return cls(
            bilm.eval(),
            make_mapper(parse_json(contents[MAPPER], folder / MAPPER)),
            build(TokenizerConfig, parse_json(contents[tokenizer], folder / tokenizer), "tokenizer"),
            vocabulary,
            head,
            read_card(folder),
        )

    @property
    def number_of_parameters(self) -> int:
        """Of the biLM, the softmax not counted."""
        return sum(parameter.numel() for parameter in self.bilm.parameters())

    def _default_card(self, weights: str) -> str:
        config = self.bilm.config
        return f"""# ELMo model

Written by elmokit {__version__}. Load it with `Elmo.from_pretrained("this folder")`.

| | |
|---|---|
| layers | {config.layers}, each {config.width} wide |
| LSTM | {config.lstm.layers} layers, {config.lstm.cells} cells projected to {config.lstm.width} per direction |
| token encoder | {config.encoder.kind} |
| tokenizer | {self.tokenizer.name}, {self.tokenizer.normalize} |
| parameters | {self.number_of_parameters:,}, stored as {weights} |
| predicts | {f"{len(self.vocabulary):,} words" if self.vocabulary else "no words (no softmax head)"} |

Training data, licence, perplexity and known limits: not stated by whoever made this model.
"""


@dataclass(frozen=True)
class FileSeal:
    sha256: str
    bytes: int


@dataclass(frozen=True)
class CheckpointConfig:
    """config.json, checked."""

    weights: StoredWeights
    model: BiLMConfig
    files: dict[str, FileSeal]
    softmax_width: int = 0  # as in training: 0, as wide as a direction

    def unseal(self, folder: Path, name: str, most: int) -> bytes:
        """The content of a file if it is of no more than `most` bytes and the one that was sealed."""
        path, seal = folder / name, self.files[name]
        if not path.exists():
            raise UserError(f"{path}: listed in {CONFIG}, but missing: the folder is incomplete")
        size = regular_size(path)
        if size != seal.bytes:
            raise UserError(f"{path}: expected {shown(seal.bytes)} bytes, found {size:,}: copy it again")
        content = read_regular(path, most)
        if hashlib.sha256(content).hexdigest() != seal.sha256:
            raise UserError(f"{path}: its digest is not the one in {CONFIG}: the file was changed or damaged")
        return content


def read_card(folder: Path) -> str | None:
    """The text of README.md, where there is one; what is longer than any card is cut."""
    card = folder / CARD
    if not card.is_file():
        return None
    with card.open("rb") as file:
        return file.read(MOST_CARD).decode("utf-8", "replace")


def tokenizer_file(names: Container[str]) -> str:
    """What the tokenizer's file is called among a model's files."""
    return OLD_TOKENIZER if OLD_TOKENIZER in names else TOKENIZER


def is_checkpoint(folder: Path) -> bool:
    try:
        return bool(read_json(folder / CONFIG).get("format") == FORMAT)
    except (OSError, UserError):
        return False


def read_config(folder: Path) -> CheckpointConfig:
    path = folder / CONFIG
    if not path.exists():
        raise UserError(f"{folder} is not a model folder: it has no {CONFIG}")
    table = read_json(path)
    if table.get("format") != FORMAT:
        raise UserError(f"{path}: expected format {FORMAT!r}, found {shown(table.get('format'))}")
    if table.get("version") != VERSION:
        raise UserError(
            f"{path}: this elmokit reads version {VERSION}, found version {shown(table.get('version'))}, "
            f"written by elmokit {str(table.get('elmokit', '?'))[:20]}: update elmokit, or save the model again "
            "with it"
        )
    if table.get("sha256") != config_digest(table):
        raise UserError(f"{path}: its digest is not the one inside it: the file was changed or damaged")
    weights = table.get("weights", table.get("precision"))  # 0.1.0's name
    if weights not in list(DTYPES):
        raise UserError(f"{path}: weights: expected {' or '.join(DTYPES)}, found {shown(weights)}")
    files = table.get("files")
    if not isinstance(files, dict):
        raise UserError(f"{path}: files: expected a table of files, found {shown(files)}")
    softmax_width = table.get("softmax_width", 0)
    if type(softmax_width) is not int or not 0 <= softmax_width <= WIDEST:
        raise UserError(
            f"{path}: softmax_width: expected an integer, 0 to {WIDEST:,}, found {shown(softmax_width)}"
        )
    foreign = next((name for name in files if Path(name).name != name), None)
    if foreign is not None:
        raise UserError(f"{path}: expected names of files in this folder, found {shown(foreign)}")
    try:
        model = build(BiLMConfig, table.get("model", {}), "model")
        seals = {name: build(FileSeal, seal, f"files.{name}") for name, seal in files.items()}
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    return CheckpointConfig(weights, model, seals, softmax_width)


def config_digest(table: Mapping[str, Any]) -> str:
    """Of what config.json says, its own digest left out."""
    said = {key: value for key, value in table.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def _json(table: Mapping[str, Any]) -> bytes:
    return (json.dumps(table, ensure_ascii=False, indent=1) + "\n").encode("utf-8", "backslashreplace")


def _seal(content: bytes) -> dict[str, Any]:
    return dataclasses.asdict(FileSeal(hashlib.sha256(content).hexdigest(), len(content)))


def _tensor_bytes(module: nn.Module, weights: StoredWeights) -> bytes:
    tensors = {}
    for name, tensor in module.state_dict().items():
        tensors[name] = tensor.detach().cpu().to(DTYPES[weights]).contiguous()
        if not torch.isfinite(tensors[name]).all():
            raise UserError(f"{name} holds values that {weights} cannot hold")
    return save(tensors)


def _most_bytes(module: nn.Module, config: CheckpointConfig) -> int:
    """No more than its numbers take, and their names."""
    numbers: int = sum(tensor.numel() for tensor in module.state_dict().values())
    return numbers * BYTES[config.weights] + MOST_NAMES


def _load_tensors(module: nn.Module, content: bytes, weights: StoredWeights, path: Path) -> None:
    try:
        tensors = load(content)
    except SafetensorError as error:
        raise UserError(f"{path}: not a valid safetensors file: {error}") from None
    check_tensors(module.state_dict(), tensors, path)
    for name, tensor in tensors.items():
        if tensor.dtype != DTYPES[weights]:
            raise UserError(f"{path}: {name}: expected {weights}, found {str(tensor.dtype)[6:]}")
    module.load_state_dict({name: tensor.float() for name, tensor in tensors.items()}, assign=True)


def check_tensors(expected: Mapping[str, Tensor], found: Mapping[str, Any], path: Path) -> None:
    """Same names, same shapes; else a UserError that says what was expected and what was found."""
    for name in expected:
        if name not in found:
            raise UserError(f"{path}: expected {name} of shape {tuple(expected[name].shape)}, found none")
    for name in found:
        if name not in expected:
            raise UserError(f"{path}: found {name} {tuple(found[name].shape)}, which the config has no place for")
        if tuple(found[name].shape) != tuple(expected[name].shape):
            raise UserError(
                f"{path}: {name}: expected shape {tuple(expected[name].shape)}, found {tuple(found[name].shape)}"
            )
