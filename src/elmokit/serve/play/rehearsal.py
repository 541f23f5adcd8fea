"""Once, before a reader comes: every room answers an example in each language.

What is read at first use (the bundled sentences, the vocabulary's x_k, the small tasks) is there then. It is kept
with the models, so a second rehearsal takes as long as the answers.
"""

from __future__ import annotations

from elmokit.serve.play.export import answer, own_examples, questions
from elmokit.serve.play.playground import Playground


def rehearse(playground: Playground) -> None:
    for example in {example.to_dict()["lang"]: example for example in own_examples()}.values():
        for room, body in questions(example):
            answer(playground, room, body)
