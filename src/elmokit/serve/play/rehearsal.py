"""Once, before or while the first reader comes: every room answers an example in each language.

What is read at first use (the bundled sentences, the vocabulary's x_k, the small tasks) is there then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from elmokit.serve.play.export import answer, own_examples, questions
from elmokit.serve.play.playground import Playground


def rehearsal(playground: Playground) -> Iterator[Callable[[], object]]:
    """Calls, for the thread that computes."""
    for example in {example.to_dict()["lang"]: example for example in own_examples()}.values():
        for room, body in questions(example):
            yield partial(answer, playground, room, body)
