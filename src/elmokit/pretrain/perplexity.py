"""How well a model predicts text: perplexity, the log probability of every token, candidates for a gap.

A sentence is read as <S> w1 .. wn </S>. Forward, the top layer at a token predicts the token after it: w1 .. wn
and </S>. Backward, it predicts the token before it: wn .. w1 and <S>. That is n + 1 predictions per
direction, always by the full softmax. A word outside the vocabulary is predicted as <UNK>, and counts.

Shapes: B batch, T tokens with boundaries, W ids per token, P width of a direction, V words, N predictions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, pairwise, zip_longest
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from elmokit.embed.sentences import by_number, check_sentence
from elmokit.errors import UserError
from elmokit.model.bilm import BiLMOutput, BiLMState
from elmokit.model.language_head import LanguageHead
from elmokit.model.rows import TOGETHER, whole_rows
from elmokit.pretrain.any_model import AnyModel, checkpoint_to_read
from elmokit.text.batches import batches_by_length, pad, windows
from elmokit.text.tokens import tokenizer_for
from elmokit.text.vocabulary import BEGIN, END, SPECIALS, UNKNOWN, Vocabulary

State = Literal["carry", "zero"]
GAP = "___"
FREQUENCY = (
    0.75  # the power of p(word) in `fill`: 1 if both sides were independent given the word; see docs/decisions.md
)
BATCH_TOKENS, ROWS = 2048, 16
BATCHES_PER_WINDOW = 8  # as in embed: sorted by length within that many batches
STRETCH = 64  # consecutive sentences that a stream reads before it continues elsewhere in the text
# Numbers of one [N, V] held at a time: 16 MB, which the cache likes, but not fewer than 16 rows, or the weights
# are read too often: 51 MB for the 800,000 words of the published models.
LOGITS, LOGIT_ROWS = 4 * 2**20, 16


class Perplexity(NamedTuple):
    forward: float  # exp of the mean negative log likelihood of a direction's predictions
    backward: float
    mean: float  # exp of the mean over the predictions of both directions
    predictions: int  # of each direction: the words and, once per sentence, its end
    sentences: int
    unknown: float  # the share of the words that are outside the vocabulary


class TokenScore(NamedTuple):
    """log p of a token given those before it (forward) and given those after it (backward).

    None where nothing predicts it: <S> forward, </S> backward. An unknown word's numbers are those of <UNK>.
    """

    token: str
    forward: float | None
    backward: float | None
    unknown: bool


Scores = list[TokenScore]  # of <S>, w1 .. wn and </S>; empty for a sentence without a token


class Candidate(NamedTuple):
    word: str
    probability: float  # by both directions, among the words of the vocabulary that may fill the gap
    forward: float  # log p by the left context alone
    backward: float  # log p by the right context alone


class Expected(NamedTuple):
    """What is expected in the place of a token, which is itself not read: the likeliest words first.

    forward and backward are what each direction expects by itself, with its own probability among all that it
    predicts, boundaries and <UNK> included; both is what `fill` gives, punctuation included.
    """

    score: TokenScore
    probability: float | None  # of the token itself by both; None for an unknown one, which is no candidate
    forward: list[Candidate]
    backward: list[Candidate]
    both: list[Candidate]


def perplexity(
    model: AnyModel,
    sentences: Iterable[Sequence[str]],
    *,
    state: State = "carry",
    tokenizer: str | None = None,
    batch_tokens: int = BATCH_TOKENS,
    rows: int = ROWS,
    report: Callable[[Perplexity], None] = lambda so_far: None,
) -> Perplexity:
    """How well a model predicts sentences, given as text or as tokens; perplexity_of_files is that of files.

    The text may be of any length: memory does not grow with it. Sentences without a token are left out.

    state      "carry": the text is read as up to `rows` streams, in which a sentence begins from what the one
               before it left behind, as in training. A stream takes stretches of consecutive sentences; a text
               of no more than 64 sentences is one stream. "zero": each sentence by itself.
    tokenizer  for sentences that are given as text, instead of the model's own
    report     is called with the figures so far, after each sentence
    """
    reader = _Reader(model, batch_tokens, tokenizer)
    if rows < 1:
        raise UserError(f"rows: expected 1 or more, found {rows}")
    text = filter(None, reader.tokenized(sentences))
    so_far = None
    forward = backward = 0.0
    predictions = unknown = 0
    read = reader.read(text, state, window=batch_tokens * BATCHES_PER_WINDOW, rows=rows, stretch=STRETCH)
    for count, scores in enumerate(read, start=1):
        forward -= sum(token.forward or 0.0 for token in scores)
        backward -= sum(token.backward or 0.0 for token in scores)
        predictions += len(scores) - 1
        unknown += sum(token.unknown for token in scores)
        so_far = Perplexity(
            _exp(forward / predictions),
            _exp(backward / predictions),
            _exp((forward + backward) / (2 * predictions)),
            predictions,
            count,
            unknown / (predictions - count),
        )
        report(so_far)
    if so_far is None:
        raise UserError("expected text to predict, found no sentence with a token in it")
    return so_far


def score(
    model: AnyModel,
    sentences: Iterable[Sequence[str]],
    *,
    state: State = "zero",
    tokenizer: str | None = None,
    batch_tokens: int = BATCH_TOKENS,
) -> Iterator[Scores]:
    """For each sentence, in order, the scores of <S>, w1 .. wn and </S>; nothing for one without a token.

    The sum of a direction's numbers is the log probability of the sentence. "carry" reads one stream.
    """
    reader = _Reader(model, batch_tokens, tokenizer)
    # Small windows and steps: somebody waits for each sentence.
    return reader.read(reader.tokenized(sentences), state, window=batch_tokens, rows=1, stretch=1)


def fill(
    model: AnyModel,
    sentence: Sequence[str],
    *,
    top: int = 10,
    punctuation: bool = False,
    tokenizer: str | None = None,
) -> list[Candidate]:
    """The words that fit best in place of the one token `___`, by what is before it and what is after it together.

    p(word | both) ~ p(word | before) p(word | after) / p(word) ** 0.75. Each direction counts in how frequent the
    word is, so the product has it twice: that would put `,` and `the` first everywhere. p(word) is taken from
    the word's place in the vocabulary, which is in order of frequency.

    punctuation   tokens without a letter or digit are candidates too
    """
    reader = _Reader(model, BATCH_TOKENS, tokenizer)
    if top < 1:
        raise UserError(f"top: expected 1 or more, found {top}")
    [tokens] = reader.tokenized([sentence])
    if tokens.count(GAP) != 1:
        found = f"{tokens.count(GAP)} in {' '.join(tokens)!r}"
        raise UserError(f"expected one gap, written {GAP} as a token of its own, found {found}")
    gap = tokens.index(GAP)
    by_direction = reader.around(tokens[:gap], tokens[gap + 1 :])[:, len(SPECIALS) :]  # [2, V - 3]
    words = reader.vocabulary.words[len(SPECIALS) :]
    probability = _by_both(by_direction)
    if not punctuation:
        probability *= torch.tensor([any(letter.isalnum() for letter in word) for word in words])
        probability /= probability.sum().clamp(min=torch.finfo(torch.float64).tiny)
    # Stable: of equals, the more frequent word comes first.
    best = torch.sort(probability, descending=True, stable=True).indices[:top].tolist()
    return [
        Candidate(words[i], float(probability[i]), *by_direction[:, i].tolist()) for i in best if probability[i]
    ]


def expect(
    model: AnyModel, sentence: Sequence[str], *, top: int = 3, tokenizer: str | None = None
) -> list[Expected]:
    """For w1 .. wn of a sentence, what was expected in the place of each."""
    reader = _Reader(model, BATCH_TOKENS, tokenizer)
    if top < 1:
        raise UserError(f"top: expected 1 or more, found {top}")
    [tokens] = reader.tokenized([sentence])
    return reader.expected(tokens, top) if tokens else []


def _by_both(by_direction: Tensor) -> Tensor:  # log p [2, ..., V - 3] -> p [..., V - 3]
    alone = _log_frequency(by_direction.shape[-1]).to(by_direction)
    return torch.softmax(by_direction.sum(dim=0) - FREQUENCY * alone, dim=-1)


def _log_frequency(words: int) -> Tensor:  # [V - 3]
    """log p of each word by itself, but for a constant: log-uniform, as the sampled softmax takes it."""
    return torch.log1p(1 / torch.arange(1, words + 1, dtype=torch.float64)).log()


class _Reader:
    """A model with a softmax head, and the two ways of reading a text with it."""

    def __init__(self, model: AnyModel, batch_tokens: int, tokenizer: str | None = None) -> None:
        checkpoint = checkpoint_to_read(model)
        if checkpoint.head is None or checkpoint.vocabulary is None:
            raise UserError(
                "this model predicts no words: it has no softmax head (published ELMo files leave it out). Use a "
                "model that was pretrained here and kept its head; `elmo info MODEL` says what a model predicts"
            )
        if batch_tokens < 1:
            raise UserError(f"batch_tokens: expected 1 or more, found {batch_tokens}")
        self.bilm, self.mapper = checkpoint.bilm, checkpoint.mapper
        self.head: LanguageHead = checkpoint.head
        self.vocabulary: Vocabulary = checkpoint.vocabulary
        self.tokenizer = tokenizer_for(checkpoint.tokenizer, tokenizer)
        self.batch_tokens = batch_tokens

    def tokenized(self, sentences: Iterable[Sequence[str]]) -> Iterator[list[str]]:
        """Tokens as the model reads them; a sentence given as text is taken apart first."""
        if isinstance(sentences, str):
            raise UserError("expected a list of sentences, found one string: put it in a list")
        return by_number(self._tokens, sentences)

    def _tokens(self, sentence: Sequence[str]) -> list[str]:
        check_sentence(sentence)
        if isinstance(sentence, str):
            return self.tokenizer.tokens(sentence)
        return self.tokenizer.clean(list(sentence))

    def read(
        self, sentences: Iterator[list[str]], state: str, *, window: int, rows: int, stretch: int
    ) -> Iterator[Scores]:
        if state == "zero":
            return self._each(sentences, window)
        if state == "carry":
            return self._streams(sentences, rows, stretch)
        raise UserError(f'state: expected "carry" or "zero", found {state!r}')

    def _each(self, sentences: Iterator[list[str]], window: int) -> Iterator[Scores]:
        """Each sentence by itself. Sorted by length among `window` tokens; the scores are in order."""
        for together in windows(sentences, window):
            yield from self._batches(together)

    def _streams(self, sentences: Iterator[list[str]], rows: int, stretch: int) -> Iterator[Scores]:
        """As up to `rows` streams, each from zero on; the scores come in the order of reading.

        The text is taken in rounds of rows x stretch sentences, and in a round each stream reads a part of it, in
        order. Only the first sentence of such a part does not follow the one that its stream read before it.
        """
        held = self.bilm.zero_state(rows)
        while text := list(islice(sentences, rows * stretch)):
            for step in zip_longest(*_deal(text, stretch)):  # the longer parts come first: row k stays row k
                yield from self._batches([tokens for tokens in step if tokens is not None], held)

    def _batches(self, sentences: Sequence[list[str]], held: BiLMState | None = None) -> list[Scores]:
        """Scores in order. Sentence k begins from row k of `held` and leaves its own state there."""
        scores: list[Scores] = [[] for _ in sentences]
        filled = [k for k, tokens in enumerate(sentences) if tokens]  # an empty one is not read at all
        for batch in batches_by_length([len(sentences[k]) + 2 for k in filled], self.batch_tokens):
            rows = [filled[i] for i in batch]
            before = None if held is None else BiLMState(*(part[:, :, rows] for part in held))
            read, after = self._predict([sentences[k] for k in rows], before)
            for k, result in zip(rows, read):
                scores[k] = result
            if held is not None:
                held.hidden[:, :, rows], held.cell[:, :, rows] = after
        return scores

    @torch.inference_mode()
    def _predict(self, sentences: list[list[str]], before: BiLMState | None) -> tuple[list[Scores], BiLMState]:
        top, mask, after = self._top(sentences, before)
        forward, backward = top.chunk(2, dim=-1)  # [B, T, P]
        tokens = [[BEGIN, *sentence, END] for sentence in sentences]
        ids = [[self.vocabulary.id(token) for token in row] for row in tokens]
        pairs = mask[:, 1:]  # [B, T - 1] where a token has one before it: N neighbours
        before_it = torch.tensor([word for row in ids for word in row[:-1]])  # [N]
        after_it = torch.tensor([word for row in ids for word in row[1:]])  # [N]
        lengths = [len(row) - 1 for row in ids]
        by_row = zip(
            tokens,
            torch.split(self._log_p(forward[:, :-1][pairs], after_it), lengths),
            torch.split(self._log_p(backward[:, 1:][pairs], before_it), lengths),
            ids,
        )
        unknown = self.vocabulary.id(UNKNOWN)
        return [
            [
                TokenScore(token, left, right, word == unknown)
                for token, left, right, word in zip(row, [None, *f.tolist()], [*b.tolist(), None], words)
            ]
            for row, f, b, words in by_row
        ], after

    @torch.inference_mode()
    def around(self, left: list[str], right: list[str]) -> Tensor:
        """log p [2, V] of every word between them, by `left` forward and by `right` backward.

        They are read as two sentences: forward, left's own </S> is not seen yet at its last token, nor is
        right's <S> at its first one backward. What would stand between them is never read.
        """
        top, _, _ = self._top([left, right], None)  # [2, T, 2P]
        forward, backward = top.chunk(2, dim=-1)
        h = torch.stack([forward[0, len(left)], backward[1, 1]])
        return self._head_of(h).double().cpu()

    @torch.inference_mode()
    def expected(self, tokens: list[str], top: int) -> list[Expected]:
        """One reading is enough: forward, the token before a place has not seen what stands there, and backward,
        the token after it has not."""
        layer, _, _ = self._top([tokens], None)  # [1, T, 2P]
        forward, backward = layer[0].chunk(2, dim=-1)
        h = torch.stack([forward[:-2], backward[2:]])  # [2, n, P], what predicts w1 .. wn
        ids = [self.vocabulary.id(token) for token in tokens]
        words, unknown = self.vocabulary.words[len(SPECIALS) :], self.vocabulary.id(UNKNOWN)
        top = min(top, len(words))
        found = []
        for some in torch.split(torch.arange(len(tokens)), self._rows // 2):
            together = whole_rows(h[:, some].flatten(0, 1))
            log_p = self._head_of(together)[: 2 * len(some)].view(2, len(some), -1).cpu()  # [2, N, V]
            by_direction = log_p[..., len(SPECIALS) :]  # [2, N, V - 3]
            by_both = _by_both(by_direction)
            best = torch.stack([part.topk(top).indices for part in (*by_direction, by_both)])  # [3, N, top]
            for row, place in enumerate(some.tolist()):
                lists = []
                for by, chosen in enumerate(best[:, row].tolist()):
                    each = by_direction[:, row, chosen].double()  # [2, top]
                    probability = each[by].exp() if by < 2 else by_both[row, chosen]
                    numbers = zip(probability.tolist(), *each.tolist())
                    lists.append([Candidate(words[i], *three) for i, three in zip(chosen, numbers)])
                own = ids[place]
                left, right = log_p[:, row, own].double().tolist()
                score = TokenScore(tokens[place], left, right, own == unknown)
                known = own >= len(SPECIALS)
                found.append(Expected(score, float(by_both[row, own - len(SPECIALS)]) if known else None, *lists))
        return found

    def _top(self, sentences: list[list[str]], before: BiLMState | None) -> BiLMOutput:
        """As BiLM's output, with the top layer [B, T, 2P] alone; the model is left in the mode it was in."""
        ids = torch.from_numpy(pad(self.mapper, sentences, boundaries=True))
        training = self.bilm.training
        self.bilm.eval()
        try:
            output: BiLMOutput = self.bilm(ids.to(next(self.bilm.parameters()).device), before)
        finally:
            self.bilm.train(training)
        return output._replace(layers=output.layers[-1])

    def _log_p(self, h: Tensor, words: Tensor) -> Tensor:  # [N, P], [N] -> [N]
        chunks = [
            self._head_of(whole_rows(part))[torch.arange(len(part)), target].double().cpu()
            for part, target in zip(torch.split(h, self._rows), torch.split(words, self._rows))
        ]
        return torch.cat(chunks)

    @property
    def _rows(self) -> int:
        """Of logits that are held at a time."""
        return max(LOGIT_ROWS, LOGITS // len(self.vocabulary) // TOGETHER * TOGETHER)

    def _head_of(self, h: Tensor) -> Tensor:  # [N, P] -> [N, V]
        log_p: Tensor = self.head(h.to(self.head.weight))
        return log_p


def _deal(text: list[list[str]], stretch: int) -> list[list[list[str]]]:
    """Consecutive parts of nearly equal size, the longer ones first, none of more than `stretch` sentences."""
    count = -(-len(text) // stretch)
    size, more = divmod(len(text), count)
    starts = [part * size + min(part, more) for part in range(count + 1)]
    return [text[start:stop] for start, stop in pairwise(starts)]


def _exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf
