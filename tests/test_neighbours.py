from __future__ import annotations

import csv
import io
import json
import lzma

import numpy as np
import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from elmokit.analysis.contexts.marked import MarkedSentence, nearest, read_marked
from elmokit.analysis.contexts.neighbours import (
    corpus_neighbours,
    index_neighbours,
    neighbours,
    static_neighbours,
)
from elmokit.cli.neighbours import neighbours as neighbours_command
from elmokit.cli.shared.contexts import highlighted
from elmokit.progress import Progress

LINES = [
    "He sat on the bank of the river .",
    "She works at a bank .",
    "They made a play on the grounder .",
    "",
    "12 , 34 .",
    "A play by Shaw is on tonight .",
    "배를 타고 강을 건넜다 .",
    "They made a play on the grounder .",
]
VECTORS = """the 0.5 0.5 0.5
play 1 0 0.1
game 0.9 0.1 0.1
shaw 0 1 0
stage 0.6 0.6 0
"""


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n".join(LINES), encoding="utf-8")
    return path


@pytest.fixture
def vectors(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text(VECTORS)
    return path


def test_the_nearest_of_a_corpus_by_layer(elmo, corpus):
    query = read_marked(elmo, "We saw a [play] there")
    result = corpus_neighbours(elmo, query, [corpus], most=3)
    sentences = [line.split() for line in dict.fromkeys(LINES)]
    for layer, contexts in zip(result.which_layers, result.contexts):
        expected = nearest(elmo, query, sentences, layer=layer, most=3)
        np.testing.assert_allclose([c.cosine for c in contexts], [e.cosine for e in expected], atol=1e-5)
        assert [c.sentence.tokens for c in contexts] == [e.sentence.tokens for e in expected]
    assert result.which_layers == (0, 1, 2)
    assert result.contexts[0][0].sentence.word == "play"  # without context, the word itself
    assert result.static is None


def test_its_own_sentence_is_left_out_however_often_it_is_there(elmo, corpus):
    query = read_marked(elmo, "They made a [play] on the grounder .")
    result = corpus_neighbours(elmo, query, [corpus], most=10, which_layers=[2])
    assert query.tokens not in [near.sentence.tokens for near in result.contexts[0]]
    assert len(result.contexts[0]) == 4


def test_an_index_answers_as_the_corpus_does(tmp_path, elmo, corpus):
    pytest.importorskip("lancedb")
    from elmokit.analysis.contexts.index import ContextIndex

    index = ContextIndex.build(elmo, [corpus], tmp_path / "index", which_layers=[1, 2])
    query = read_marked(elmo, "by the [bank] of it")
    direct = corpus_neighbours(elmo, query, [corpus], which_layers=[1, 2], most=4)
    stored = index_neighbours(elmo, query, index, most=4)
    assert (stored.which_layers, stored.compared) == (direct.which_layers, direct.compared)
    for ours, theirs in zip(stored.contexts, direct.contexts):
        assert [near.sentence for near in ours] == [near.sentence for near in theirs]
        np.testing.assert_allclose([near.cosine for near in ours], [near.cosine for near in theirs], atol=1e-5)


def test_one_call_looks_where_it_is_told(tmp_path, elmo, model_folder, corpus, vectors):
    sentence, told = "We saw a [play] there", []
    query = read_marked(elmo, sentence)
    direct = corpus_neighbours(elmo, query, [corpus], vectors=vectors, limit=20)
    options = {"vectors": vectors, "limit": 20, "on_progress": told.append}
    assert neighbours(model_folder, sentence, corpus=[corpus], **options) == direct
    assert told[-1] == Progress("embedding", 20, 20)
    for where in ({}, {"corpus": [corpus], "index": tmp_path}):
        with pytest.raises(ValueError, match="either a corpus"):
            neighbours(elmo, sentence, **where)
    with pytest.raises(ValueError, match="an index has its own"):
        neighbours(elmo, sentence, index=tmp_path, split=True)
    pytest.importorskip("lancedb")
    from elmokit.analysis.contexts.index import ContextIndex

    index = ContextIndex.build(elmo, [corpus], tmp_path / "index")
    expected = index_neighbours(elmo, query, index, most=2, which_layers=[1])
    assert neighbours(elmo, sentence, index=index, most=2, which_layers=[1]) == expected
    assert neighbours(model_folder, sentence, index=tmp_path / "index", most=2, which_layers=[1]) == expected


def test_static_neighbours(elmo, vectors):
    found = static_neighbours(vectors, read_marked(elmo, "a [Play] here"), 2)  # known in lower case
    assert [near.word for near in found] == ["game", "stage"]
    play, game = np.array([1, 0, 0.1]), np.array([0.9, 0.1, 0.1])
    assert found[0].cosine == pytest.approx(play @ game / np.linalg.norm(play) / np.linalg.norm(game), abs=1e-6)
    assert static_neighbours(vectors, read_marked(elmo, "a [zebra] here"), 2) == ()
    both = static_neighbours(vectors, read_marked(elmo, "a [play shaw]"), 9)  # near to their mean
    assert [near.word for near in both][:2] == ["stage", "the"]
    assert len(both) == 3


def test_limit_bad_lines_and_nothing_to_compare(tmp_path, elmo, corpus):
    query = read_marked(elmo, "a [play]")
    result = corpus_neighbours(elmo, query, [corpus], limit=9)
    assert result.compared == 9
    assert {" ".join(near.sentence.tokens) for near in result.contexts[1]} == set(LINES[:2])
    broken = tmp_path / "broken.txt"
    broken.write_bytes(b"a good line here\nb\xffd line\n")
    with pytest.raises(ValueError, match="line 2: not valid UTF-8"):
        corpus_neighbours(elmo, query, [broken])
    assert corpus_neighbours(elmo, query, [broken], on_bad_line="skip").compared == 4
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(ValueError, match="found none"):
        corpus_neighbours(elmo, query, [tmp_path / "empty.txt"])
    with pytest.raises(ValueError, match="layers 0 to 2"):
        corpus_neighbours(elmo, query, [corpus], which_layers=[5])
    with pytest.raises(ValueError, match="top: expected 1 or more"):
        corpus_neighbours(elmo, query, [corpus], most=0)


@pytest.fixture
def command(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    app = typer.Typer()
    app.command()(neighbours_command)

    def run(*arguments):
        return CliRunner().invoke(app, list(map(str, arguments)))

    return run


def test_the_table(tmp_path, command, model_folder, vectors):
    packed = tmp_path / "text.xz"
    packed.write_bytes(lzma.compress("\n".join([*LINES, "a [play] in brackets"]).encode()))
    shown = command("a [play] here", "--corpus", packed, "--vectors", vectors, "-m", model_folder, "--top", 2)
    assert shown.exit_code == 0, shown.output
    for text in ("static vectors", "game", "layer 0 (context-free)", "layer 2", "words compared"):
        assert text in shown.stdout
    unknown = command("a [zebra] here", "--corpus", packed, "--vectors", vectors, "-m", model_folder)
    assert "no vector for zebra" in unknown.stdout


def test_of_a_long_sentence_what_stands_around_the_word_is_shown():
    tokens = [str(i) for i in range(100)]
    assert highlighted(MarkedSentence(tokens, 50, 51)).split() == [
        "…", *tokens[30:50], "[bold", "green][50][/bold", "green]", *tokens[51:71], "…"
    ]  # fmt: skip


@pytest.mark.parametrize("word", ["bank", "[a]", "밥을", "50", "/b", "\\[c"])
def test_a_match_is_marked_without_colour_too(word):
    printed = io.StringIO()
    text = highlighted(MarkedSentence(["see", word, "[b]"], 1, 2))
    Console(file=printed, width=200).print(text, highlight=False)
    assert printed.getvalue() == f"see [{word}] [b]\n"


def test_json_and_saved_files(tmp_path, command, model_folder, corpus, vectors):
    printed = command(
        "강을 [건넜다] .", "--corpus", corpus, "-m", model_folder, "--layers", "1,2", "--top", 2, "--json",
        "--vectors", vectors, "--save", tmp_path / "saved",
    )  # fmt: skip
    result = json.loads(printed.stdout)
    assert (result["word"], result["place"], result["static"]) == ("건넜다", 1, [])
    assert [row["layer"] for row in result["layers"]] == [1, 2]
    saved = tmp_path / "saved" / "neighbours-1.csv"
    rows = list(csv.DictReader(saved.read_text(encoding="utf-8").splitlines()))
    assert [row["source"] for row in rows] == ["layer 1", "layer 1", "layer 2", "layer 2"]
    first = result["layers"][0]["contexts"][0]
    assert rows[0]["neighbour"] == first["word"]
    assert rows[0]["its sentence"].replace("[", "").replace("]", "") == first["sentence"]
    assert not saved.with_suffix(".svg").exists()  # cosines by rank tell nothing that the table does not
    assert float(rows[0]["cosine"]) == pytest.approx(first["cosine"], abs=1e-5)
    again = ["--corpus", corpus, "-m", model_folder, "--save", tmp_path / "saved"]
    before = saved.read_bytes()
    command("[강을] 건넜다 .", *again)
    assert (tmp_path / "saved" / "neighbours-2.csv").is_file()  # a query's files are not another's
    assert saved.read_bytes() == before


def test_where_to_look_must_be_said_once(tmp_path, command, model_folder, corpus):
    for where in ([], ["--corpus", corpus, "--index", tmp_path]):
        wrong = command("a [play]", *where, "-m", model_folder)
        assert "either a corpus (--corpus TEXT) or an index (--index FOLDER)" in str(wrong.exception)
    wrong = command("a [play]", "--index", tmp_path, "--limit", 5, "-m", model_folder)
    assert "go with a corpus" in str(wrong.exception)
