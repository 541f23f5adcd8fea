"""A trained task as one folder that predicts alone: task.json, model.safetensors, words.txt and the ELMo it reads.

task.json            the task, its sizes, labels and input settings
model.safetensors    the network's weights, the mixes and the word vectors among them
words.txt            the words that have a vector, one per line
elmo/                the biLM, as a model folder of its own; not there for a baseline
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from elmokit import __version__
from elmokit.atomic import replacing_folder, write_file
from elmokit.checkpoint import check_tensors
from elmokit.config import build, dump, read_json, shown
from elmokit.embed.embedder import Elmo
from elmokit.errors import UserError
from elmokit.model.kernels.packing import WEIGHT_FORMATS
from elmokit.model.kernels.precision import Weights
from elmokit.model.lstm import MOST_LAYERS, WIDEST
from elmokit.model.seeding import seeded
from elmokit.model.shapes import shapes_only
from elmokit.regular import read_regular
from elmokit.tasks import TASKS, task_of_folder
from elmokit.tasks.batches import batches
from elmokit.tasks.inputs import InputConfig, Padded, TokenInputs, WordTable, present_tensor_names
from elmokit.tasks.layer_cache import LayerCache, computed_layers
from elmokit.tasks.prepare import read_examples
from elmokit.tasks.task import Batch, Network, Task
from elmokit.text.columns import Column, Format, asked_columns
from elmokit.text.tokens import make_tokenizer
from elmokit.text.vocabulary import MOST_BYTES

TASK, WEIGHTS, WORDS, ELMO = "task.json", "model.safetensors", "words.txt", "elmo"
BEST, RESULTS = "best", "results.json"  # in the folder of a run
FORMAT, VERSION = "elmokit-task", 1
BILM = "inputs.elmo.bilm."  # of a network whose biLM is trained: it is saved in ELMO, like a frozen one
BATCH_EXAMPLES, BATCH_TOKENS = 64, 8192  # for prediction


class Evaluation(NamedTuple):
    """What `elmo task evaluate` shows."""

    scores: dict[str, float]  # in per cent, as the official scorer counts them
    ceilings: dict[str, float]  # more it cannot reach
    by_label: list[dict[str, Any]]  # one row per label; empty where a task has none
    unseen: str | None  # the first label that training has not seen, and where: such count as missed


@dataclass
class TaskModel:
    task: Task[Any]
    network: Network
    elmo: Elmo | None
    results: dict[str, Any] | None = None  # results.json of the run that it is the best of, where that is finished

    @classmethod
    def fresh(
        cls, task: Task[Any], table: WordTable, elmo: Elmo | None, config: InputConfig, seed: int = 0
    ) -> TaskModel:
        with seeded(seed):
            return cls(task, task.network(TokenInputs(table, elmo, config)), elmo)

    @property
    def trains_bilm(self) -> bool:
        return self.elmo is not None and self.network.inputs.config.train_bilm

    def batch(self, examples: Sequence[Any], cache: LayerCache | None = None) -> Batch:
        groups = tuple(self._pad(group, cache) for group in self.task.groups(examples))
        return Batch(groups, self.task.collate(examples), len(examples), examples)

    def _pad(self, sentences: list[list[str]], cache: LayerCache | None) -> Padded:
        table = self.network.inputs.table
        longest = max((len(sentence) for sentence in sentences), default=0)
        words = torch.zeros(len(sentences), longest, dtype=torch.int64)
        for row, sentence in zip(words, sentences):
            row[: len(sentence)] = torch.tensor(table.rows(sentence), dtype=torch.int64)
        layers = ids = None
        if self.elmo is not None:
            if self.trains_bilm:
                ids = self.elmo.ids(sentences)
            elif cache is not None:
                layers = cache.padded(sentences)
            else:
                layers = computed_layers(self.elmo, sentences)
        return Padded(sentences, words, words > 0, layers, ids)

    @torch.no_grad()
    def predict(
        self, items: Sequence[Any], cache: LayerCache | None = None, *, tokenizer: str = "words"
    ) -> list[Any]:
        """One prediction per item, in their order, JSON-ready; what an item may be, `examples` says."""
        examples = self.examples(items, tokenizer)
        self.network.eval()
        predictions: list[Any] = [None] * len(examples)
        for indices in batches(self.task, examples, BATCH_EXAMPLES, BATCH_TOKENS):
            batch = self.batch([examples[i] for i in indices], cache)
            for i, prediction in zip(indices, self.network.decode(self.network(batch), batch), strict=True):
                predictions[i] = prediction
        return predictions

    def annotate(self, items: Sequence[Any], *, tokenizer: str = "words") -> list[dict[str, Any]]:
        """The tokens and the prediction of each item, as `elmo task predict --json` prints them."""
        examples = self.examples(items, tokenizer)
        return [self.task.as_json(e, prediction) for e, prediction in zip(examples, self.predict(examples))]

    def examples(self, items: Sequence[Any], tokenizer: str = "words") -> list[Any]:
        """Examples of the task, from texts, from lists of tokens, or as they are.

        A text is what a line of `elmo task predict` is: for srl with its predicate in [brackets], and so on. The
        same holds for a list of tokens, which is taken as it is.
        """
        if isinstance(items, str):
            raise UserError("expected a list of texts, found one string: put it in a list")
        tokenize = make_tokenizer(tokenizer).tokens
        examples = []
        for number, item in enumerate(items, start=1):
            where = f"item {number}"
            if isinstance(item, str):
                examples.append(self.task.example(item, tokenize, where))
            elif hasattr(item, "where"):
                examples.append(item)
            else:
                examples.append(self.task.example(_joined(item, where), str.split, where))
        return examples

    def evaluate(
        self,
        file: str | Path,
        *,
        predictions: str | Path | None = None,
        text_column: Column | Sequence[Column] | None = None,
        label_column: Column | None = None,
        header: bool | None = None,
        table_format: Format | None = None,
    ) -> Evaluation:
        """The scores on a file of labelled examples.

        predictions    a file to write the predictions to, as the task's official scorer reads them.
        text_column    and so on: of a table, as of `train_task`.
        """
        columns = asked_columns(text_column, label_column, header, table_format)
        task = self.task
        examples = task.measured_examples(read_examples(type(task), Path(file), columns))
        try:
            task.check(examples)
            unseen = None
        except UserError as error:
            unseen = str(error)
        predicted = self.predict(examples)
        if predictions is not None:
            # Half of a surrogate pair, which JSON may hold, stays the escape that JSON has for it.
            text = task.predictions_text(predicted, examples)
            write_file(Path(predictions), text.encode("utf-8", "backslashreplace"))
        return Evaluation(
            task.metrics(predicted, examples),
            task.ceilings(self, examples),
            task.by_label(predicted, examples),
            unseen,
        )

    def save(self, folder: Path, *, overwrite: bool = False, written_elmo: Path | None = None) -> None:
        """written_elmo    a folder that may hold this biLM already: its files are linked, not written."""
        inputs = self.network.inputs
        table = {
            "format": FORMAT,
            "version": VERSION,
            "elmokit": __version__,
            "task": self.task.name,
            **_reference(type(self.task)),
            "settings": dump(self.task.settings),
            "labels": self.task.labels,
            "inputs": dump(inputs.config),
            "word_width": inputs.word_embedding.embedding_dim,
            "vectors": inputs.table.vectors is not None,
            **({} if self.elmo is None or self.elmo.weights == "float32" else {"elmo_weights": self.elmo.weights}),
        }
        tensors = {
            name: tensor.detach().contiguous()
            for name, tensor in self.network.state_dict().items()
            if not name.startswith(BILM)
        }
        with replacing_folder(folder, overwrite) as temporary:
            (temporary / TASK).write_text(json.dumps(table, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
            (temporary / WEIGHTS).write_bytes(save(tensors))
            (temporary / WORDS).write_bytes("".join(f"{word}\n" for word in inputs.table.words).encode())
            if self.elmo is not None:
                if written_elmo is not None and written_elmo.is_dir():
                    _link_files(written_elmo, temporary / ELMO)
                else:
                    self.elmo.save(temporary / ELMO)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        elmo: Elmo | None = None,
        task: str | type[Task[Any]] | None = None,
        weights: Weights | None = None,
    ) -> TaskModel:
        """The folder of a run, or the best of it.

        elmo      the biLM that it reads, if that is in memory already.
        task      the class of a task of your own, or where it is ("package.module:Class").
        weights   of the biLM that is opened here, as of `Elmo`; by default those that it was trained with.
        """
        run = folder = Path(folder)
        if not (folder / TASK).is_file() and (folder / BEST / TASK).is_file():
            folder = folder / BEST
        path = folder / TASK
        if not path.is_file():
            raise UserError(
                f"{folder} holds no trained task: it has no {TASK}. Expected the folder that "
                f"`elmo task train TASK --out FOLDER` has made"
            )
        table = read_json(path)
        if (table.get("format"), table.get("version")) != (FORMAT, VERSION):
            raise UserError(f"{path}: expected {FORMAT} of version {VERSION}, found {table.get('format')!r}")
        try:
            kind = task_of_folder(str(table.get("task")), table.get("class"), task)
        except UserError as error:
            raise UserError(f"{folder}: {error}") from None
        try:
            own = kind(build(kind.settings_class, table["settings"], "settings"), table["labels"])
            config = InputConfig.read(table["inputs"])
            words = read_regular(folder / WORDS, MOST_BYTES).decode("utf-8").split("\n")[:-1]
            content, width = load(read_regular(folder / WEIGHTS, sys.maxsize)), int(table["word_width"])
        except (KeyError, OSError, UnicodeDecodeError, SafetensorError) as error:
            raise UserError(f"{folder}: cannot be read, it is incomplete or damaged: {error}") from None
        if elmo is None and (folder / ELMO).is_dir():
            elmo = Elmo.from_pretrained(folder / ELMO, weights=weights or _elmo_weights(table, path))

        def fresh() -> TaskModel:
            vectors = torch.zeros(len(words), width) if table["vectors"] else None
            return cls.fresh(own, WordTable(words, vectors), elmo, config)

        _check_sizes(dump(own.settings), path)
        if kind.name in TASKS:  # does the file hold what its settings say? Asked before there is memory for it
            with shapes_only():
                fresh()._checked(content, folder / WEIGHTS)
        model = fresh()
        model.network.load_state_dict(model._checked(content, folder / WEIGHTS))
        model.network.eval()
        if (run / RESULTS).is_file():
            model.results = read_json(run / RESULTS)
        return model

    def _checked(self, content: dict[str, torch.Tensor], path: Path) -> dict[str, torch.Tensor]:
        """The tensors of a file by the names of today, all of them and of the right shapes."""
        content = present_tensor_names(content, self.network.inputs.places)
        own = self.network.state_dict()
        content |= {name: tensor for name, tensor in own.items() if name.startswith(BILM)}  # read from ELMO
        check_tensors(own, content, path)
        return content


def _elmo_weights(table: dict[str, Any], path: Path) -> str:
    weights = table.get("elmo_weights", "float32")
    if not isinstance(weights, str) or weights not in WEIGHT_FORMATS:
        raise UserError(f"{path}: elmo_weights: expected {', '.join(WEIGHT_FORMATS)}, found {shown(weights)}")
    return weights


def _check_sizes(settings: Any, path: Path) -> None:
    """More layers than anyone trains would take for ever to make, even without values."""
    for name, value in settings.items():
        for size in value if isinstance(value, (list, tuple)) else [value]:
            most = MOST_LAYERS if name == "layers" else WIDEST
            if isinstance(size, int) and size > most:
                raise UserError(f"{path}: {name}: expected {most:,} at most, found {shown(size)}")


def _reference(kind: type[Task[Any]]) -> dict[str, str]:
    """Where the class of a task of your own is, for the message when it is missing."""
    return {} if kind.name in TASKS else {"class": f"{kind.__module__}:{kind.__qualname__}"}


def _joined(tokens: Any, where: str) -> str:
    if not isinstance(tokens, Sequence) or not all(isinstance(token, str) for token in tokens):
        raise UserError(f"{where}: expected a text, a list of tokens or an example of the task, found {tokens!r}")
    for token in tokens:
        if len(token.split()) != 1:
            raise UserError(f"{where}: expected tokens without white space in them, found {token!r}")
    return " ".join(tokens)


def _link_files(source: Path, target: Path) -> None:
    """The files of a folder in another, once on the disk where it has hard links."""
    target.mkdir()
    for file in source.iterdir():
        try:
            os.link(file, target / file.name)
        except OSError:
            shutil.copy2(file, target / file.name)
