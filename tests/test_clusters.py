"""Clusters of mentions: the coreference column of CoNLL-2012, read and written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.tasks.coref.clusters import Document, conll_text, coreference_column, joined, read_documents

FIXTURE = Path(__file__).parent / "tasks" / "coref.conll"
DATA = Path(__file__).parent.parent.parent / "shared" / "data" / "coref"


def rows(*cells: str) -> str:
    """A sentence, by its coreference cells."""
    return "".join(f"d 0 {i} w{i} XX * - - - - * {cell}\n" for i, cell in enumerate(cells)) + "\n"


def read(tmp_path: Path, text: str) -> list[Document]:
    (tmp_path / "x.conll").write_text(text)
    return read_documents(tmp_path / "x.conll")


def one(tmp_path: Path, *sentences: str) -> Document:
    (document,) = read(tmp_path, "#begin document (d); part 000\n" + "".join(sentences) + "#end document\n")
    return document


# Reading


def test_the_fixture_is_read():
    documents = read_documents(FIXTURE)
    assert [d.header.split("(")[1] for d in documents[:2]] == ["visit); part 000", "letter); part 000"]
    assert documents[0].sentences[1] == ["Then", "she", "slept", "."]
    assert documents[0].clusters == [[(0, 1), (11, 12)]]
    assert documents[2].clusters == [[(0, 1), (3, 4)], [(3, 5), (10, 12)]]  # nested
    assert documents[3].clusters == []
    assert documents[4].tokens == ["Stop"]
    assert documents[5].clusters == [[(0, 2)], [(7, 9), (13, 14)]]  # the stranger is mentioned once
    assert documents[6].speakers[:7] == ["Ada"] * 6 + ["Bob"]
    assert documents[0].speakers is None
    assert documents[9].tokens[1:6] == ["(", "a", "tall", "man", ")"]
    assert documents[1].where == "coref.conll:19"


def test_mentions_of_one_cluster_nest_and_of_two_may_cross(tmp_path):
    document = one(tmp_path, rows("(1|(1)", "(2", "1)", "2)|(1)"), rows("(7", "(7|7)", "7)"))
    assert document.clusters == [[(0, 1), (0, 3), (3, 4)], [(1, 4)], [(4, 7), (5, 6)]]


def test_clusters_that_share_a_span_are_one(tmp_path):
    assert one(tmp_path, rows("(1)|(2)", "(2)", "(3)", "(1)")).clusters == [[(0, 1), (1, 2), (3, 4)], [(2, 3)]]
    assert joined([[(0, 1)], [(1, 2)], [(0, 1), (1, 2)]]) == [[(0, 1), (1, 2)]]


def test_parts_of_a_document_are_documents(tmp_path):
    text = "#begin document (a/b); part 000\n" + rows("-") + "#end document\n"
    documents = read(tmp_path, text + text.replace("000", "012"))
    assert [d.where for d in documents] == ["x.conll:1", "x.conll:5"]
    assert [d.header[-8:] for d in documents] == ["part 000", "part 012"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (rows("(1", "-"), r"line 2: coreference: expected a mention of cluster 1 to end .* up to line 3"),
        (rows("(1", "(1)"), r"line 2: coreference: expected a mention of cluster 1 to end"),
        (rows("(1") + rows("1)"), r"line 2: coreference: expected a mention of cluster 1 to end"),
        (rows("-", "1)"), r"line 3: coreference: expected an open mention of cluster 1 .* found '1\)'"),
        (rows("(1|2)"), r"line 2: coreference: expected an open mention of cluster 2"),
        (rows("1"), r"line 2: coreference: expected -, or \(1, 1\) and \(1\) .* found '1'"),
        (rows("(1)|"), r"line 2: coreference: expected -"),
        (rows("*"), r"line 2: coreference: expected -"),
        ("d 0 0 w\n", r"line 2: expected 12 columns or more, .* found 4"),
        ("#begin document (e); part 000\n", r"line 2: expected '#end document', found '#begin"),
        ("", r"line 1: expected tokens in the document, found none"),
    ],
)
def test_what_is_wrong_is_named_by_its_line(tmp_path, text, message):
    with pytest.raises(ValueError, match=r"x\.conll, " + message):
        one(tmp_path, text)


def test_a_file_without_its_documents_borders_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"line 1: expected '#begin document .* before the first token"):
        read(tmp_path, rows("-"))
    with pytest.raises(ValueError, match=r"expected '#end document' for the document of line 1"):
        read(tmp_path, "#begin document (d); part 000\n" + rows("-"))
    with pytest.raises(ValueError, match=r"line 1: expected '#begin document \(name\); part 000', found '#end"):
        read(tmp_path, "#end document\n")
    with pytest.raises(ValueError, match="empty"):
        read(tmp_path, "\n")


@pytest.mark.skipif(not DATA.is_dir(), reason="the data is not here")
def test_litbank_is_read_whole():
    documents = read_documents(DATA / "dev.conll.xz")
    assert len(documents) == 10
    assert sum(len(d.sentences) for d in documents) == 712
    assert sum(len(d.tokens) for d in documents) == 23096
    assert sum(len(cluster) for d in documents for cluster in d.clusters) == 3097
    assert sum(len(d.clusters) for d in documents) == 761
    assert sum(len(cluster) == 1 for d in documents for cluster in d.clusters) == 531


# Writing


def test_the_column_is_written_as_conll_2012_has_it():
    document = Document([["a", "b", "c"], ["d"]], None, None, "x:1")
    clusters = [[[0, 1], [0, 3]], [[0, 2], [3, 4]], [[1, 3]]]
    assert coreference_column(document, clusters) == ["(0|(1|(0)", "(2|1)", "2)|0)", "(1)"]
    assert coreference_column(document, []) == ["-"] * 4


def test_what_the_column_cannot_say_is_refused():
    document = Document([["a", "b", "c"]], None, None, "x:1")
    with pytest.raises(ValueError, match=r"x:1: \[0, 2\) and another mention of its cluster cross"):
        coreference_column(document, [[[0, 2], [1, 3]]])
    with pytest.raises(ValueError, match=r"x:1: expected mentions within 3 tokens, found \[2, 4\)"):
        coreference_column(document, [[[2, 4]]])


@st.composite
def documents(draw) -> Document:
    lengths = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    starts = np.cumsum([0, *lengths])
    spans = [
        (int(at) + a, int(at) + b)
        for at, length in zip(starts, lengths)
        for a in range(length)
        for b in range(a + 1, length + 1)
    ]
    chosen = draw(st.lists(st.sampled_from(spans), unique=True, max_size=12))
    clusters: list[list[tuple[int, int]]] = [[], [], [], []]
    for start, end in chosen:
        cluster = clusters[draw(st.integers(0, 3))]
        if not any(a < start < b < end or start < a < end < b for a, b in cluster):
            cluster.append((start, end))
    speakers = draw(st.none() | st.just(["Ada"] * sum(lengths)))
    sentences = [[f"w{i}" for i in range(length)] for length in lengths]
    return Document(sentences, joined(c for c in clusters if c), speakers, "x.conll:1")


@given(documents())
def test_written_and_read_again_it_is_the_same(tmp_path_factory, document):
    path = tmp_path_factory.mktemp("round") / "x.conll"
    path.write_text(conll_text(document, document.clusters))
    (again,) = read_documents(path)
    assert replace(again, columns=None) == document
    assert conll_text(again, document.clusters) == path.read_text()


@pytest.mark.parametrize("header", ["(a/b); part 0", "(a/b)", "(nw/x_0001); part 012"])
def test_all_but_the_clusters_is_written_as_it_was_read(tmp_path, header):
    """The reference scorer pairs documents by the whole header; whoever uses the file needs its parses."""
    text = f"""#begin document {header}
a/b\t0\t0\t-LRB-\tNNP\t(TOP(NP*\tada\t01\t1\tAda_L\t(PERSON)\t(ARG0*)\t(3
a/b\t0\t1\tshe\tPRP\t*))\t-\t-\t-\tAda_L\t*\t(V*)\t3)

#end document
"""
    (document,) = read(tmp_path, text)
    assert document.tokens[0] == "("
    assert conll_text(document, document.clusters) == text.replace("(3", "(0").replace("3)", "0)")


@given(documents(), st.data())
def test_an_excerpt_has_the_clusters_that_lie_in_it(document, data):
    first = data.draw(st.integers(0, len(document.sentences) - 1))
    last = data.draw(st.integers(first + 1, len(document.sentences)))
    part = document.excerpt(first, last)
    begin = len(Document(document.sentences[:first], None, None, "").tokens)
    assert part.tokens == document.tokens[begin : begin + len(part.tokens)]
    inside = [[(s - begin, e - begin) for s, e in cluster] for cluster in document.clusters]
    inside = [[m for m in cluster if m[0] >= 0 and m[1] <= len(part.tokens)] for cluster in inside]
    assert part.clusters == [cluster for cluster in inside if cluster]
    assert (part.speakers is None) == (document.speakers is None)
    assert len(part.speakers or part.tokens) == len(part.tokens)
