"""BiDAF with self attention, as Peters et al. 2018 used it.

Clark and Gardner 2017, *Simple and effective multi-paragraph reading comprehension*; the attention between the
texts is from Seo et al. 2017.

One biGRU reads context and question; each token of the context sees the question, and the question's view of the
context; a residual layer lets the context see itself; two biGRUs find where the answer starts, and where it ends.
Of the paper's, one thing is missing: a character CNN beside the word vectors.

Shapes: B questions, T tokens of the context, S tokens of the question, I inputs, H cells of a direction, D width
of ELMo where it is at the output, J = 2H + D, C characters of the context.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from elmokit.config import check_dropout, check_positive
from elmokit.tasks.inputs import Padded, TokenInputs
from elmokit.tasks.nn.attention import masked, masked_softmax
from elmokit.tasks.nn.dropout import VariationalDropout
from elmokit.tasks.nn.gru import BiGRU
from elmokit.tasks.task import Batch, Network

CHUNK = 32_000_000  # scores of a context's tokens for each other that are there at once: T x T may be too many


@dataclass(frozen=True)
class BidafSettings:
    cells: int = 64  # of a direction, in all biGRUs; linear layers are twice as wide
    dropout: float = 0.2  # before GRUs and linear layers, one mask per text
    longest: int = 300  # tokens of a context in training; more are cut. Prediction reads all
    span: int = 17  # tokens of a predicted answer, at most

    def __post_init__(self) -> None:
        check_positive(cells=self.cells, longest=self.longest, span=self.span)
        check_dropout(dropout=self.dropout)


class SpanScores(NamedTuple):
    start: Tensor  # [B, T]
    end: Tensor  # [B, T], of an answer's last token


class BidafNetwork(Network):
    def __init__(self, inputs: TokenInputs, settings: BidafSettings) -> None:
        super().__init__(inputs)
        cells, width = settings.cells, 2 * settings.cells
        joined = width + inputs.output_width  # J
        self.span = settings.span
        self.dropout = VariationalDropout(settings.dropout)
        self.contextual = BiGRU(inputs.width, cells)
        self.attention = Trilinear(width, inputs.output_width)
        self.projection = nn.Linear(4 * joined, width)
        self.self_encoder = BiGRU(width, cells)
        self.self_attention = Trilinear(width)
        self.self_projection = nn.Linear(3 * width, width)
        self.start_encoder, self.end_encoder = BiGRU(width, cells), BiGRU(2 * width, cells)
        self.start, self.end = nn.Linear(width, 1), nn.Linear(width, 1)

    def forward(self, batch: Batch) -> SpanScores:
        context, question = batch.sentences
        mask = context.mask
        x = self._see_question(self._read(context), self._read(question), mask, question.mask)  # [B, T, 2H]
        x = x + self._see_itself(x, mask)
        before = self.start_encoder(self.dropout(x), mask)  # [B, T, 2H]
        after = self.end_encoder(self.dropout(torch.cat([x, before], dim=-1)), mask)
        start, end = self.start(self.dropout(before)), self.end(self.dropout(after))
        return SpanScores(start.squeeze(-1), end.squeeze(-1))

    def _read(self, sentence: Padded) -> Tensor:
        x, at_output, mask = self.inputs(sentence)
        return self.join_output(self.contextual(x, mask), at_output)

    def _see_question(self, x: Tensor, y: Tensor, mask: Tensor, y_mask: Tensor) -> Tensor:
        """x [B, T, J], y [B, S, J] -> [B, T, 2H]."""
        scores = self.attention(x, y)  # [B, T, S]
        seen = masked_softmax(scores, y_mask.unsqueeze(1)) @ y  # [B, T, J]
        # What of the context is nearest to any word of the question; alike for all where there is no word.
        nearest = x.new_zeros(mask.shape)
        if y.shape[1]:
            greatest = masked(scores, y_mask.unsqueeze(1)).amax(dim=-1)
            nearest = greatest.masked_fill(~y_mask.any(dim=1, keepdim=True), 0.0)
        asked = masked_softmax(nearest, mask).unsqueeze(1) @ x  # [B, 1, J]
        together = torch.cat([x, seen, x * seen, asked * seen], dim=-1)
        projected: Tensor = self.projection(self.dropout(together)).relu()
        return projected

    def _see_itself(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.self_encoder(self.dropout(x), mask)  # [B, T, 2H]
        size, tokens, _ = x.shape
        rows = max(1, CHUNK // max(1, size * tokens))
        seen = torch.cat([self._others(x, mask, row, row + rows) for row in range(0, max(1, tokens), rows)], dim=1)
        projected: Tensor = self.self_projection(self.dropout(torch.cat([x, seen, x * seen], dim=-1))).relu()
        return projected

    def _others(self, x: Tensor, mask: Tensor, first: int, last: int) -> Tensor:
        """What tokens first to last - 1 see of all but themselves: [B, R, 2H]."""
        numbers = torch.arange(x.shape[1])
        others = mask.unsqueeze(1) & (numbers[first:last].unsqueeze(1) != numbers)  # [B, R, T]
        return masked_softmax(self.self_attention(x[:, first:last], x), others) @ x

    def loss(self, output: SpanScores, batch: Batch) -> Tensor:
        """-log p(start) - log p(end), the mean over the questions."""
        mask, total = batch.sentences[0].mask, torch.zeros(())
        for name, scores in output._asdict().items():
            total = total + nn.functional.cross_entropy(masked(scores, mask), batch.features[name])
        return total

    def decode(self, output: SpanScores, batch: Batch) -> list[dict[str, Any]]:
        """The answer as it is written in the context, and its characters there: [start, end)."""
        mask, found = batch.sentences[0].mask, []
        for row, (first, last) in enumerate(best_spans(output, mask, self.span).tolist()):
            if not mask[row].any():
                found.append({"text": "", "start": 0, "end": 0})
                continue
            context = batch.examples[row].context
            start, end = context.spans[first][0], context.spans[last][1]
            found.append({"text": context.text[start:end], "start": start, "end": end})
        return found


def best_spans(scores: SpanScores, mask: Tensor, limit: int) -> Tensor:
    """[B, 2]: first and last token of the best answer of at most `limit` tokens; 0, 0 where there is no token."""
    size, count = mask.shape
    if not count:
        return torch.zeros(size, 2, dtype=torch.int64)
    width = min(limit, count)
    start, end = (part.masked_fill(~mask, -math.inf) for part in scores)
    ends = nn.functional.pad(end, (0, width - 1), value=-math.inf).unfold(1, width, 1)  # [B, T, width]
    best = (start.unsqueeze(-1) + ends).flatten(1).argmax(dim=1)
    first = best // width
    return torch.stack([first, first + best % width], dim=1)


class Trilinear(nn.Module):
    """w · [x ; y ; x * y] of each pair: x [B, T, I], y [B, S, I] -> [B, T, S], never [B, T, S, I].

    It begins as a dot product, so that a word of the question finds itself in the context before anything is
    learned: from random signs, a few thousand questions do not teach that (docs/decisions.md). What an RNN puts
    out is small, ELMo's numbers are not: theirs is scaled.
    """

    def __init__(self, of_rnn: int, of_elmo: int = 0) -> None:
        """I = of_rnn + of_elmo, in this order."""
        super().__init__()
        inputs = of_rnn + of_elmo
        self.of_x, self.of_y = nn.Linear(inputs, 1, bias=False), nn.Linear(inputs, 1, bias=False)
        self.of_both = nn.Parameter(torch.ones(inputs))
        bound = math.sqrt(6 / (3 * inputs + 1))  # Glorot's, of all three as one
        for weight in (self.of_x.weight, self.of_y.weight):
            nn.init.uniform_(weight, -bound, bound)
        if of_elmo:
            nn.init.constant_(self.of_both[of_rnn:], 1 / math.sqrt(of_elmo))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        one: Tensor = self.of_x(x) + self.of_y(y).transpose(1, 2)
        return one + (x * self.of_both) @ y.transpose(1, 2)
