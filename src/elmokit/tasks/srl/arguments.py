"""Arguments of a predicate, as CoNLL-2005's srl-eval.pl counts them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from elmokit.tasks.metrics import Counts
from elmokit.tasks.spans import Span, score_spans

VERB, CONTINUED = "V", "C-"


class Argument(NamedTuple):
    type: str  # its role
    pieces: tuple[tuple[int, int], ...]  # more than one where it is discontinuous


def arguments_of(spans: Sequence[Span]) -> set[Argument]:
    """
    - C-X is a piece of the last X before it, R-X or ARG1-DSP is a role as any other: X with its pieces is one
      argument of role X, right only where every piece is.
    - A C-X without an X before it is an X itself, and may be continued in its turn.
    - V does not count, nor does C-V, which is a piece of it.
    """
    pieces: list[tuple[str, list[tuple[int, int]]]] = []
    last: dict[str, list[tuple[int, int]]] = {}
    for start, end, role in sorted(spans, key=lambda span: span.start):
        whole = role.removeprefix(CONTINUED)
        if role != whole and whole in last:
            last[whole].append((start, end))
        else:
            last[whole] = [(start, end)]
            pieces.append((whole, last[whole]))
    return {Argument(role, tuple(parts)) for role, parts in pieces if role != VERB}


def score_arguments(predicted: Iterable[Sequence[Span]], gold: Iterable[Sequence[Span]]) -> dict[str, Counts]:
    """By role, over all propositions. A role that no model can say counts as missed."""
    return score_spans(map(arguments_of, predicted), map(arguments_of, gold))
