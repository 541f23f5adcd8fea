"""Semantic roles of CoNLL-2012 columns: who did what to whom.

A BIO tag per token, for one predicate of a sentence. The network is He et al. 2017's; the score is
CoNLL-2005's (`arguments.py` says what counts).

Recipe laptop: half the paper's layers. An epoch over the 40,352 predicates of PropBank's web text (1.03 M tokens)
takes about two and a half minutes of one core with 256 numbers of ELMo per token, already cached.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from elmokit.errors import UserError
from elmokit.tasks.inputs import TokenInputs
from elmokit.tasks.metrics import Counts
from elmokit.tasks.spans import bio_tags, overall, spans_of
from elmokit.tasks.srl.arguments import score_arguments
from elmokit.tasks.srl.network import SrlNetwork, SrlSettings
from elmokit.tasks.srl.propositions import Proposition, read_propositions
from elmokit.tasks.task import IGNORED, Labels, Task, TrainConfig, pad_rows, unknown_label

MARKED = re.compile(r"(?P<before>[^\[\]]*)\[(?P<predicate>[^\[\]]+)\](?P<after>[^\[\]]*)")


class SemanticRoles(Task[Proposition]):
    name = "srl"
    summary = "semantic roles of CoNLL-2012 columns: interleaved highway LSTM, valid BIO paths (He et al. 2017)"
    files = "CoNLL-2012 columns"
    metric = "f1"
    settings_class = SrlSettings
    recipes: ClassVar = {
        "laptop": (
            SrlSettings(),
            TrainConfig(
                epochs=8, patience=2, examples=64, learning_rate=2e-3, decay=0.5, clip_norm=1.0, average=0.999
            ),
        ),
        # Adadelta's epsilon is torch's 1e-6, as the paper's.
        "paper": (
            SrlSettings(cells=300, layers=8, indicator=100),
            TrainConfig(
                epochs=500,
                patience=20,
                examples=80,
                batch_tokens=16384,
                optimizer="adadelta",
                learning_rate=1.0,
                clip_norm=1.0,
            ),
        ),
    }

    @classmethod
    def read(cls, path: Path) -> list[Proposition]:
        return read_propositions(path)

    @classmethod
    def labels_of(cls, examples: Sequence[Proposition]) -> Labels:
        return {"roles": sorted({span.type for example in examples for span in example.spans or ()})}

    def check(self, examples: Sequence[Proposition]) -> None:
        known = set(self.labels["roles"])
        for example in examples:
            for span in example.spans or ():
                if span.type not in known:
                    raise unknown_label(example.where, f"role {span.type!r}", sorted(known))

    @staticmethod
    def sentences(example: Proposition) -> list[list[str]]:
        return [example.tokens]

    def collate(self, examples: Sequence[Proposition]) -> dict[str, Tensor]:
        """A role that training has not seen is no target: where such a file is scored, it is missed."""
        longest = max(len(example.tokens) for example in examples)
        predicate = torch.zeros(len(examples), longest, dtype=torch.int64)
        for row, example in zip(predicate, examples):
            row[slice(*example.predicate)] = 1
        if any(example.spans is None for example in examples):
            return {"predicate": predicate}
        numbers = {tag: number for number, tag in enumerate(bio_tags(self.labels["roles"]))}
        tags = [[numbers.get(tag, IGNORED) for tag in example.tags or ()] for example in examples]
        return {"predicate": predicate, "tags": pad_rows(tags, IGNORED)}

    def network(self, inputs: TokenInputs) -> SrlNetwork:
        return SrlNetwork(inputs, self.settings, self.labels["roles"])

    def metrics(self, predictions: Sequence[list[str]], examples: Sequence[Proposition]) -> dict[str, float]:
        return overall(self._counts(predictions, examples).values()).scores()

    def by_label(self, predictions: Sequence[list[str]], examples: Sequence[Proposition]) -> list[dict[str, Any]]:
        return [counts.row(role) for role, counts in self._counts(predictions, examples).items()]

    def _counts(self, predictions: Sequence[list[str]], examples: Sequence[Proposition]) -> dict[str, Counts]:
        return score_arguments(map(spans_of, predictions), (example.spans or () for example in examples))

    @classmethod
    def example(cls, text: str, tokenize: Callable[[str], list[str]], where: str) -> Proposition:
        """The predicate is marked: He [gave] her a book."""
        marked = MARKED.fullmatch(text)
        predicate = tokenize(marked["predicate"]) if marked else []
        if not marked or not predicate:
            raise UserError(
                f"{where}: expected one predicate in square brackets, as in 'He [gave] her a book .', "
                f"found {text[:60]!r}"
            )
        before, after = (tokenize(marked[side]) for side in ("before", "after"))
        at = len(before), len(before) + len(predicate)
        return Proposition([*before, *predicate, *after], at, None, where)

    @staticmethod
    def show(example: Proposition, prediction: list[str]) -> str:
        """[ARG0 He] [V gave] [ARG2 her] [ARG1 a book] ."""
        shown, position = [], 0
        for start, end, role in spans_of(prediction):
            shown += example.tokens[position:start]
            shown.append(f"[{role} {' '.join(example.tokens[start:end])}]")
            position = end
        return " ".join([*shown, *example.tokens[position:]])
