"""Named entities of CoNLL columns, scored as conlleval does.

Tags are BIOES within, and BIO where they come out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from elmokit.errors import UserError
from elmokit.tasks.inputs import TokenInputs
from elmokit.tasks.metrics import Counts
from elmokit.tasks.ner.entities import Sentence, read_entities
from elmokit.tasks.ner.network import NerNetwork, NerSettings
from elmokit.tasks.spans import OUTSIDE, bioes_tags, overall, score_spans, spans_of, to_bio, to_bioes
from elmokit.tasks.task import Labels, Task, TrainConfig, pad_rows, unknown_label


class NamedEntities(Task[Sentence]):
    name = "ner"
    summary = "named entities of CoNLL columns: character CNN, biLSTM, CRF (Ma and Hovy 2016; Peters et al. 2017)"
    files = "CoNLL columns (token ... tag)"
    metric = "f1"
    settings_class = NerSettings
    recipes: ClassVar = {
        "laptop": (
            NerSettings(),
            TrainConfig(epochs=20, patience=4, examples=16, learning_rate=2e-3, average=0.999),
        ),
        # Peters et al. 2018, the appendix on NER: 16 wide characters and 128 filters of width three, biLSTMs of
        # 200 and 100 cells, variational dropout of both inputs, Adam at a constant 0.001, gradients cut at 5.
        # Its ELMo has lambda 0.1 and its word vectors (Senna, 50 wide) are tuned: those are InputConfig's. The
        # appendix does not say the epochs, patience, batch and dropout: they are AllenNLP's (ner_elmo.jsonnet).
        "paper": (
            NerSettings(
                cells=(200, 100), input_dropout=0.5, dropout=0.5, characters=50, character_width=16, filters=128
            ),
            TrainConfig(epochs=75, patience=25, examples=64, learning_rate=1e-3),
        ),
    }

    @classmethod
    def read(cls, path: Path) -> list[Sentence]:
        return read_entities(path)

    @classmethod
    def labels_of(cls, examples: Sequence[Sentence]) -> Labels:
        types = sorted({entity.type for example in examples for entity in example.entities or ()})
        if not types:
            where = f"from {examples[0].where} on" if examples else "no sentence"
            raise UserError(f"expected entities to learn from, found none: {where}")
        return {"types": types}

    def check(self, examples: Sequence[Sentence]) -> None:
        known = self.labels["types"]
        for example in examples:
            for start, end, kind in example.entities or ():
                if kind not in known:
                    text = " ".join(example.tokens[start:end])
                    raise unknown_label(example.where, f"the type {kind!r} of {text!r}", known)

    @staticmethod
    def sentences(example: Sentence) -> list[list[str]]:
        return [example.tokens]

    def collate(self, examples: Sequence[Sentence]) -> dict[str, Tensor]:
        if any(example.entities is None for example in examples):
            return {}
        numbers = {tag: i for i, tag in enumerate(bioes_tags(self.labels["types"]))}
        outside = numbers[OUTSIDE]
        # A type that training has not seen can only be missed: `check` keeps it out of training itself.
        tags = [to_bioes(example.entities or (), len(example.tokens)) for example in examples]
        return {"tags": pad_rows([[numbers.get(tag, outside) for tag in row] for row in tags], outside)}

    def network(self, inputs: TokenInputs) -> NerNetwork:
        return NerNetwork(inputs, self.settings, self.labels["types"])

    def metrics(self, predictions: Sequence[list[str]], examples: Sequence[Sentence]) -> dict[str, float]:
        return overall(self._counts(predictions, examples).values()).scores()

    def by_label(self, predictions: Sequence[list[str]], examples: Sequence[Sentence]) -> list[dict[str, Any]]:
        return [counts.row(kind) for kind, counts in self._counts(predictions, examples).items()]

    def _counts(self, predictions: Sequence[list[str]], examples: Sequence[Sentence]) -> dict[str, Counts]:
        gold = (example.entities or () for example in examples)
        return score_spans(map(spans_of, predictions), gold, self.labels["types"])

    @classmethod
    def example(cls, text: str, tokenize: Callable[[str], list[str]], where: str) -> Sentence:
        return Sentence(tokenize(text), None, where)

    def predictions_text(self, predictions: Sequence[list[str]], examples: Sequence[Sentence]) -> str:
        """Token, gold tag, predicted tag, as conlleval reads them; no token has white space in it there."""
        lines = []
        for example, predicted in zip(examples, predictions, strict=True):
            gold = to_bio(example.entities or (), len(example.tokens))
            tokens = ("_".join(token.split()) or "_" for token in example.tokens)
            lines += [" ".join(row) for row in zip(tokens, gold, predicted, strict=True)] + [""]
        return "\n".join(lines) + "\n"

    @staticmethod
    def show(example: Sentence, prediction: list[str]) -> str:
        """[Barack Obama](person) visited [Seoul](location) ."""
        shown = list(example.tokens)
        for start, end, kind in spans_of(prediction):
            shown[start] = f"[{shown[start]}"
            shown[end - 1] += f"]({kind})"
        return " ".join(shown)
