"""Coreference of CoNLL-2012 columns: which spans of a document mean the same.

The score is the mean F1 of MUC, B-cubed and CEAF (`scores.py`), single-mention clusters dropped in key and
response unless `singletons` is set.

A document is read by segments of `train_sentences`: in training one of them, another every epoch; in prediction
all, one after the other. Spans are pruned in each; an antecedent may be in an earlier one. `candidate_recall`
says what width and pruning lose.

The paper's loss asks nothing of a mention that was pruned: where all of them are, as may be with few documents, it
is 0. Recipe laptop adds a loss for every span as a mention (`mention_weight`); recipe paper does not.

Recipe laptop: an epoch over LitBank's 80 documents, 40 sentences of each, takes about 35 seconds of one core, 55
with 512 numbers of ELMo per token (cached), the 10 documents of dev among them: 20 epochs are 12 or 19 minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from elmokit.errors import UserError
from elmokit.tasks.coref.clusters import Document, conll_text, read_documents
from elmokit.tasks.coref.network import CorefNetwork, CorefSettings, Prediction
from elmokit.tasks.coref.scores import as_sets, cluster_scores, without_singles
from elmokit.tasks.inputs import TokenInputs
from elmokit.tasks.metrics import percent
from elmokit.tasks.task import Labels, Task, TrainConfig
from elmokit.text.conll import HEADER
from elmokit.text.tokens import make_tokenizer

if TYPE_CHECKING:
    from elmokit.tasks.layer_cache import LayerCache
    from elmokit.tasks.model import TaskModel


class Coreference(Task[Document]):
    name = "coref"
    summary = "coreference of CoNLL-2012 columns: span ranking, end to end (Lee et al. 2017)"
    files = "CoNLL-2012 columns"
    metric = "f1"
    settings_class = CorefSettings
    # A batch is a document: the loop's `batch_tokens` cannot see how long one is.
    recipes: ClassVar = {
        "laptop": (
            CorefSettings(),
            TrainConfig(epochs=20, patience=6, examples=1, learning_rate=1e-3, decay=0.7, average=0.999),
        ),
        # The paper lowers the rate by 0.1 % every 100 steps, whatever the score on dev is.
        "paper": (
            CorefSettings(
                cells=200, hidden=150, kept=0.4, antecedents=250, train_sentences=50, mention_weight=0.0
            ),
            TrainConfig(epochs=150, patience=20, examples=1, learning_rate=1e-3, decay=0.97),
        ),
    }

    @classmethod
    def read(cls, path: Path) -> list[Document]:
        return read_documents(path)

    @classmethod
    def labels_of(cls, examples: Sequence[Document]) -> Labels:
        return {}

    def check(self, examples: Sequence[Document]) -> None:
        """Clusters have no names: there is none that training has not seen."""

    @staticmethod
    def sentences(example: Document) -> list[list[str]]:
        return example.sentences

    def excerpt(self, example: Document) -> Document:
        more = len(example.sentences) - self.settings.train_sentences
        if more <= 0:
            return example
        first = int(torch.randint(more + 1, ()))
        return example.excerpt(first, first + self.settings.train_sentences)

    def cost(self, example: Document) -> int:
        """At most: as if all sentences were padded to the longest."""
        return len(example.sentences) * max((len(sentence) for sentence in example.sentences), default=0)

    def groups(self, examples: Sequence[Document]) -> list[list[list[str]]]:
        """The segments of all documents; `collate` says how many each has."""
        return [segment for example in examples for segment in self._segments(example)]

    def _segments(self, example: Document) -> list[list[list[str]]]:
        most = self.settings.train_sentences
        return [example.sentences[first : first + most] for first in range(0, len(example.sentences), most)]

    def collate(self, examples: Sequence[Document]) -> dict[str, Tensor]:
        speakers: list[int] = []  # of all tokens; 0 where not known
        mentions: list[tuple[int, int, int, int]] = []  # document, start, end, cluster from 1
        for number, example in enumerate(examples):
            numbers = {"-": 0}
            for speaker in example.speakers or ["-"] * len(example.tokens):
                speakers.append(numbers.setdefault(speaker, len(numbers)))
            for cluster, spans in enumerate(example.clusters or (), start=1):
                mentions += [(number, start, end, cluster) for start, end in spans]
        features = {
            "segments": torch.tensor([len(self._segments(example)) for example in examples]),
            "speakers": torch.tensor(speakers, dtype=torch.int64),
        }
        if all(example.clusters is not None for example in examples):
            features["mentions"] = torch.tensor(mentions, dtype=torch.int64).reshape(-1, 4)
        return features

    def network(self, inputs: TokenInputs) -> CorefNetwork:
        return CorefNetwork(inputs, self.settings)

    def metrics(self, predictions: Sequence[Prediction], examples: Sequence[Document]) -> dict[str, float]:
        """`mention recall`: of the key's mentions, those in a cluster that was predicted."""
        by_name = {row["label"]: row for row in self.by_label(predictions, examples)}
        f1 = {name: by_name[name]["f1"] for name in ("muc", "b3", "ceaf")}
        return {"f1": sum(f1.values()) / len(f1), **f1, "mention recall": by_name["mentions"]["recall"]}

    def ceilings(
        self, model: TaskModel, examples: Sequence[Document], cache: LayerCache | None = None
    ) -> dict[str, float]:
        recall = candidate_recall(model, examples, cache)
        return {} if recall is None else {"recall of the spans that are kept": recall}

    def by_label(self, predictions: Sequence[Prediction], examples: Sequence[Document]) -> list[dict[str, Any]]:
        """A row per metric, with its precision and recall."""
        gold = [example.clusters or [] for example in examples]
        scores = cluster_scores(predictions, gold, singletons=self.settings.singletons)
        return [{"label": name, **score.scores()} for name, score in scores.items()]

    def predictions_text(self, predictions: Sequence[Prediction], examples: Sequence[Document]) -> str:
        """CoNLL-2012 columns, as the reference scorer reads them."""
        return "".join(
            conll_text(document, clusters) for document, clusters in zip(examples, predictions, strict=True)
        )

    @classmethod
    def example(cls, text: str, tokenize: Callable[[str], list[str]], where: str) -> Document:
        """A line is a document; its sentences are found first."""
        if HEADER.match(text):
            raise UserError(
                f"{where}: expected a line of text for each document, found CoNLL-2012's columns: for these "
                f"`elmo task evaluate MODEL FILE --predictions FOUND` writes what was found"
            )
        found = (tokenize(sentence) for sentence in make_tokenizer("words").sentences(text))
        return Document([tokens for tokens in found if tokens], None, None, where)

    @staticmethod
    def show(example: Document, prediction: Prediction) -> str:
        """[Ada]1 told [[her]1 sister]2 that [she]2 ..., and the clusters, a line each."""
        tokens = example.tokens
        spans = [(*span, number) for number, cluster in enumerate(prediction, start=1) for span in cluster]
        for start, _, _ in spans:
            tokens[start] = f"[{tokens[start]}"
        for _, end, number in sorted(spans, key=lambda span: (span[1], -span[0])):
            tokens[end - 1] += f"]{number}"
        clusters = enumerate(mention_texts(example, prediction), start=1)
        return "\n".join([" ".join(tokens), *(f"  {number}: {', '.join(texts)}" for number, texts in clusters)])

    def as_json(self, example: Document, prediction: Prediction) -> dict[str, Any]:
        """The spans are of the document's tokens, which `tokens` has by sentence."""
        return {**super().as_json(example, prediction), "clusters": mention_texts(example, prediction)}


def mention_texts(document: Document, clusters: Prediction) -> list[list[str]]:
    tokens = document.tokens
    return [[" ".join(tokens[start:end]) for start, end in cluster] for cluster in clusters]


@torch.no_grad()
def candidate_recall(
    model: TaskModel, documents: Sequence[Document], cache: LayerCache | None = None
) -> float | None:
    """Per cent of the key's mentions that are among the spans kept: more than this no antecedent can find. None
    where the key has no mention."""
    model.network.eval()
    kept = mentions = 0
    for document in documents:
        clusters = as_sets(document.clusters or [])
        if not model.task.settings.singletons:
            clusters = without_singles(clusters)
        (scores,) = model.network(model.batch([document], cache))
        gold = {mention for cluster in clusters for mention in cluster}
        kept, mentions = kept + len(gold & set(scores.spans)), mentions + len(gold)
    return percent(kept, mentions) if mentions else None
