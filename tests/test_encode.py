"""Elmo for people with a table: one vector per text, cosines, missing values by name."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from elmokit import Elmo, UserError, score
from helpers.models import SENTENCES, make_elmo

NAN = float("nan")


class Column:
    """As much of a pandas Series as matters: iterated by value, indexed by labels that are not places."""

    def __init__(self, texts):
        self._texts = dict(zip(range(100, 100 + len(texts)), texts))

    def __len__(self):
        return len(self._texts)

    def __iter__(self):
        return iter(self._texts.values())

    def __getitem__(self, label):
        return self._texts[label]


@pytest.mark.parametrize(
    "kind", [list, tuple, np.array, lambda texts: np.array(texts, dtype=object), Column, iter]
)
def test_encode_gives_one_matrix_in_the_order_of_the_texts(elmo, kind):
    matrix = elmo.encode(kind(SENTENCES))
    assert matrix.shape == (len(SENTENCES), elmo.width)
    assert matrix.dtype == np.float32
    for row, layers in zip(matrix, elmo.embed(SENTENCES)):
        tokens = layers.mean(axis=0)
        np.testing.assert_allclose(row, tokens.mean(axis=0) if len(tokens) else 0, atol=1e-6)


def test_encode_gives_one_vector_for_one_string_and_no_rows_for_no_texts(elmo):
    np.testing.assert_array_equal(elmo.encode(SENTENCES[0]), elmo.encode(SENTENCES[:1])[0])
    assert elmo.encode([]).shape == (0, elmo.width)
    assert elmo.encode([SENTENCES[0].split()]).shape == (1, elmo.width)


def test_encode_takes_a_layer_a_pooling_and_unit_length(elmo):
    top = elmo.encode(SENTENCES, layers=-1, pooling="max")
    np.testing.assert_array_equal(top, elmo.embed(SENTENCES, layers=-1, pooling="max", matrix=True))
    lengths = np.linalg.norm(elmo.encode(SENTENCES, normalize=True), axis=1)
    np.testing.assert_allclose(lengths, [text != "" for text in SENTENCES], atol=1e-6)


def test_batch_size_bounds_the_batches_and_changes_no_vector(elmo, monkeypatch):
    expected, sizes = elmo.encode(SENTENCES * 3), []
    run = elmo.embed_batch
    monkeypatch.setattr(
        elmo, "embed_batch", lambda batch, *others: sizes.append(len(batch)) or run(batch, *others)
    )
    np.testing.assert_allclose(elmo.encode(SENTENCES * 3, batch_size=2), expected, atol=1e-6)
    assert max(sizes) == 2
    assert sum(sizes) == 3 * len(SENTENCES)


def test_a_progress_bar_is_shown_on_standard_error_if_asked_for(elmo, capsys):
    elmo.encode(SENTENCES)
    assert capsys.readouterr() == ("", "")
    elmo.encode(SENTENCES, show_progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert f"{len(SENTENCES)}/{len(SENTENCES)}" in err


def test_similarity_is_the_cosine_of_texts_and_of_matrices(elmo):
    matrix = elmo.encode(SENTENCES).astype(np.float64)
    lengths = np.linalg.norm(matrix, axis=1)
    cosines = matrix @ matrix.T / np.maximum(np.outer(lengths, lengths), 1e-12)
    for a in (SENTENCES, Column(SENTENCES), matrix, torch.from_numpy(matrix), list(matrix)):
        np.testing.assert_allclose(elmo.similarity(a, SENTENCES), cosines, atol=1e-5)
    assert elmo.similarity(SENTENCES[0], SENTENCES).shape == (1, len(SENTENCES))
    assert elmo.similarity([], SENTENCES).shape == (0, len(SENTENCES))
    first = elmo.similarity(SENTENCES[0], SENTENCES, layers=0)
    assert np.abs(first - elmo.similarity(SENTENCES[0], SENTENCES, layers=2)).max() > 1e-3
    with pytest.raises(UserError, match="one width, found 16 and 3"):
        elmo.similarity(SENTENCES, np.ones((2, 3)))
    with pytest.raises(UserError, match="a matrix with a vector in each row"):
        elmo.similarity(np.ones((2, 3, 16)), SENTENCES)


def test_pooled_embed_can_give_one_matrix(elmo):
    arrays = elmo.embed(SENTENCES, pooling="mean")
    np.testing.assert_array_equal(elmo.embed(SENTENCES, pooling="mean", matrix=True), np.stack(arrays))
    assert elmo.embed([], pooling="max", matrix=True).shape == (0, 3, 16)
    assert elmo.embed([], pooling="max", layers=1, matrix=True, dtype="float16").shape == (0, 16)
    with pytest.raises(UserError, match="choose pooling"):
        elmo.embed(SENTENCES, matrix=True)


MISSING = [(None, "None"), (NAN, "nan"), (np.nan, "nan"), (5, "5"), (True, "True"), (b"text", "b'text'")]


@pytest.mark.parametrize(("wrong", "shown"), MISSING)
def test_what_is_no_text_is_named_with_its_index(elmo, wrong, shown):
    texts = ["He sat .", "", wrong, "Stop"]
    calls = [elmo.embed, elmo.encode, elmo.stream, elmo.ids, lambda given: list(elmo.stream(iter(given)))]
    for call in (*calls, lambda given: elmo.embed(Column(given)), lambda given: elmo.similarity(given, "a")):
        with pytest.raises(UserError, match=f"sentence 2: expected text or a list of tokens, found {shown} "):
            call(texts)
    with pytest.raises(UserError, match=f"sentence 1: expected tokens that are text, found {shown} .* as token 0"):
        elmo.encode([["a"], [wrong, "b"]])


def test_a_missing_value_says_what_to_do(elmo):
    with pytest.raises(UserError, match="a missing value; leave it out, or put ''"):
        elmo.encode(["a", NAN])


def test_missing_sentences_are_named_before_anything_is_computed(elmo, monkeypatch):
    monkeypatch.setattr(elmo, "embed_batch", lambda *_: pytest.fail("computed"))
    for call in (elmo.encode, elmo.embed, elmo.stream):
        with pytest.raises(UserError, match="sentence 50"):
            call([*["He sat ."] * 50, None])


def test_score_names_what_is_no_text_with_its_index():
    with pytest.raises(UserError, match="sentence 1: expected text or a list of tokens, found nan"):
        list(score("en-small", ["He sat on the bank.", NAN]))


class Table(Column):
    columns = ("review",)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (Table(["a"]), "a table: give one of its columns"),
        ({"a": "text"}, "a dict: give its values"),
        (5, r"found 5 \(int\)"),
        (None, r"found None \(NoneType\)"),
    ],
)
def test_what_holds_no_list_of_texts_is_said(elmo, texts, message):
    for call in (elmo.embed, elmo.stream, elmo.encode):
        with pytest.raises(UserError, match=message):
            call(texts)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layers": "all"}, "one vector: expected layers="),
        ({"pooling": None}, "one vector: expected pooling="),
        ({"pooling": "sum"}, "pooling: expected"),
        ({"batch_size": 0}, "batch_size: expected 1 or more, found 0"),
    ],
)
def test_what_encode_cannot_do_is_said(elmo, options, message):
    with pytest.raises(UserError, match=message):
        elmo.encode(["a"], **options)


def test_a_useful_repr_says_what_the_model_is_and_what_to_call():
    shown = repr(Elmo.from_pretrained("en-small", weights="float16", state="carry"))
    for part in ("en-small", "3 layers", "tokenizer words", "float16", "carry", "cpu", ".encode(", ".embed("):
        assert part in shown
    assert "tiny, untrained" in repr(Elmo.from_recipe("tiny"))
    assert "in memory" in repr(make_elmo())


def test_calling_elmo_with_a_name_says_what_to_call(tmp_path):
    with pytest.raises(UserError, match=r"Elmo.from_pretrained\('en-small'\)"):
        Elmo("en-small")
    with pytest.raises(UserError, match=r"Elmo.from_pretrained\('.*model'\)"):
        Elmo(tmp_path / "model")
    with pytest.raises(UserError, match="expected a Checkpoint, found BiLM"):
        Elmo(make_elmo().bilm)


def test_the_walk_of_an_engineer_with_a_csv_of_reviews(tmp_path):
    """Its Python half; its commands are tested with those."""
    script = Path(__file__).parent.parent / "examples" / "reviews.py"
    command = [sys.executable, script, "--out", tmp_path, "--no-commands"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, encoding="utf-8").stdout
    assert "48 reviews: a matrix (48, 512)" in shown
    assert "nearest to: It broke after a few days." in shown
    assert "good or bad: " in shown
    with (tmp_path / "train.csv").open(newline="", encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == 42
