"""Two readers: what the forward and the backward language model expected in place of every word of a sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from elmokit.errors import UserError
from elmokit.pretrain.perplexity import Candidate, expect
from elmokit.serve.play.playground import Playground
from elmokit.serve.play.rooms.start import Sentences

TOP = 5


class Request(Sentences):
    """Two sentences, of which one is read; the language of both says by which model."""

    side: Literal["a", "b"] = "a"


def questions(a: str, b: str, wa: int, wb: int) -> list[dict[str, Any]]:
    """What the page asks, by either sentence: for an export."""
    return [{"a": a, "b": b, "side": side} for side in ("a", "b")]


def answer(playground: Playground, request: Request) -> dict[str, Any]:
    name, elmo = playground.model_for(request.a, request.b)
    tokens = elmo.tokens(request.a if request.side == "a" else request.b)
    if not tokens:
        raise UserError("the sentence has no words: there is nothing to expect in it")
    if not elmo.predicts:
        return {"model": name, "predicts": False}
    words: list[dict[str, Any]] = []
    for expected in expect(elmo, tokens, top=TOP):
        score = expected.score
        assert score.forward is not None  # as of every word: only boundaries have none
        assert score.backward is not None
        words.append(
            {
                "text": score.token,
                "unknown": score.unknown,
                "forward": _reader(score.forward, expected.forward),
                "backward": _reader(score.backward, expected.backward),
                "both": {"p": expected.probability, "expects": _listed(expected.both)},
            }
        )
    return {
        "model": name,
        "predicts": True,
        "words": words,
        "bits": {by: sum(word[by]["bits"] for word in words) for by in ("forward", "backward")},
    }


def _reader(log_p: float, candidates: Sequence[Candidate]) -> dict[str, Any]:
    """Surprise is counted in bits: 1 for what was as likely as heads of a coin."""
    return {"p": math.exp(log_p), "bits": -log_p / math.log(2), "expects": _listed(candidates)}


def _listed(candidates: Sequence[Candidate]) -> list[dict[str, Any]]:
    return [{"word": candidate.word, "p": candidate.probability} for candidate in candidates]
