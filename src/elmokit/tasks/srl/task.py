"""Semantic roles: who did what to whom, a BIO tag a token for one predicate of a sentence.

After He et al. 2017, *Deep semantic role labeling: what works and what's next*, as Peters et al. 2018 ran it:
[word ; ELMo ; is it the predicate?] -> interleaved highway LSTM -> softmax -> the best valid BIO path. Files are
CoNLL-2012 columns; the score is CoNLL-2005's (`propositions.arguments` says what counts).

Recipe laptop: half the paper's layers. An epoch over the 40,352 predicates of PropBank's web text (1.03 M tokens)
takes about two and a half minutes of one core with 256 numbers of ELMo a token, already cached.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from elmokit.errors import UserError
from elmokit.tasks.inputs import TokenInputs
from elmokit.tasks.nn.highway_lstm import HighwayLSTM
from elmokit.tasks.nn.viterbi import BioViterbi, bio_tags
from elmokit.tasks.srl.propositions import Proposition, count, read_propositions, spans_of
from elmokit.tasks.task import Batch, Labels, Network, Task, TrainConfig

IGNORED = -100  # a target that does not count
MARKED = re.compile(r"(?P<before>[^\[\]]*)\[(?P<predicate>[^\[\]]+)\](?P<after>[^\[\]]*)")


@dataclass(frozen=True)
class SrlSettings:
    cells: int = 128
    layers: int = 4  # 1, 3 ... read from left to right, 2, 4 ... from right to left
    indicator: int = 16  # width of "this token is the predicate"
    dropout: float = 0.1  # of the states, one mask a sentence


class SrlNetwork(Network):
    def __init__(self, inputs: TokenInputs, settings: SrlSettings, roles: list[str]) -> None:
        super().__init__(inputs)
        tags = bio_tags(roles)
        self.viterbi = BioViterbi(tags)
        self.indicator = nn.Embedding(2, settings.indicator)
        self.encoder = HighwayLSTM(
            inputs.width + settings.indicator, settings.cells, settings.layers, settings.dropout
        )
        self.output = nn.Linear(settings.cells + inputs.output_width, len(tags))

    def forward(self, batch: Batch) -> Tensor:  # [B, T, tags]
        x, at_output, mask = self.inputs(batch.sentences[0])
        x = self.encoder(torch.cat([x, self.indicator(batch.features["predicate"])], dim=-1), mask)
        if at_output is not None:
            x = torch.cat([x, at_output], dim=-1)
        scores: Tensor = self.output(x)
        return scores

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """The mean over a sentence's tokens, then over the sentences."""
        tags = batch.features["tags"]
        by_token = nn.functional.cross_entropy(
            output.transpose(1, 2), tags, ignore_index=IGNORED, reduction="none"
        )  # [B, T]
        return (by_token.sum(dim=1) / (tags != IGNORED).sum(dim=1).clamp(min=1)).mean()

    def decode(self, output: Tensor, batch: Batch) -> list[list[str]]:
        return self.viterbi(output, batch.sentences[0].mask)


class SemanticRoles(Task[Proposition]):
    name = "srl"
    summary = "semantic roles of CoNLL-2012 columns: interleaved highway LSTM, valid BIO paths (He et al. 2017)"
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
        return {"roles": sorted({span.role for example in examples for span in example.spans or ()})}

    def check(self, examples: Sequence[Proposition]) -> None:
        known = set(self.labels["roles"])
        for example in examples:
            for span in example.spans or ():
                if span.role not in known:
                    raise UserError(
                        f"{example.where}: role {span.role!r} is not among those of training: "
                        f"{', '.join(sorted(known))}"
                    )

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
        tags = torch.full((len(examples), longest), IGNORED)
        for row, example in zip(tags, examples):
            right = [numbers.get(tag, IGNORED) for tag in example.tags or ()]
            row[: len(right)] = torch.tensor(right, dtype=torch.int64)
        return {"predicate": predicate, "tags": tags}

    def network(self, inputs: TokenInputs) -> SrlNetwork:
        return SrlNetwork(inputs, self.settings, self.labels["roles"])

    def metrics(self, predictions: Sequence[list[str]], examples: Sequence[Proposition]) -> dict[str, float]:
        total, _ = count([spans_of(tags) for tags in predictions], [example.spans or () for example in examples])
        return total.scores()

    def by_label(self, predictions: Sequence[list[str]], examples: Sequence[Proposition]) -> list[dict[str, Any]]:
        _, roles = count([spans_of(tags) for tags in predictions], [example.spans or () for example in examples])
        return [{"label": role, **counts.scores(), "count": counts.there} for role, counts in roles.items()]

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
        for role, start, end in spans_of(prediction):
            shown += example.tokens[position:start]
            shown.append(f"[{role} {' '.join(example.tokens[start:end])}]")
            position = end
        return " ".join([*shown, *example.tokens[position:]])
