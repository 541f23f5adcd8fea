"""Named entities: character CNN, biLSTM and a CRF over BIOES tags.

After Ma and Hovy 2016, *End-to-end sequence labeling via bi-directional LSTM-CNNs-CRF*, and the tagger of Peters
et al. 2017, *Semi-supervised sequence tagging with bidirectional language models*, which ELMo's paper builds on.
Files are CoNLL's columns, the token first and its tag last: WNUT-17, CoNLL-2003. Tags may be BIO, IOB1, BIOES or
BILOU; they are BIOES within, and BIO where they come out.

Shapes: B sentences, T tokens, N distinct tokens, C characters, F filters, K tags.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from elmokit.errors import UserError
from elmokit.tasks.inputs import TokenInputs
from elmokit.tasks.nn.bilstm import BiLSTM, SharedDropout
from elmokit.tasks.nn.crf import CRF, Allowed
from elmokit.tasks.spans import (
    Span,
    bioes_may_follow,
    bioes_tags,
    overall,
    score_spans,
    spans_of,
    split_tag,
    to_bio,
    to_bioes,
)
from elmokit.tasks.task import Batch, Labels, Network, Task, TrainConfig, located
from elmokit.text.characters import BYTE_CHARACTERS, MASK_SHIFT, PAD, ByteMapper
from elmokit.text.conll import Block, read_blocks
from elmokit.text.corpus import LineReader

DOCUMENT = "-DOCSTART-"  # CoNLL-2003's line between documents


@dataclass(frozen=True)
class NerSettings:
    cells: tuple[int, ...] = (128,)  # of a direction, one number a layer
    input_dropout: float = 0.2  # of each layer's input, after what word vectors and ELMo have had of their own
    dropout: float = 0.5  # of the last layer's output
    characters: int = 24  # bytes of a token that are read, its two ends among them
    character_width: int = 25
    filters: int = 50
    filter_width: int = 3

    def __post_init__(self) -> None:
        if not self.cells or min(self.cells) < 1:
            raise UserError(f"cells: expected one number or more, each at least 1, found {self.cells}")
        if self.filter_width % 2 == 0:
            raise UserError(f"filter_width: expected an odd number, found {self.filter_width}")
        for name in ("input_dropout", "dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise UserError(f"{name}: expected 0 or more and less than 1, found {getattr(self, name)}")


@dataclass(frozen=True)
class Sentence:
    tokens: list[str]
    entities: list[Span] | None
    where: str


class CharacterFeatures(nn.Module):
    """Tokens -> [B, T, F]: a convolution over the bytes of each, its maximum over time; zeros where padded.

    Windows end with the word: how much padding comes after it makes no difference.
    """

    def __init__(self, settings: NerSettings) -> None:
        super().__init__()
        self.mapper = ByteMapper(max_characters_per_token=settings.characters)
        self.padding = PAD + MASK_SHIFT
        self.embedding = nn.Embedding(BYTE_CHARACTERS, settings.character_width, padding_idx=self.padding)
        bound = (3 / settings.character_width) ** 0.5  # as Ma and Hovy begin
        with torch.no_grad():
            self.embedding.weight.uniform_(-bound, bound)[self.padding] = 0
        self.convolution = nn.Conv1d(
            settings.character_width, settings.filters, settings.filter_width, padding=settings.filter_width // 2
        )

    def forward(self, sentences: Sequence[Sequence[str]], length: int) -> Tensor:
        rows: dict[str, int] = {}  # of the distinct tokens; row 0 is for what is padded
        places = torch.zeros(len(sentences), length, dtype=torch.int64)
        for place, tokens in zip(places, sentences):
            numbers = [rows.setdefault(token, len(rows) + 1) for token in tokens]
            place[: len(tokens)] = torch.tensor(numbers, dtype=torch.int64)
        features = self._features(list(rows))
        return torch.cat([features.new_zeros(1, features.shape[1]), features])[places.to(features.device)]

    def _features(self, tokens: list[str]) -> Tensor:  # [N, F]
        if not tokens:
            return self.embedding.weight.new_zeros(0, self.convolution.out_channels)
        spelled = np.zeros((len(tokens), self.mapper.width), dtype=np.int64)
        for row, token in zip(spelled, tokens):
            self.mapper.fill(row, token)
        longest = int((spelled != self.padding).sum(axis=1).max())
        ids = torch.from_numpy(spelled[:, :longest]).to(self.embedding.weight.device)  # [N, C]
        windows = self.convolution(self.embedding(ids).transpose(1, 2))  # [N, F, C]
        windows = windows.masked_fill((ids == self.padding).unsqueeze(1), -torch.inf)
        return torch.relu(windows.amax(dim=2))


class NerNetwork(Network):
    """[word ; characters ; ELMo] -> biLSTMs -> [. ; ELMo at the output] -> scores of tags -> CRF."""

    def __init__(self, inputs: TokenInputs, settings: NerSettings, types: list[str]) -> None:
        super().__init__(inputs)
        self.tags = bioes_tags(types)
        self.characters = CharacterFeatures(settings)
        widths = [inputs.width + settings.filters, *(2 * cells for cells in settings.cells)]
        self.layers = nn.ModuleList(BiLSTM(width, cells) for width, cells in zip(widths, settings.cells))
        self.input_dropout, self.dropout = SharedDropout(settings.input_dropout), SharedDropout(settings.dropout)
        self.output = nn.Linear(widths[-1] + inputs.output_width, len(self.tags))
        self.crf = CRF(Allowed.by_rule(self.tags, bioes_may_follow))

    def forward(self, batch: Batch) -> Tensor:  # [B, T, K]
        (sentence,) = batch.sentences
        x, at_output, mask = self.inputs(sentence)
        x = torch.cat([x, self.characters(sentence.tokens, mask.shape[1])], dim=-1)
        for layer in self.layers:
            x = layer(self.input_dropout(x), mask)
        x = self.dropout(x)
        if at_output is not None:  # after its own dropout
            x = torch.cat([x, at_output], dim=-1)
        scores: Tensor = self.output(x)
        return scores

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        likelihood: Tensor = self.crf(output, batch.features["tags"], batch.sentences[0].mask)
        return -likelihood.mean()

    def decode(self, output: Tensor, batch: Batch) -> list[list[str]]:
        paths = self.crf.best_paths(output, batch.sentences[0].mask)
        return [to_bio(spans_of([self.tags[i] for i in path]), len(path)) for path in paths]


class NamedEntities(Task[Sentence]):
    name = "ner"
    summary = "named entities of CoNLL columns: character CNN, biLSTM, CRF (Ma and Hovy 2016; Peters et al. 2017)"
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
        blocks = read_blocks(path, tabs=has_tabs(path), comment=lambda text: text.startswith(DOCUMENT))
        columns = len(blocks[0][0].fields)
        return [read_sentence(path, block, columns) for block in blocks]

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
                    raise UserError(
                        f"{example.where}: the type {kind!r} of {' '.join(example.tokens[start:end])!r} is not "
                        f"among those of training: {', '.join(known)}"
                    )

    @staticmethod
    def sentences(example: Sentence) -> list[list[str]]:
        return [example.tokens]

    def collate(self, examples: Sequence[Sentence]) -> dict[str, Tensor]:
        if any(example.entities is None for example in examples):
            return {}
        numbers = {tag: i for i, tag in enumerate(bioes_tags(self.labels["types"]))}
        tags = torch.zeros(len(examples), max(len(example.tokens) for example in examples), dtype=torch.int64)
        for row, example in zip(tags, examples):
            right = to_bioes(example.entities or (), len(example.tokens))
            # A type that training has not seen can only be missed: `check` keeps it out of training itself.
            row[: len(right)] = torch.tensor([numbers.get(tag, numbers["O"]) for tag in right], dtype=torch.int64)
        return {"tags": tags}

    def network(self, inputs: TokenInputs) -> NerNetwork:
        return NerNetwork(inputs, self.settings, self.labels["types"])

    def metrics(self, predictions: Sequence[list[str]], examples: Sequence[Sentence]) -> dict[str, float]:
        score = overall(score_spans(map(spans_of, predictions), (e.entities or () for e in examples)).values())
        return score.scores()

    def by_label(self, predictions: Sequence[list[str]], examples: Sequence[Sentence]) -> list[dict[str, Any]]:
        right = (example.entities or () for example in examples)
        return [
            {"label": kind, **score.scores(), "count": score.there}
            for kind, score in score_spans(map(spans_of, predictions), right, self.labels["types"]).items()
        ]

    @classmethod
    def example(cls, text: str, tokenize: Callable[[str], list[str]], where: str) -> Sentence:
        return Sentence(tokenize(text), None, where)

    def predictions_text(self, predictions: Sequence[list[str]], examples: Sequence[Sentence]) -> str:
        """Token, right tag, found tag, as conlleval reads them; no token has white space in it there."""
        lines = []
        for example, found in zip(examples, predictions, strict=True):
            right = to_bio(example.entities or (), len(example.tokens))
            tokens = ("_".join(token.split()) or "_" for token in example.tokens)
            lines += [" ".join(row) for row in zip(tokens, right, found, strict=True)] + [""]
        return "\n".join(lines) + "\n"

    @staticmethod
    def show(example: Sentence, prediction: list[str]) -> str:
        """[Barack Obama](person) visited [Seoul](location) ."""
        shown = list(example.tokens)
        for start, end, kind in spans_of(prediction):
            shown[start] = f"[{shown[start]}"
            shown[end - 1] += f"]({kind})"
        return " ".join(shown)


def has_tabs(path: Path) -> bool:
    """Whether columns are separated by tabs alone, as the first line with a token says."""
    with LineReader(path) as reader:
        for line in reader:
            if line.text.strip() and not line.text.startswith(DOCUMENT):
                return "\t" in line.text
    return False


def read_sentence(path: Path, block: Block, columns: int) -> Sentence:
    """columns   of the file's first line: where one is missing, the last is not the tag."""
    tags = []
    for line, fields in block:
        if len(fields) != columns:
            raise UserError(
                f"{path}, line {line}: expected {columns} columns, as in the lines before, found {len(fields)}: "
                f"{' '.join(fields)[:60]!r}"
            )
        try:
            split_tag(fields[-1])
        except ValueError as error:
            raise UserError(f"{path}, line {line}: {error}") from None
        tags.append(fields[-1])
    return Sentence([row.fields[0] for row in block], spans_of(tags), located(path, block[0].line))
