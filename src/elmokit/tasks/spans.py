"""Spans of tokens: BIO and BIOES tags, what may follow what, and conlleval's counts.

IOB1      I-x inside; B-x only where a span of the same type ends just before
BIO       B-x first, I-x after it
BIOES     B-x first, I-x inside, E-x last, S-x alone; BILOU writes L- and U- for E- and S-

One reading serves them all: conlleval's (Tjong Kim Sang 2000), which also says what a sequence means that keeps no
scheme: every such sequence has spans, none is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import reduce
from typing import NamedTuple, Protocol, TypeVar

from elmokit.errors import UserError
from elmokit.tasks.metrics import Counts

OUTSIDE = "O"
BILOU = {"L": "E", "U": "S"}


class Span(NamedTuple):
    start: int
    end: int  # behind the last token
    type: str


def split_tag(tag: str) -> tuple[str, str]:
    """The prefix, in BIOES, and the type: "I-creative-work" is ("I", "creative-work"), "O" is ("O", "")."""
    if tag == OUTSIDE:
        return OUTSIDE, ""
    prefix, _, kind = tag.partition("-")
    prefix = BILOU.get(prefix, prefix)
    if prefix not in ("B", "I", "E", "S") or not kind:
        raise UserError(f"expected O, or B-, I-, E-, S-, L- or U- and a type, found the tag {tag!r}")
    return prefix, kind


def spans_of(tags: Sequence[str]) -> list[Span]:
    """In order. A tag continues a span if it is I- or E-, of the type of the tag before, which ends none."""
    spans: list[Span] = []
    before, kind_before, start = OUTSIDE, "", 0
    for position, tag in enumerate([*tags, OUTSIDE]):
        prefix, kind = split_tag(tag)
        continues = prefix in ("I", "E") and before in ("B", "I") and kind == kind_before
        if not continues:
            if before != OUTSIDE:
                spans.append(Span(start, position, kind_before))
            start = position
        before, kind_before = prefix, kind
    return spans


def to_bio(spans: Iterable[Span], length: int) -> list[str]:
    return _tags(spans, length, ("B", "I", "I", "B"))


def to_bioes(spans: Iterable[Span], length: int) -> list[str]:
    return _tags(spans, length, ("B", "I", "E", "S"))


def _tags(spans: Iterable[Span], length: int, prefixes: tuple[str, str, str, str]) -> list[str]:
    """prefixes   of the first token, of those inside, of the last, and of one alone."""
    first, inside, last, alone = prefixes
    tags = [OUTSIDE] * length
    for start, end, kind in spans:
        if not 0 <= start < end <= length:
            raise UserError(f"expected a span within {length} tokens, found {start} to {end} ({kind})")
        if any(tag != OUTSIDE for tag in tags[start:end]):
            raise UserError(f"expected spans that do not overlap, found another within {start} to {end} ({kind})")
        tags[start:end] = [f"{inside}-{kind}"] * (end - start)
        tags[start] = f"{first}-{kind}"
        tags[end - 1] = f"{last if end - start > 1 else alone}-{kind}"
    return tags


def bio_tags(types: Iterable[str]) -> list[str]:
    """All tags of these types, O first."""
    return [OUTSIDE, *(f"{prefix}-{kind}" for kind in types for prefix in "BI")]


def bioes_tags(types: Iterable[str]) -> list[str]:
    """All tags of these types, O first."""
    return [OUTSIDE, *(f"{prefix}-{kind}" for kind in types for prefix in "BIES")]


def bio_may_follow(before: str | None, after: str | None) -> bool:
    """Whether two tags may stand one after the other; None: the sentence's beginning, or its end."""
    prefix, kind = split_tag(before or OUTSIDE)
    next_prefix, next_kind = split_tag(after or OUTSIDE)
    return next_prefix != "I" or (prefix in ("B", "I") and kind == next_kind)


def bioes_may_follow(before: str | None, after: str | None) -> bool:
    """Whether two tags may stand one after the other; None: the sentence's beginning, or its end."""
    prefix, kind = split_tag(before or OUTSIDE)
    next_prefix, next_kind = split_tag(after or OUTSIDE)
    opened, continues = prefix in ("B", "I"), next_prefix in ("I", "E")
    return opened == continues and (not opened or kind == next_kind)


class Typed(Protocol):
    """A span, or whatever else is correct as a whole or not at all: it has a type, and can be compared."""

    @property
    def type(self) -> str: ...

    def __hash__(self) -> int: ...


S = TypeVar("S", bound=Typed)


def score_spans(
    predicted: Iterable[Collection[S]], gold: Iterable[Collection[S]], types: Iterable[str] = ()
) -> dict[str, Counts]:
    """By type, sorted, as conlleval counts: correct are those with the gold start, end and type.

    A sentence's spans stand at the same place of both.

    types   that have a row though none may be predicted, nor gold.
    """
    correct, of_predicted, of_gold = Counter[str](), Counter[str](), Counter[str]()
    for ours, theirs in zip(predicted, gold, strict=True):
        correct.update(span.type for span in set(ours) & set(theirs))
        of_predicted.update(span.type for span in ours)
        of_gold.update(span.type for span in theirs)
    every = sorted({*types, *of_predicted, *of_gold})
    return {kind: Counts(correct[kind], of_predicted[kind], of_gold[kind]) for kind in every}


def overall(scores: Iterable[Counts]) -> Counts:
    """All types together: of the counts, not the mean of the scores."""
    return reduce(Counts.plus, scores, Counts())
