"""Parts of speech: the file, the scores, the tagger without its biLSTM."""

from __future__ import annotations

from pathlib import Path

import pytest

from elmokit.tasks.inputs import InputConfig, WordTable
from elmokit.tasks.model import TaskModel
from elmokit.tasks.pos.network import PosSettings
from elmokit.tasks.pos.tags import TaggedSentence
from elmokit.tasks.pos.task import PartsOfSpeech

FIXTURE = Path(__file__).parent / "tasks" / "pos.conllu"


def test_words_and_their_upos_are_read(tmp_path):
    path = tmp_path / "x.conllu"
    rest = "\t_" * 6
    path.write_text(f"# text\n1-2\tdu\t_\t_{rest}\n1\tde\tde\tADP{rest}\n2\tle\tle\tDET{rest}")
    assert PartsOfSpeech.read(path) == [TaggedSentence(["de", "le"], ["ADP", "DET"], "x.conllu:3")]


@pytest.mark.parametrize("fields", [("1", "", "x", "X"), ("1", "x", "x", "_"), ("1", "x", "x", "")])
def test_a_word_without_its_tag_is_refused_with_the_line(tmp_path, fields):
    path = tmp_path / "x.conllu"
    path.write_text("\n" + "\t".join([*fields, *"______"]) + "\n")
    with pytest.raises(ValueError, match=r"x\.conllu, line 2: expected a word and its UPOS, found an empty field"):
        PartsOfSpeech.read(path)


def test_scores_and_what_a_tag_is_taken_for():
    task = PartsOfSpeech(PosSettings(), {"tags": ["ADJ", "NOUN", "VERB"]})
    seen = TaggedSentence(list("abcd"), ["NOUN", "NOUN", "VERB", "NOUN"], "")
    examples = [seen, TaggedSentence(["e"], ["X"], "")]
    predictions = [["NOUN", "VERB", "VERB", "ADJ"], ["VERB"]]
    assert task.metrics(predictions, examples) == {"accuracy": 40.0}
    adjective, noun, verb = task.by_label(predictions, examples)
    assert (adjective["precision"], adjective["recall"], adjective["count"]) == (0.0, 0.0, 0)
    assert (noun["precision"], noun["count"], noun["taken for"]) == (100.0, 3, ["ADJ", "VERB"])
    assert noun["recall"] == pytest.approx(100 / 3)
    assert verb["precision"] == pytest.approx(100 / 3)  # X, which training has not seen, was taken for one
    assert verb["taken for"] == []


def test_a_tag_that_training_has_not_seen():
    task = PartsOfSpeech(PosSettings(), {"tags": ["NOUN"]})
    strange = [TaggedSentence(["a", "b"], ["NOUN", "X"], "dev:7"), TaggedSentence(["c"], ["NOUN"], "dev:9")]
    with pytest.raises(ValueError, match="dev:7: tag 'X' is not among those of training: NOUN"):
        task.check(strange)
    assert task.collate(strange)["tags"].tolist() == [[0, -100], [0, -100]]


def test_without_cells_there_is_the_softmax_alone():
    examples = PartsOfSpeech.read(FIXTURE)
    task = PartsOfSpeech(PosSettings(cells=0), PartsOfSpeech.labels_of(examples))
    model = TaskModel.fresh(task, WordTable(["the"]), None, InputConfig())
    assert model.network.encoder is None
    assert [len(tags) for tags in model.predict(examples)] == [len(example.tokens) for example in examples]


def test_it_is_shown_with_its_tags():
    example = PartsOfSpeech.example("dogs bark", str.split, "line 1")
    assert PartsOfSpeech.show(example, ["NOUN", "VERB"]) == "dogs/NOUN bark/VERB"


@pytest.mark.parametrize("wrong", [{"cells": -1}, {"layers": 0}, {"dropout": 1.0}])
def test_settings_that_cannot_be_are_refused(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))}: expected"):
        PosSettings(**wrong)
