"""Tables of text: quoting, headers, obvious columns, bad rows, and the laws of writing and reading."""

from __future__ import annotations

import csv
import gzip
import io
import json
import logging
import lzma
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.errors import UserError
from elmokit.text.columns import Columns, asked_columns
from elmokit.text.corpus import LineReader, open_table, open_text, read_lines, table_format
from elmokit.text.records import MOST_CHARACTERS
from elmokit.text.table import one_line

REVIEWS = 'id,review,stars\r\n7,"Good, ""really"".\r\nYes.",5.0\r\n\r\n8,,4\r\n9,Bad,1\r\n'


def write(folder: Path, content: str | bytes, name: str = "reviews.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def rows(path: Path | str, on_bad_line="refuse", *, texts: int = 1, labelled: bool = False, **asked):
    with open_table(path, on_bad_line, asked_columns(**asked), texts=texts, labelled=labelled) as table:
        return list(table)


def texts(path: Path | str, **options) -> list[str]:
    return [row.text for row in rows(path, **options)]


def said(path: Path, caplog, **asked) -> str:
    caplog.set_level(logging.INFO)
    caplog.clear()
    rows(path, **asked)
    (message,) = caplog.messages
    return message


def test_a_row_is_a_record_however_many_lines_it_takes(tmp_path, caplog):
    path = write(tmp_path, "\ufeff" + REVIEWS)
    first, second, third = rows(path, label_column="stars")
    assert first == (1, ('Good, "really".\nYes.',), "5", 2)
    assert second == (2, ("",), "4", 5)  # an empty text keeps its row
    assert third == (3, ("Bad",), "1", 6)
    assert said(path, caplog) == "reviews.csv: header, 3 columns; text from 'review'"
    assert one_line(first.text) == 'Good, "really". Yes.'


@pytest.mark.parametrize(("suffix", "compress"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_compressed_tables_are_tables(tmp_path, suffix, compress):
    path = write(tmp_path, compress(REVIEWS.encode()), "reviews.CSV" + suffix)
    assert [row.text for row in read_lines([path])] == ['Good, "really".\nYes.', "", "Bad"]


def test_files_are_tables_by_their_name_or_because_it_is_said(tmp_path, monkeypatch):
    names = {
        "a.csv": "csv",
        "a.tsv.xz": "tsv",
        "a.ndjson": "jsonl",
        "a.json-lines.gz": "jsonl",
        "a.jsonl": "jsonl",
    }
    assert {name: table_format(name) for name in names} == names
    assert {table_format(name) for name in ("a.txt", "csv", "a.json", "a.csv.txt", "-", "a.gz")} == {None}
    plain = write(tmp_path, "a,b\n", "plain.txt")
    with open_text(plain) as reader:
        assert isinstance(reader, LineReader)
    with pytest.raises(UserError, match=r"plain\.txt: columns are read from tables .* --format csv, tsv or jsonl"):
        texts(plain, text_column="a")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(REVIEWS.encode())))
    with pytest.raises(UserError, match=r"standard input: columns are read from tables .* --format"):
        texts("-", text_column="review")
    assert texts("-", table_format="csv")[2] == "Bad"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("id,review,stars\n1,so so,3\n", "header, 3 columns; text from 'review'"),
        ("Review\nGood\nBad\n", "header, 1 column; text from 'Review'"),
        ("nr,blurb\n1,so so\n2,not good\n", "header, 2 columns; text from 'blurb'"),
        ("kind,blurb\na,so so\na,not good\n", "header, 2 columns; text from 'blurb'"),
        ("good,Fine .\nbad,Not fine\n", "no header, 2 columns; text from column 2"),
        ("good,fine\ngood,Not fine\ngood,Not fine\n", "no header, 2 columns; text from column 2"),
        ("1,so so\n2,not good\n", "no header, 2 columns; text from column 2"),
        ("so so\nnot good\n", "no header, 1 column; text from column 1"),
        ("nr;blurb;value\n1;so, so;3,5\n2;not, good;1,0\n", "header, 3 columns; text from 'blurb'"),
        ("문서,평점\n재미 있다,9\n", "header, 2 columns; text from '문서'"),
    ],
)
def test_headers_and_obvious_columns_are_found_and_said(tmp_path, caplog, content, expected):
    assert said(write(tmp_path, content), caplog) == f"reviews.csv: {expected}"


def test_header_and_no_header_overrule(tmp_path):
    path = write(tmp_path, "good,Fine .\nbad,Not fine\n")
    assert texts(path, header=True, text_column="Fine .") == texts(path, header=True) == ["Not fine"]
    path = write(tmp_path, "label,review\n1,so\n")
    assert texts(path, header=False, text_column=2) == ["review", "so"]
    assert (
        texts(path, text_column=2) == texts(path, text_column="2") == texts(path, text_column="review") == ["so"]
    )
    with pytest.raises(UserError, match="no column 'review': without a header, columns are numbers, 1 to 2"):
        texts(path, header=False, text_column="review")


def test_a_column_that_is_a_number_is_found_by_name_first(tmp_path):
    assert texts(write(tmp_path, "2,1\na,b\n"), text_column="1") == ["b"]


@pytest.mark.parametrize(
    ("content", "asked", "message"),
    [
        (
            "a,b\nx y,z w\n",
            {},
            r"reviews\.csv: which column the text is in is not obvious: .*--text-column",
        ),
        ("a,b\nx,z\n", {"text_column": "c"}, "no column 'c' in its header; known: a, b"),
        ("review\nx\n", {"text_column": "reviev"}, "did you mean 'review'"),
        ("a,b\nx,z\n", {"text_column": 3}, "no column 3: columns are numbered from 1 to 2"),
        ("a,b\nx,z\n", {"text_column": 0}, "no column 0"),
        ("a,a\nx,z\n", {"text_column": "a"}, "2 columns are named 'a': give the column's number"),
        ("a,b\nx,z\n", {"text_column": "a", "label_column": "a"}, "both read from 'a'"),
        ("a,b\nx,z\n", {"text_column": ["a", "b"]}, r"expected 1 text column\(s\), found 2"),
        ("", {}, "expected the rows of a table"),
        ('a,b\nx,"z\n', {"text_column": "b"}, r"row 1 \(line 2\): a quotation mark is opened and never closed"),
        ('a,b\nx,"z" w\n', {"text_column": "b"}, "written twice"),
        ("a,b\n\nx\n", {"text_column": "b"}, r"row 1 \(line 3\): expected 2 columns, as in the header, found 1"),
        ("a,b\nx,y, z\n", {"text_column": "b"}, "found 3; a text with commas in it needs quotation marks"),
        ("a,b\rx,y\r", {"text_column": "b"}, "line 1: it has carriage returns: if they end its lines"),
        (b"a,b\nx,\xff\n", {"text_column": "b"}, r"row 1 \(line 2\): not valid UTF-8.*skip\|replace"),
    ],
)
def test_what_is_wrong_with_a_table_is_said_with_row_and_line(tmp_path, content, asked, message):
    with pytest.raises(UserError, match=message):
        texts(write(tmp_path, content), **asked)


def test_bad_rows_are_skipped_and_the_others_keep_their_numbers(tmp_path):
    content = b'a,b\nx\n1,2,3\nx,"y" z\nx,"\xff\nw"\nx,good\n'
    with open_table(write(tmp_path, content), "skip", asked_columns("b")) as table:
        assert [(row.number, row.text) for row in table] == [(5, "good")]
        assert table.skipped == [1, 2, 3, 4]
    path = write(tmp_path, b"a,b\nx,\xffy\n")
    assert [row.text for row in rows(path, "replace", text_column="b")] == ["\ufffdy"]


def test_a_cell_has_a_most_number_of_characters(tmp_path):
    path = write(tmp_path, 'review\n"' + "x" * (MOST_CHARACTERS + 1))
    with pytest.raises(UserError, match="more than 16,777,216 characters: is a quotation mark opened"):
        texts(path)
    assert texts(write(tmp_path, "review\na\rb\n")) == ["a b"]  # some writers do not quote it
    assert len(texts(write(tmp_path, "review\n" + "x" * 200_000))[0]) == 200_000  # csv's own limit is 131,072


def test_tsv_has_no_quoting_unless_it_is_said(tmp_path, caplog):
    path = write(tmp_path, 'id\treview\n1\t"So ""so"""\n2\t"open\n', "a.tsv")
    assert texts(path) == ['"So ""so"""', '"open']
    assert "look quoted" in said(path, caplog)
    path = write(tmp_path, 'id\treview\n1\t"So\n""so"""\n', "b.tsv")
    with pytest.raises(UserError, match=r"expected 2 columns.* --format csv"):
        texts(path)
    assert texts(path, table_format="csv") == ['So\n"so"']


def test_json_lines(tmp_path, caplog):
    content = '{"user": {"says": "so\\nso"}, "n": 5.0}\n\n{"user": {"says": null}, "n": true}\n{"user": {}}\n'
    path = write(tmp_path, content, "a.jsonl")
    with pytest.raises(UserError, match=r"row 3 \(line 4\): no key 'says', found 'user'.*on-bad-line skip"):
        rows(path, text_column="user.says")
    found = rows(path, "skip", text_column="user.says", label_column="n")
    assert [(row.number, row.text, row.label) for row in found] == [(1, "so\nso", "5"), (2, "", "true")]
    named = said(path, caplog, on_bad_line="skip", text_column="user.says", label_column="n")
    assert named == "a.jsonl: JSON lines; text from 'user.says', labels from 'n'"
    path = write(tmp_path, '{"id": 1, "review": "so"}\n{"id": 2, "review": 3}\n{"review": ["x"]}\n', "b.ndjson")
    with pytest.raises(UserError, match=r"row 3 \(line 3\): expected a text, found"):
        rows(path, text_column="review")
    with pytest.raises(UserError, match=r"no key 'reviews' .* did you mean 'review'"):
        rows(path, text_column="reviews")
    path = write(tmp_path, '{"text": "a\\ud800"}\nnull\n', "c.jsonl")
    with pytest.raises(UserError, match=r"row 2 \(line 2\): expected a JSON object, found None"):
        rows(path)
    assert [row.text for row in rows(path, "skip")] == ["a\ufffd"]
    path = write(tmp_path, "[" * 100_000 + "\n", "deep.jsonl")
    with pytest.raises(UserError, match="line 1: not valid JSON"):
        rows(path)


@pytest.mark.parametrize(
    ("cell", "label"),
    [("5", "5"), ("5.0", "5"), (" good ", "good"), ("1.5", "1.5"), ("007", "007"), ("-1.00", "-1")],
)
def test_labels_are_strings_or_numbers(tmp_path, cell, label):
    path = write(tmp_path, f"review,label\nso,{cell}\n")
    assert [row.label for row in rows(path, labelled=True)] == [label]


def test_missing_labels_are_named_by_row(tmp_path):
    path = write(tmp_path, "review,label\n" + "so,1\n" + "so,\n" * 12)
    with (
        open_table(path, labelled=True) as table,
        pytest.raises(UserError, match=r"in 'label', found none in row 2 \(line 3\), .* and 2 more") as error,
    ):
        table.labelled_rows()
    assert len(str(error.value)) < 400


def test_lists_in_messages_are_capped(tmp_path):
    """300,000 characters of columns and labels are told in a few lines."""
    path = write(tmp_path, ",".join(f"column {i} of many" for i in range(20_000)) + "\n")
    for asked in ({"header": True}, {"text_column": "x"}):
        with pytest.raises(UserError, match="more") as error:
            texts(path, **asked)
        assert len(str(error.value)) < 1500


def test_swapped_columns_are_suggested(tmp_path):
    path = write(tmp_path, "review,label\n" + "".join(f"the review number {i},{i % 2}\n" for i in range(500)))
    with (
        open_table(path, columns=Columns(("label",), "review"), labelled=True) as table,
        pytest.raises(UserError, match=r"500 different labels in 500 examples .* swapped") as error,
    ):
        table.labelled_rows()
    assert len(str(error.value)) < 400


def test_a_table_is_read_as_it_comes(tmp_path):
    """No more than the first rows are in memory: a pipe's rows are there before it ends."""

    class Endless(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, buffer) -> int:
            piece = b"so so,1\n" * (len(buffer) // 8)
            buffer[: len(piece)] = piece
            return len(piece)

    path = write(tmp_path, "review,label\n")
    with open_table(path, columns=Columns(("1",), header=False)) as table:
        table.lines._raw.close()
        table.lines._raw = io.BufferedReader(Endless())  # type: ignore[assignment]
        assert [row.number for row, _ in zip(table, range(1000))] == list(range(1, 1001))


cells = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=30)


def mended(cell: str, carriage_return: str = "\n") -> str:
    return cell.replace("\r\n", "\n").replace("\r", carriage_return)


@given(st.lists(st.tuples(cells, cells), min_size=1, max_size=6), st.sampled_from([",", ";", "\t"]), st.booleans())
def test_what_csv_writes_is_read_as_it_was(tmp_path_factory, table, delimiter, excel):
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    with path.open("w", newline="", encoding="utf-8-sig" if excel else "utf-8") as file:
        style = {"lineterminator": "\r\n"} if excel else {"lineterminator": "\n", "quoting": csv.QUOTE_ALL}
        writer = csv.writer(file, delimiter=delimiter, **style)
        writer.writerows([("key", "review"), *table])
    assert texts(path, text_column="review") == [mended(text, " ") for _, text in table]
    assert texts(path, text_column=1, header=True) == [mended(text, " ") for text, _ in table]


@given(st.lists(cells, min_size=1, max_size=6), st.booleans())
def test_what_json_writes_is_read_as_it_was(tmp_path_factory, table, ascii):
    path = tmp_path_factory.mktemp("json") / "a.jsonl"
    lines = (json.dumps({"id": i, "of": {"review": text}}, ensure_ascii=ascii) for i, text in enumerate(table))
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    assert texts(path, text_column="of.review") == [mended(text) for text in table]
