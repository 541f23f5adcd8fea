"""One callback for all that takes its time: every step is reported, the last one too."""

from __future__ import annotations

import json

from elmokit.analysis.probes.pairs import probe_pairs
from elmokit.embed.job import JobProgress
from elmokit.pretrain.progress import TrainingProgress
from elmokit.progress import Progress, silent, watched
from elmokit.tasks.progress import TaskProgress
from helpers.senses import Neighbours, write


def test_every_item_is_reported_when_the_next_is_asked_for():
    told = []
    items = watched("ab", 2, "reading", told.append)
    assert next(items) == "a"
    assert told == [Progress("reading", 0, 2)]
    assert list(items) == ["b"]
    assert told == [Progress("reading", done, 2) for done in (0, 1, 2)]
    assert list(watched([], 0, "nothing", silent)) == []


def test_the_last_of_several_is_reported_by_a_zip_too(tmp_path):
    senses = [{"gloss": gloss, "contexts": [f"{gloss} [x]", f"the {gloss} [x]"]} for gloss in ("a", "b")]
    path = write(tmp_path / "p.json", json.dumps([{"word": "x", "senses": senses}]))
    told = []
    probe_pairs(Neighbours(), path, on_progress=told.append)
    assert told == [Progress("embedding", done, 4) for done in range(5)]


def test_one_callback_serves_every_kind_of_work():
    """Whatever else an event knows, it has a stage and a fraction; None where there is nothing to count."""
    events = [
        Progress("fitting", 1, 4),
        JobProgress.at("embedding", 0.25, sentences=3, tokens=9),
        TaskProgress("epoch 1", 8, 32, loss=0.5),
        TrainingProgress.at("training", 0.25, tokens=7, step=1),
    ]
    assert [event.fraction for event in events] == [0.25] * 4
    assert all(isinstance(event, Progress) and event.stage for event in events)
    assert Progress("reading").fraction is None
    assert TrainingProgress.at("reading", None, tokens=7).fraction is None
    assert TrainingProgress.at("reading", 0.0).fraction == 0.0
