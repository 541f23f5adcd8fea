"""What the page asks first: the models there are, and the tokens of the two sentences."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from elmokit.serve.play.gallery import language_of
from elmokit.serve.play.playground import Playground

MOST = 400  # characters of a sentence: more would not be read on a page


class Sentences(BaseModel):
    """The two sentences of the page."""

    model_config = ConfigDict(extra="forbid")
    a: str = Field(max_length=MOST)
    b: str = Field(max_length=MOST)


Request = Sentences


def answer(playground: Playground, request: Sentences) -> dict[str, Any]:
    name, elmo = playground.model_for(request.a, request.b)
    tokens = {}
    for side, text in (("a", request.a), ("b", request.b)):
        words = elmo.tokens(text)
        tokens[side] = [
            {"text": word, "start": start, "end": end}
            for word, (start, end) in zip(words, elmo.tokenizer.spans(text))
        ]
    return {
        "model": name,
        "language": language_of(request.a, request.b),
        "layers": elmo.layers,
        "width": elmo.width,
        "predicts": elmo.predicts,
        "tokens": tokens,
    }
