"""Room."""

from __future__ import annotations

from typing import Any

from elmokit.serve.play.playground import Playground
from elmokit.serve.play.rooms.start import Sentences

Request = Sentences


def answer(playground: Playground, request: Sentences) -> dict[str, Any]:
    return {"a": request.a}
