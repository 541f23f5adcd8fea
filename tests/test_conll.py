"""CoNLL's files: columns, CoNLL-U, CoNLL-2012, and a message with the line for what is wrong in them."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.text.conll import plain_words, read_columns, read_conll2012, read_conllu, read_tabbed

CONLLU = """# sent_id = 1
# text = Do n't run\t!
1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tDo\tdo\tAUX\tVB\t_\t0\t_\t_\t_
2\tn't\tnot\tPART\tRB\t_\t0\t_\t_\t_
2.1\tyou\tyou\tPRON\tPRP\t_\t_\t_\t_\t_

# a sentence of an empty node alone
1.1\tx\tx\tX\tX\t_\t_\t_\t_\t_

1\t10 000\t10000\tNUM\tCD\t_\t0\t_\t_\t_
"""
BEGIN, END = "#begin document (d); part 000\n", "#end document\n"


def write(folder: Path, text: str) -> Path:
    path = folder / "x.conll"
    path.write_text(text, encoding="utf-8")
    return path


def row(word: str, *cells: str) -> str:
    return f"d 0 0 {word} XX * - - - - * {' '.join((*cells, '-'))}\n"


# Columns


@pytest.mark.parametrize(
    ("text", "tabs", "fields"),
    [
        ("a b\tO\nc\u3000d\tO\n", None, [["a b", "O"], ["c\u3000d", "O"]]),  # the first line says that it has tabs
        ("a\tO\nb\tO\n", False, [["a", "O"], ["b", "O"]]),
        ("a x  O\nb\ty O\n", None, [["a", "x", "O"], ["b", "y", "O"]]),
        ("a x\tO\n", True, [["a x", "O"]]),
        ("\tO\n", True, [["", "O"]]),
    ],
)
def test_columns_are_separated_as_the_first_line_says(tmp_path, text, tabs, fields):
    (sentence,) = read_columns(write(tmp_path, text), tabs=tabs)
    assert [row.fields for row in sentence] == fields


@given(st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=4), min_size=1, max_size=4), st.booleans())
def test_blank_lines_are_between_sentences_and_every_row_knows_its_line(tmp_path_factory, sentences, at_the_end):
    lines = []
    expected = []
    for blanks in sentences:  # as many comments and blank lines after each
        lines += [f"w{number} O" for number in blanks]
        expected.append([(len(lines) - len(blanks) + i + 1, f"w{number}") for i, number in enumerate(blanks)])
        lines += ["# no token"] * blanks[0] + ["", " \t"] * blanks[-1]
    text = "\n".join(lines).rstrip() + ("\n" if at_the_end else "")
    found = read_columns(write(tmp_path_factory.mktemp("x"), text), comment=lambda line: line.startswith("#"))
    assert [[(row.line, row.fields[0]) for row in sentence] for sentence in found] == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x.conll: expected sentences, found none: the file is empty"),
        ("\n \n", "the file is empty"),
        ("a\n", r"x.conll, line 1: expected 2 columns, found 1: 'a'"),
        ("\na b\n\nc\n", r"x.conll, line 4: expected 2 columns, as in line 2, found 1: 'c'"),
        ("a\tb\nc\td\te\n", r"x.conll, line 2: expected 2 columns, as in line 1, with tabs between them, found 3"),
    ],
)
def test_columns_that_are_not_right_are_named(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read_columns(write(tmp_path, text))


# CoNLL-U


def test_words_of_conllu(tmp_path):
    first, second = read_conllu(write(tmp_path, CONLLU))
    assert [(row.line, row.fields[1], row.fields[3]) for row in first] == [(4, "Do", "AUX"), (5, "n't", "PART")]
    assert [(row.line, row.fields[1]) for row in second] == [(11, "10 000")]
    (tmp_path / "a.conllu.xz").write_bytes(lzma.compress(CONLLU.encode()))
    assert read_conllu(tmp_path / "a.conllu.xz") == [first, second]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# a comment\n", "the file is empty"),
        ("1-2\tDon't" + "\t_" * 8 + "\n", "x.conll: expected words, found none"),
        (CONLLU + "2\tx\tNOUN\n", "line 12: expected CoNLL-U's 10 columns, an id first, .* found 3: '2 x NOUN'"),
        (CONLLU + "2\tx" + "\t_" * 9 + "\n", "line 12: .* found 11"),
        (CONLLU + "x" + "\t_" * 9 + "\n", "line 12: .* an id first"),
    ],
)
def test_conllu_that_is_not_right_is_named(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read_conllu(write(tmp_path, text))


def test_conllu_is_told_from_other_columns_by_its_first_line(tmp_path):
    path = write(tmp_path, CONLLU)
    assert read_tabbed(path) == (True, read_conllu(path))
    conllu, sentences = read_tabbed(write(tmp_path, "# a comment\n#tag\tO\nb\tO\n"))
    assert not conllu
    assert sentences == [[(2, ["#tag", "O"]), (3, ["b", "O"])]]
    assert not read_tabbed(write(tmp_path, "\t".join("abcdefghij") + "\n"))[0]  # ten columns, but no id


# CoNLL-2012


def test_documents_and_their_sentences(tmp_path):
    second = BEGIN.replace("000", "012") + row("d") + END
    text = BEGIN + row("a") + row("b") + "\n\n" + row("c") + END + "\n" + second
    documents = read_conll2012(write(tmp_path, text))
    assert [document.header.number for document in documents] == [1, 9]
    assert [document.header.text[-8:] for document in documents] == ["part 000", "part 012"]
    words = [[[row.fields[3] for row in sentence] for sentence in d.sentences] for d in documents]
    assert words == [[["a", "b"], ["c"]], [["d"]]]
    assert documents[1].sentences[0][0].line == 10
    assert read_conll2012(write(tmp_path, text), borders=False) == documents


def test_borders_may_be_left_out_where_documents_do_not_matter(tmp_path):
    path = write(tmp_path, row("a") + "\n" + row("b") + "#begin document x\n" + row("c"))
    first, second = read_conll2012(path, borders=False)
    assert first.header is None
    assert [[row.line for row in sentence] for sentence in first.sentences] == [[1], [3]]
    assert (second.header.number, second.sentences[0][0].fields[3]) == (4, "c")
    with pytest.raises(ValueError, match=r"line 1: expected '#begin document .* before the first token, found"):
        read_conll2012(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n", "x.conll: expected sentences, found none: the file is empty"),
        (BEGIN + END, "x.conll, line 1: expected tokens in the document, found none"),
        (BEGIN + row("a"), "expected '#end document' for the document of line 1, found the file's end"),
        (BEGIN + row("a") + BEGIN, "line 3: expected '#end document', found '#begin document"),
        (BEGIN + row("a") + END + END, r"line 4: expected '#begin document \(name\); part 000', found '#end"),
        (
            "#begin document d\n",
            r"line 1: expected '#begin document \(name\); part 000', found '#begin document d'",
        ),
        (BEGIN + "# a remark\n" + END, "line 2: expected 12 columns or more, the last for coreference, found 3"),
        (BEGIN + "d 0 0 w\n" + END, "line 2: expected 12 columns or more, .* found 4: 'd 0 0 w'"),
    ],
)
def test_documents_that_are_not_right_are_named(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read_conll2012(write(tmp_path, text))


def test_brackets_are_plain_and_words_else_as_they_are(tmp_path):
    text = BEGIN + row("-LRB-") + row("a-RRB-") + row("RB-") + row("-LCB--RSB-") + END
    (document,) = read_conll2012(write(tmp_path, text))
    assert plain_words(document.sentences[0]) == ["(", "a)", "RB-", "{]"]
