"""The engineer with a CSV: the same options for every command that reads text, and what is said of the table."""

from __future__ import annotations

import io
import json
import sys
from types import SimpleNamespace

import pytest

from elmokit.embed.vectors import open_vectors
from elmokit.errors import UserError
from elmokit.pretrain.plan import pretrain
from helpers.language_models import MODEL

SAID = "reviews.csv: header, 3 columns; text from 'review'"


@pytest.fixture
def reviews(tmp_path):
    path = tmp_path / "reviews.csv"
    rows = "".join(f'{i},"Good, good film",5.0\n{i},"It was\nbad",1\n' for i in range(30))
    path.write_text("id,review,stars\n" + rows)
    return path


def test_embed_reads_the_column_and_says_so(elmo_command, model_folder, reviews):
    code, _, err = elmo_command("embed", reviews, "-o", "a.npz", "-m", model_folder)
    assert code == 0
    assert SAID in err
    first, second, *_ = open_vectors("a.npz")
    assert (first.text, second.text, second.line) == ("Good, good film", "It was bad", 2)
    code, _, err = elmo_command("embed", reviews, "-o", "b.npz", "-m", model_folder, "--text-column", "texts")
    assert code == 1
    assert "no column 'texts' in its header; known: id, review, stars" in err


def test_a_table_from_standard_input_needs_its_format(elmo_command, model_folder, reviews, monkeypatch):
    embed = ["embed", "-", "-o", "a.npz", "-m", model_folder, "--text-column", "2"]
    for format, expected in (([], (1, "--format csv, tsv or jsonl")), (["--format", "csv"], (0, SAID[12:]))):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(reviews.read_bytes()), isatty=bool))
        code, _, err = elmo_command(*embed, *format)
        assert code == expected[0], err
        assert expected[1] in err
    assert len(open_vectors("a.npz")) == 60


def test_pretraining_reads_tables_and_remembers_the_column(elmo_command, reviews):
    command = ["pretrain", reviews, "--out", "run", "--recipe", "tiny", "--tokens", "50", "--held-out", "0"]
    sizes = ("model.lstm.cells=8", "model.lstm.width=4", "train.rows=2", "train.steps=4")
    command += [part for size in sizes for part in ("--set", size)]
    code, _, err = elmo_command(*command, "--text-column", "review")
    assert code == 0, err
    assert SAID in err
    meta = json.loads((reviews.parent / "run/corpus/train/meta.json").read_text())
    assert (meta["columns"]["text"], meta["sentences"]) == (["review"], 60)
    types = (reviews.parent / "run/corpus/train/types.utf8").read_bytes()
    assert b"film" in types
    assert b"stars" not in types
    with pytest.raises(UserError, match=r"begun with other settings .*columns"):
        pretrain([reviews], out=reviews.parent / "run", text_column="stars")
    assert pretrain([reviews], out=reviews.parent / "run", text_column="review").finished


def test_perplexity_and_scores_of_tables(elmo_command, reviews):
    MODEL.save(reviews.parent / "words")
    for command in ("perplexity", "score"):
        code, out, err = elmo_command(command, reviews, "-m", "words", "--json")
        assert code == 0, err
        assert SAID in err
        assert "stars" not in out
    code, out, err = elmo_command("perplexity", reviews, "-m", "words", "--text-column", "3", "--json")
    assert code == 0, err
    assert json.loads(out)["sentences"] == 60


def test_probe_text_reads_csv(elmo_command, model_folder, reviews):
    columns = ["--text-column", "review", "--label-column", "stars"]
    code, out, err = elmo_command("probe", "text", reviews, reviews, "-m", model_folder, "--json", *columns)
    assert code == 0, err
    assert json.loads(out)["classes"] == 2
    assert f"{SAID}, labels from 'stars'" in err


def test_a_task_is_trained_measured_and_used_on_tables(elmo_command, reviews):
    columns = ["--text-column", "review", "--label-column", "stars"]
    quick = ["--set", "train.epochs=1", "--set", "cells=4"]
    train = ["task", "train", "sentiment", "--train", reviews, "--dev", reviews, "-m", "none", "-o", "run"]
    code, _, err = elmo_command(*train, *columns, *quick)
    assert code == 0, err
    assert f"{SAID}, labels from 'stars'" in err
    code, out, _ = elmo_command("task", "evaluate", "run", reviews, "--by-label", *columns)
    assert code == 0
    assert "found as" in out
    new = reviews.parent / "new.jsonl"
    new.write_text('{"says": "Good film"}\n{"says": ""}\n{"says": "It\\nwas"}\n')
    code, out, err = elmo_command("task", "predict", "run", new, "--text-column", "says")
    assert code == 0, err
    assert [line.split("\t")[1] for line in out.splitlines()] == ["Good film", "", "It was"]  # a line per row


def test_swapped_columns_are_one_short_line(elmo_command, tmp_path):
    path = tmp_path / "reviews.csv"
    path.write_text("review,stars\n" + "".join(f"review number {i} of them,{i % 5}\n" for i in range(3000)))
    swapped = ["--text-column", "stars", "--label-column", "review"]
    code, _, err = elmo_command(
        "task", "train", "sentiment", "--train", path, "--dev", path, "-m", "none", "-o", "x", *swapped
    )
    assert code == 1
    assert "are the columns of the texts and the labels swapped?" in err
    assert len(err) < 1000


def test_tasks_of_tokens_say_what_they_read(elmo_command, reviews):
    for name, files in (("ner", "CoNLL columns"), ("squad", "SQuAD's JSON"), ("pos", "CoNLL-U")):
        command = ["task", "train", name, "--train", reviews, "--dev", reviews, "-m", "none", "-o", "run"]
        code, _, err = elmo_command(*command, "--text-column", "review")
        assert code == 1
        assert f"{name} reads {files}" in err
