"""Before the first request: every kind of call has been made once, and what fails there stops nothing."""

from __future__ import annotations

import pytest

from elmokit.errors import UserError
from elmokit.serve.offer import Offer
from elmokit.serve.warm_up import warm_up
from helpers.servers import make_world


class Task:
    def __init__(self, error=None):
        self.error, self.asked = error, []

    def annotate(self, texts):
        self.asked.append(texts)
        if self.error is not None:
            raise self.error


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("world"))


def test_models_heads_indexes_and_tasks_are_used_once(world, monkeypatch):
    from elmokit.analysis.contexts.index import ContextIndex
    from elmokit.serve import warm_up as module

    called = []
    for name in ("fill", "score"):
        own = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *a, own=own, name=name: called.append(name) or own(*a))
    nearest = ContextIndex.nearest
    monkeypatch.setattr(ContextIndex, "nearest", lambda *a: called.append("nearest") or nearest(*a))
    task = Task()
    warm_up(Offer({"small": world.elmo}, {"task": task}, {"small": world.index}))
    assert called == ["fill", "score", "nearest"]
    assert len(task.asked) == 1


@pytest.mark.parametrize("error", [UserError("expected a question"), KeyError("question")])
def test_a_task_that_wants_other_texts_stops_nothing(world, error):
    last = Task()
    warm_up(Offer({"small": world.elmo}, {"first": Task(error), "last": last}))
    assert len(last.asked) == 1
