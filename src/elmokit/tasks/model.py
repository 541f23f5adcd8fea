"""A trained task as one folder that predicts alone: task.json, model.safetensors, words.txt and the ELMo it reads.

task.json            the task, its sizes, labels and input settings
model.safetensors    the network's weights, the mixes and the word vectors among them
words.txt            the words that have a vector, one a line
elmo/                the biLM, as a model folder of its own; not there for a baseline
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from elmokit import __version__
from elmokit.atomic import replacing_folder
from elmokit.checkpoint import check_tensors
from elmokit.config import build, dump, parse_json
from elmokit.embed.embedder import Elmo
from elmokit.errors import UserError
from elmokit.tasks import task_class
from elmokit.tasks.inputs import InputConfig, Padded, TokenInputs, WordTable
from elmokit.tasks.layer_cache import LayerCache
from elmokit.tasks.task import Batch, Network, Task

TASK, WEIGHTS, WORDS, ELMO = "task.json", "model.safetensors", "words.txt", "elmo"
FORMAT, VERSION = "elmokit-task", 1
BATCH_EXAMPLES, BATCH_TOKENS = 64, 8192  # for prediction


@dataclass
class TaskModel:
    task: Task[Any]
    network: Network
    elmo: Elmo | None

    @classmethod
    def fresh(
        cls, task: Task[Any], table: WordTable, elmo: Elmo | None, config: InputConfig, seed: int = 0
    ) -> TaskModel:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return cls(task, task.network(TokenInputs(table, elmo, config)), elmo)

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
        if self.network.inputs.places:
            assert self.elmo is not None
            if cache is not None and not self.network.inputs.config.train_bilm:
                layers = cache.padded(sentences)
            else:
                ids = self.elmo.ids(sentences)
        return Padded(sentences, words, words > 0, layers, ids)

    @torch.no_grad()
    def predict(self, examples: Sequence[Any], cache: LayerCache | None = None) -> list[Any]:
        """One prediction an example, in their order."""
        self.network.eval()
        predictions: list[Any] = [None] * len(examples)
        for indices in batches(self.task, examples, BATCH_EXAMPLES, BATCH_TOKENS):
            batch = self.batch([examples[i] for i in indices], cache)
            for i, prediction in zip(indices, self.network.decode(self.network(batch), batch), strict=True):
                predictions[i] = prediction
        return predictions

    def save(self, folder: Path, *, overwrite: bool = False) -> None:
        inputs = self.network.inputs
        table = {
            "format": FORMAT,
            "version": VERSION,
            "elmokit": __version__,
            "task": self.task.name,
            "settings": dump(self.task.settings),
            "labels": self.task.labels,
            "inputs": dump(inputs.config),
            "word_width": inputs.word_embedding.embedding_dim,
            "vectors": inputs.table.vectors is not None,
        }
        tensors = {name: tensor.detach().contiguous() for name, tensor in self.network.state_dict().items()}
        with replacing_folder(folder, overwrite) as temporary:
            (temporary / TASK).write_text(json.dumps(table, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
            (temporary / WEIGHTS).write_bytes(save(tensors))
            (temporary / WORDS).write_bytes("".join(f"{word}\n" for word in inputs.table.words).encode())
            if self.elmo is not None:
                self.elmo.save(temporary / ELMO)

    @classmethod
    def load(cls, folder: Path) -> TaskModel:
        path = folder / TASK
        if not path.is_file():
            raise UserError(
                f"{folder} holds no trained task: it has no {TASK}. Expected the folder that "
                f"`elmo task train TASK --out FOLDER` has made"
            )
        table = parse_json(path.read_bytes(), path)
        if (table.get("format"), table.get("version")) != (FORMAT, VERSION):
            raise UserError(f"{path}: expected {FORMAT} of version {VERSION}, found {table.get('format')!r}")
        kind = task_class(str(table.get("task")))
        try:
            task = kind(build(kind.settings_class, table["settings"], "settings"), table["labels"])
            config = build(InputConfig, table["inputs"], "inputs")
            words = (folder / WORDS).read_bytes().decode("utf-8").split("\n")[:-1]
            content, width = load((folder / WEIGHTS).read_bytes()), int(table["word_width"])
        except (KeyError, OSError, UnicodeDecodeError, SafetensorError) as error:
            raise UserError(f"{folder}: cannot be read, it is incomplete or damaged: {error}") from None
        elmo = Elmo.from_pretrained(folder / ELMO) if (folder / ELMO).is_dir() else None
        vectors = torch.zeros(len(words), width) if table["vectors"] else None
        model = cls.fresh(task, WordTable(words, vectors), elmo, config)
        check_tensors(model.network.state_dict(), content, folder / WEIGHTS)
        model.network.load_state_dict(content)
        model.network.eval()
        return model


def lengths(task: Task[Any], examples: Sequence[Any]) -> list[int]:
    return [task.cost(example) for example in examples]


def batches(
    task: Task[Any], examples: Sequence[Any], most: int, tokens: int, order: Sequence[int] | None = None
) -> Iterator[list[int]]:
    """Indices of examples of like length: at most `most`, within `tokens` padded tokens, one at least.

    order    the sequence to cut into batches; by default from the longest to the shortest.
    """
    sizes = lengths(task, examples)
    chosen = sorted(range(len(examples)), key=lambda i: -sizes[i]) if order is None else order
    batch: list[int] = []
    longest = 0
    for i in chosen:
        if batch and (len(batch) >= most or max(longest, sizes[i]) * (len(batch) + 1) > tokens):
            yield batch
            batch, longest = [], 0
        batch.append(i)
        longest = max(longest, sizes[i])
    if batch:
        yield batch
