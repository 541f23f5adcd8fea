"""What a task is: read -> collate -> network (forward, loss, decode) -> metrics. The training loop knows no more.

A task is a class with its data and its scores; its network is a module with its sizes and its decoder. Neither
knows where token vectors come from: `inputs.py` hands them over, with ELMo in them or without.

Shapes: B examples, K sentences per example, T tokens, L layers, D width of a layer, W ids per token.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor, nn

from elmokit.config import check_positive
from elmokit.errors import UserError, clipped, listed
from elmokit.tasks.inputs import Padded, TokenInputs
from elmokit.text.columns import Columns


class Located(Protocol):
    """An example of any task: it knows where it was read, for messages."""

    @property
    def where(self) -> str: ...  # "train.conll:12"


E = TypeVar("E", bound=Located)
Labels = dict[str, list[str]]  # a task's label sets by name, each in a fixed order
IGNORED = -100  # a target that does not count, as torch's cross entropy has it
LONG_LABEL = 50  # characters: it may be a text
BETWEEN = "|||"  # of two texts in a line that a user wrote


class Batch(NamedTuple):
    sentences: tuple[Padded, ...]  # one for each of `Task.groups`
    features: dict[str, Tensor]  # what the task's `collate` made, the gold answers among them where known
    size: int  # B
    examples: Sequence[Any] = ()  # what it was made of, for decoders that answer in the text's own words


@dataclass(frozen=True)
class TrainConfig:
    """How a task is trained; a task's recipes choose the values."""

    epochs: int = 30
    patience: int = 5  # epochs without a better score on dev before it ends, once there is one above zero
    examples: int = 32  # of a batch, at most
    batch_tokens: int = 4096  # of a batch, at most, padding counted; one example at least
    optimizer: str = "adam"  # adam, adamw, adadelta, sgd
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    decay: float = 1.0  # the rate times so much after an epoch that did not improve
    clip_norm: float | None = 5.0
    average: float = 0.0  # above 0, the weights' running mean is measured and kept: so much of the old per step
    seed: int = 0

    def __post_init__(self) -> None:
        check_positive(
            epochs=self.epochs, patience=self.patience, examples=self.examples, batch_tokens=self.batch_tokens
        )
        if self.optimizer not in ("adam", "adamw", "adadelta", "sgd"):
            raise UserError(f"optimizer: expected adam, adamw, adadelta or sgd, found {self.optimizer!r}")
        if not 0 < self.decay <= 1:
            raise UserError(f"decay: expected more than 0 and at most 1, found {self.decay}")
        if not 0 <= self.average < 1:
            raise UserError(f"average: expected 0 or more and less than 1, found {self.average}")


class Network(nn.Module, ABC):
    """A task's model. `self.inputs` turns tokens into vectors; what comes after is the task's own."""

    def __init__(self, inputs: TokenInputs) -> None:
        super().__init__()
        self.inputs = inputs

    @abstractmethod
    def forward(self, batch: Batch) -> Any:
        """Whatever `loss` and `decode` need: scores, as one tensor or a small NamedTuple."""

    @abstractmethod
    def loss(self, output: Any, batch: Batch) -> Tensor:
        """The mean over the batch of what is to be minimized; the mix's penalty is added by the loop."""

    @abstractmethod
    def decode(self, output: Any, batch: Batch) -> list[Any]:
        """One prediction per example, JSON-ready: labels by name, never an invalid sequence."""

    @staticmethod
    def join_output(x: Tensor, at_output: Tensor | None) -> Tensor:
        """[x ; ELMo at the output], or x where there is none; ELMo has had its own dropout."""
        return x if at_output is None else torch.cat([x, at_output], dim=-1)


class Task(ABC, Generic[E]):
    name: ClassVar[str]
    summary: ClassVar[str]  # one line, with the paper whose model it is
    metric: ClassVar[str]  # the key of `metrics` that chooses the best epoch; higher is better
    settings_class: ClassVar[type[Any]]  # a frozen dataclass: the network's sizes
    recipes: ClassVar[Mapping[str, tuple[Any, TrainConfig]]]  # "laptop", "paper"
    files: ClassVar[str] = "files of its own format"  # what `read` reads, for messages
    texts: ClassVar[int] = 1  # of an example, where it comes from a table: columns

    def __init__(self, settings: Any, labels: Labels) -> None:
        self.settings, self.labels = settings, labels

    @classmethod
    @abstractmethod
    def read(cls, path: Path) -> list[E]:
        """The examples of a file; a UserError names the file and the line where it is not right."""

    @classmethod
    def read_table(cls, path: Path, columns: Columns) -> list[E]:
        """The examples of a table, where they are texts and a label: `LabelTask` has it for such tasks."""
        raise UserError(
            f"{path}: {cls.name} reads {cls.files}, not the columns of a table: leave --text-column out"
        )

    @classmethod
    @abstractmethod
    def labels_of(cls, examples: Sequence[E]) -> Labels:
        """The label sets of the training data, sorted, so that an identical file gives identical numbers."""

    def training_examples(self, examples: Sequence[E]) -> list[E]:
        """What is trained on, of what the training file holds: more (all phrases of a tree) or less."""
        return list(examples)

    def excerpt(self, example: E) -> E:
        """What of an example an epoch trains on, where it is too long for the whole: drawn from torch's generator,
        which the loop seeds by the epoch."""
        return example

    def measured_examples(self, examples: Sequence[E]) -> list[E]:
        """What is measured on, of what a file holds: a two-class task leaves out what is in neither."""
        return list(examples)

    @abstractmethod
    def check(self, examples: Sequence[E]) -> None:
        """Refuse labels that training has not seen: a UserError with the example's `where`."""

    @staticmethod
    @abstractmethod
    def sentences(example: E) -> list[list[str]]:
        """The token sequences whose vectors the network needs."""

    def cost(self, example: E) -> int:
        """What an example adds to a batch, in padded tokens: those of its longest sentence."""
        return max((len(sentence) for sentence in self.sentences(example)), default=0)

    def groups(self, examples: Sequence[E]) -> list[list[list[str]]]:
        """Lists of sentences, each padded by itself: K of B sentences, where every example has K."""
        return [list(group) for group in zip(*(self.sentences(example) for example in examples))]

    @abstractmethod
    def collate(self, examples: Sequence[E]) -> dict[str, Tensor]:
        """Tensors beside the tokens' own: features, and the gold answers where the examples have them."""

    @abstractmethod
    def network(self, inputs: TokenInputs) -> Network: ...

    @abstractmethod
    def metrics(self, predictions: Sequence[Any], examples: Sequence[E]) -> dict[str, float]:
        """Scores in per cent, as the official scorer counts them."""

    def ceilings(self, model: Any, examples: Sequence[E], cache: Any = None) -> dict[str, float]:
        """What the model (a TaskModel) had not given up before it answered, in per cent: more it cannot reach."""
        return {}

    def as_json(self, example: E, prediction: Any) -> dict[str, Any]:
        """The prediction for programs."""
        return {"tokens": self.sentences(example), "prediction": prediction}

    def by_label(self, predictions: Sequence[Any], examples: Sequence[E]) -> list[dict[str, Any]]:
        """A table with a row per label, for the results; empty where a task has none."""
        return []

    def predictions_text(self, predictions: Sequence[Any], examples: Sequence[E]) -> str:
        """What `elmo task evaluate --predictions` writes: as the official scorer reads it, where there is one."""
        lines = [
            {"where": example.where, "sentences": self.sentences(example), "prediction": prediction}
            for example, prediction in zip(examples, predictions, strict=True)
        ]
        return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)

    @classmethod
    @abstractmethod
    def example(cls, text: str, tokenize: Any, where: str) -> E:
        """An example without an answer from a line that a user wrote; `tokenize` makes tokens of text."""

    @classmethod
    def row_example(cls, texts: Sequence[str], label: str | None, tokenize: Any, where: str) -> E:
        """An example from a table's row: `texts` texts, and their label where it is known."""
        return cls.example(" ".join(texts[0].split("\n")), tokenize, where)

    @staticmethod
    @abstractmethod
    def show(example: E, prediction: Any) -> str:
        """The prediction for a reader: labelled text, one line or a few."""


def located(path: Path, line: int) -> str:
    """An example's `where`."""
    return f"{path.name}:{line}"


def unknown_label(where: str, what: str, known: Iterable[str]) -> UserError:
    """For `Task.check`. what   such as "tag 'X'"."""
    names = list(known)
    return UserError(
        f"{where}: {clipped(what)} is not among those of training: {listed(names)}"
        + (": are its columns swapped?" if len(what) > LONG_LABEL else "")
    )


def pad_rows(rows: Sequence[Sequence[int]], padding: int) -> Tensor:
    """Numbers of tokens as [B, T]."""
    table = torch.full((len(rows), max(map(len, rows), default=0)), padding, dtype=torch.int64)
    for padded, row in zip(table, rows):
        padded[: len(row)] = torch.tensor(row, dtype=torch.int64)
    return table


def split_in_two(text: str, names: str, where: str) -> tuple[str, str]:
    """The two texts of a user's line. names   what they are, for the message."""
    parts = text.split(BETWEEN if BETWEEN in text else "\t")
    if len(parts) != 2:
        raise UserError(
            f"{where}: expected {names} with {BETWEEN} or a tab between, found {len(parts)} parts: {text[:60]!r}"
        )
    return parts[0], parts[1]
