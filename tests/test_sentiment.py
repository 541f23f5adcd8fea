"""Sentiment: three formats, phrases for training, two classes, and a network that padding cannot move."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest
import torch

from elmokit.config import build, dump
from elmokit.tasks.inputs import InputConfig, WordTable
from elmokit.tasks.model import TaskModel
from elmokit.tasks.sentiment.network import Maxout, SentimentSettings
from elmokit.tasks.sentiment.reviews import Review
from elmokit.tasks.sentiment.task import Sentiment
from elmokit.tasks.sentiment.trees import SCALE
from elmokit.tasks.task import IGNORED
from elmokit.text.columns import Columns
from helpers.models import make_elmo

FIXTURE = Path(__file__).parent / "tasks" / "sentiment.txt"
TINY = {"feedforward": 6, "cells": 5, "maxout": (8, 4), "pieces": 2}


def write(folder: Path, text: str) -> Path:
    path = folder / "data.txt"
    path.write_text(text, encoding="utf-8")
    return path


def make_task(examples, **settings) -> Sentiment:
    return Sentiment(SentimentSettings(**{**TINY, **settings}), Sentiment.labels_of(examples))


def test_trees_are_read_as_whole_sentences():
    examples = Sentiment.read(FIXTURE)
    assert examples[0].tokens == ["It", "'s", "good", "."]
    assert [example.label for example in examples[:3]] == ["positive", "very negative", "neutral"]
    assert examples[3].where == "sentiment.txt:4"
    assert "moving\\/funny" in examples[3].tokens
    assert Sentiment.labels_of(examples) == {"labels": list(SCALE)}
    assert Sentiment.labels_of(examples[:1]) == {"labels": list(SCALE)}  # its phrases may have any


def test_naver_reviews_are_read(tmp_path):
    path = tmp_path / "ratings.txt.xz"
    rows = "id\tdocument\tlabel\n1\t와우 이건.. 진짜 대박이다\t1\n2\t\t0\n"
    path.write_bytes(lzma.compress(rows.encode()))
    first, second = Sentiment.read(path)
    assert (first.tokens, first.label) == (["와우", "이건", "..", "진짜", "대박이다"], "positive")
    assert (second.tokens, second.label, second.where) == ([], "negative", "ratings.txt.xz:3")


def test_labels_of_plain_lines_are_their_own(tmp_path):
    examples = Sentiment.read(write(tmp_path, "zeal\tIt's good.\n\nnegative\tNo.\nAnger\tWhat?\tNow?\n"))
    assert [example.label for example in examples] == ["zeal", "negative", "Anger"]
    assert examples[0].tokens == ["It", "'s", "good", "."]
    assert examples[2].tokens == ["What", "?", "Now", "?"]
    assert Sentiment.labels_of(examples) == {"labels": ["negative", "Anger", "zeal"]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(3 (2 It) (4 good))\n(3 (2 It) (4 good)\n", "data.txt, line 2: expected .* at the end of the tree"),
        ("(3 (2 It) (7 good))\n", "data.txt, line 1: expected a label of 0 to 4, found '7'"),
        ("(3 (2 It) (4 good))\n3\tGood\n", "data.txt, line 2: expected a tree"),
        ("id\tdocument\tlabel\n1\tgood\n", "data.txt, line 2: expected id, document and label .* found 2 columns"),
        ("id\tdocument\tlabel\n1\tgood\t3\n", "data.txt, line 2: expected a label, 0 or 1, found '3'"),
        ("id\tdocument\tlabel\n1\tgood\t\n", "data.txt, line 2: expected a label, 0 or 1, found ''"),
        ("id\tdocument\tlabel\n", "data.txt: expected reviews after the header"),
        ("good\tFine .\nFine .\n", "data.txt, line 2: expected label TAB text"),
        ("good\tFine .\n \tFine .\n", "data.txt, line 2: expected label TAB text"),
        ("\n\n", "empty"),
    ],
)
def test_what_is_wrong_is_said_with_file_and_line(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        Sentiment.read(write(tmp_path, text))


def test_phrases_are_distinct_and_no_sentences(tmp_path):
    examples = Sentiment.read(write(tmp_path, "(3 (2 It) (4 (2 's) (4 good)))\n(4 good)\n(1 (2 It) (1 's))\n"))
    found = [(" ".join(e.tokens), e.label, e.where) for e in Sentiment.phrases(examples)]
    assert found == [
        ("It", "neutral", "data.txt:1"),
        ("'s", "neutral", "data.txt:1"),
        ("'s good", "very positive", "data.txt:1"),
        ("'s", "negative", "data.txt:3"),  # another label: both count
    ]
    assert [e.tokens for e in Sentiment.phrases(examples, least=2)] == [["'s", "good"]]


def test_phrases_are_for_training_and_as_many_as_asked_for():
    examples = Sentiment.read(FIXTURE)
    every = Sentiment.phrases(examples)
    assert make_task(examples, phrase_tokens=0).training_examples(examples) == examples
    assert make_task(examples, phrase_tokens=1).training_examples(examples) == examples + every
    some = make_task(examples, phrase_tokens=1, phrases=7).training_examples(examples)
    assert some == make_task(examples, phrase_tokens=1, phrases=7).training_examples(examples)
    assert len(some) == len(examples) + 7
    assert all(phrase in every for phrase in some[len(examples) :])
    assert make_task(examples, phrase_tokens=1).measured_examples(examples) == examples


def test_two_classes_leave_out_the_neutral():
    examples = Sentiment.read(FIXTURE)
    task = make_task(examples, classes=2, phrase_tokens=1)
    assert task.labels == {"labels": ["negative", "positive"]}
    assert Sentiment(task.settings, task.labels).labels == task.labels  # as a saved model is built again
    assert len(task.measured_examples(examples)) == 8
    trained = task.training_examples(examples)
    assert all(example.label != "neutral" for example in trained)
    assert len(trained) > 8
    task.check(examples)
    # A neutral one that is there all the same has no answer: neither the loss nor the score counts it.
    assert task.collate(examples[:3])["labels"].tolist() == [1, 0, IGNORED]
    assert task.metrics(["positive", "positive", "positive"], examples[:3]) == {"accuracy": 50.0}


def test_two_classes_need_labels_of_the_scale(tmp_path):
    examples = Sentiment.read(write(tmp_path, "0\tBad\n2\tSo\n4\tGood\n"))
    with pytest.raises(ValueError, match=r"classes = 2: expected labels very negative, .* found 0, 2, 4"):
        make_task(examples, classes=2)
    reviews = Sentiment.read(write(tmp_path, "id\tdocument\tlabel\n1\tgood\t1\n2\tbad\t0\n"))
    assert (
        make_task(reviews, classes=2).labels == make_task(reviews).labels == {"labels": ["negative", "positive"]}
    )


@pytest.mark.parametrize(
    "wrong", [{"classes": 3}, {"phrase_tokens": -1}, {"phrases": -1}, {"cells": 0}, {"dropout": 1.0}]
)
def test_settings_are_checked(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        SentimentSettings(**wrong)


def test_settings_survive_being_written():
    for settings, _ in Sentiment.recipes.values():
        assert build(SentimentSettings, dump(settings)) == settings


def test_an_unknown_label_is_refused_with_its_place():
    examples = Sentiment.read(FIXTURE)
    with pytest.raises(ValueError, match=r"dev\.txt:3: label 'odd' is not among those of training"):
        make_task(examples).check([Review(["so"], "odd", "dev.txt:3")])


def test_the_table_shows_what_a_label_is_taken_for():
    examples = [Review(["x"], label, "") for label in ("good", "good", "good", "bad", "so")]
    rows = make_task(examples).by_label(["good", "bad", "bad", "bad", "bad"], examples)
    bad, good, so = rows
    assert (bad["precision"], bad["recall"], bad["count"], bad["taken for"]) == (25.0, 100.0, 1, [])
    assert good["recall"] == pytest.approx(100 / 3)
    assert good["taken for"] == so["taken for"] == ["bad"]
    assert good["found as"] == {"bad": 2, "good": 1, "so": 0}
    assert (so["precision"], so["recall"]) == (0.0, 0.0)


def test_a_label_that_training_has_not_seen_counts_against_precision():
    examples = [Review(["x"], label, "") for label in ("good", "bad", "odd")]
    bad, good = make_task(examples[:2]).by_label(["good", "bad", "good"], examples)
    assert (good["precision"], good["recall"], good["count"]) == (50.0, 100.0, 1)
    assert (bad["precision"], bad["recall"]) == (100.0, 100.0)


@pytest.mark.parametrize("place", ["input", "both"])
def test_a_sentence_without_a_token_has_a_score_and_gradients(place):
    examples = [Review([], "good", "a"), Review(["so", "good"], "good", "b"), Review([], "bad", "c")]
    task = make_task(examples)
    model = TaskModel.fresh(task, WordTable(["so", "good"]), make_elmo(), InputConfig(place=place))
    for chosen in (examples, examples[:1]):  # beside another, and alone: T is 0
        batch = model.batch(chosen)
        output = model.network(batch)
        model.network.loss(output, batch).backward()
        assert output.isfinite().all()
    assert all(p.grad.isfinite().all() for p in model.network.parameters() if p.grad is not None)
    assert model.predict(examples)[0] == model.predict(examples[:1])[0]


def test_scores_do_not_depend_on_the_batch_even_in_training():
    examples = Sentiment.read(FIXTURE)
    task = make_task(examples, dropout=0.0)
    model = TaskModel.fresh(task, WordTable(["good"]), None, InputConfig(word_dropout=0.0))
    model.network.train()
    together = model.network(model.batch(examples))
    alone = torch.cat([model.network(model.batch([example])) for example in examples])
    assert torch.allclose(together, alone, atol=1e-5)
    tables = model.network.probabilities(together)
    assert [max(table, key=table.get) for table in tables] == model.network.decode(together, model.batch(examples))
    assert all(sum(table.values()) == pytest.approx(1.0, abs=1e-5) for table in tables)


def test_a_batch_of_neutral_ones_alone_has_no_loss():
    examples = Sentiment.read(FIXTURE)
    task = make_task(examples, classes=2)
    model = TaskModel.fresh(task, WordTable(["good"]), None, InputConfig())
    batch = model.batch([examples[2]])
    assert float(model.network.loss(model.network(batch), batch).detach()) == 0.0


def test_maxout_takes_the_greatest_piece():
    layer = Maxout(1, 2, 2)
    with torch.no_grad():
        layer.linear.weight[:] = torch.tensor([[1.0], [-1.0], [2.0], [3.0]])
        layer.linear.bias.zero_()
    assert layer(torch.tensor([[2.0], [-2.0]])).tolist() == [[2.0, 6.0], [2.0, -4.0]]


def test_tables_are_read_by_their_columns(tmp_path):
    path = tmp_path / "reviews.csv"
    path.write_text('id,review,stars\n1,"Good, it\'s\ngood",5\n2,,1.0\n')
    for examples in (Sentiment.read(path), Sentiment.read_table(path, Columns(("review",), "stars"))):
        assert [(example.tokens, example.label) for example in examples] == [
            (["Good", ",", "it", "'s", "good"], "5"),
            ([], "1"),
        ]
        assert examples[1].where == "reviews.csv:4"
    path = tmp_path / "glue.tsv"
    path.write_text("sentence\tlabel\nso so\t1\n")
    assert [(example.tokens, example.label) for example in Sentiment.read(path)] == [(["so", "so"], "1")]


def test_an_error_about_the_labels_of_a_swapped_column_is_short(tmp_path):
    """5,000 texts where labels belong: once, an error of 300,000 characters."""
    path = write(tmp_path, "".join(f"{i} is a text of a length as in reviews\t{i % 2}\n" for i in range(5000)))
    with pytest.raises(ValueError, match=r"5,000 different labels in 5,000 examples .* swapped\?") as error:
        Sentiment.read(path)
    assert len(str(error.value)) < 400
    many = [Review(["x"], f"label {i}", "") for i in range(5000)]
    with pytest.raises(ValueError, match=r"dev:1: .* and 4,990 more: are its columns swapped\?$") as error:
        make_task(many).check([Review(["x"], "a text " * 10_000, "dev:1")])
    assert len(str(error.value)) < 400
    with pytest.raises(ValueError, match="and 4,990 more") as error:
        make_task(many, classes=2)
    assert len(str(error.value)) < 400
