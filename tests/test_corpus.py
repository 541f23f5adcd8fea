from __future__ import annotations

import bz2
import gzip
import io
import lzma

import pytest
import zstandard

from elmokit.text.corpus import Line, LineReader

TEXT = "one\n\n밥 😀\r\nlast without an end".encode()
LINES = [Line(1, "one"), Line(2, ""), Line(3, "밥 😀"), Line(4, "last without an end")]


def read(path, **options):
    with LineReader(path, **options) as reader:
        return list(reader)


@pytest.mark.parametrize(
    ("suffix", "compress"),
    [
        (".txt", bytes),
        (".gz", gzip.compress),
        (".bz2", bz2.compress),
        (".xz", lzma.compress),
        (".zst", zstandard.ZstdCompressor().compress),
    ],
)
def test_lines_of_plain_and_compressed_files(tmp_path, suffix, compress):
    path = tmp_path / f"text{suffix}"
    path.write_bytes(compress(TEXT))
    assert read(path) == LINES


def test_standard_input(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(TEXT)))
    with LineReader("-") as reader:
        assert list(reader) == LINES
        assert reader.fraction() is None


def test_only_a_line_feed_ends_a_line(tmp_path):
    text = "a\u2028b\x0bc\x0cd\x85e\x1cf\0g"
    path = tmp_path / "t.txt"
    path.write_text(text + "\n", encoding="utf-8")
    assert read(path) == [Line(1, text)]


def test_a_byte_order_mark_is_not_text(tmp_path):
    path = tmp_path / "t.txt"
    path.write_bytes(b"\xef\xbb\xbfone\n")
    assert read(path) == [Line(1, "one")]


def test_an_empty_file_has_no_lines(tmp_path):
    (tmp_path / "t.txt").write_bytes(b"")
    assert read(tmp_path / "t.txt") == []


def test_a_line_that_is_not_utf8_is_named_skipped_or_mended(tmp_path):
    path = tmp_path / "t.txt"
    path.write_bytes(b"good\nb\xffd\nfine\n")
    with pytest.raises(ValueError, match=r"line 2: not valid UTF-8 .*byte 2.*skip"):
        read(path)
    with LineReader(path, "skip") as reader:
        assert list(reader) == [Line(1, "good"), Line(3, "fine")]
        assert reader.skipped == [2]
    assert read(path, on_bad_line="replace")[1] == Line(2, "b\ufffdd")


def test_utf16_is_recognised_and_refused(tmp_path):
    (tmp_path / "t.txt").write_text("one", encoding="utf-16")
    with pytest.raises(ValueError, match="UTF-16"):
        read(tmp_path / "t.txt")


@pytest.mark.parametrize(("suffix", "compress"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_a_compressed_file_that_is_cut_short(tmp_path, suffix, compress):
    path = tmp_path / f"t{suffix}"
    path.write_bytes(compress(TEXT * 100)[:-12])
    with pytest.raises(ValueError, match="damaged or cut short"):
        read(path)
    path.write_bytes(b"this is no archive")
    with pytest.raises(ValueError, match="damaged or cut short"):
        read(path)


def test_what_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no file"):
        LineReader(tmp_path / "none.txt")
    with pytest.raises(ValueError, match="is a folder"):
        LineReader(tmp_path)
    (tmp_path / "t.txt").write_text("x")
    with pytest.raises(ValueError, match="on_bad_line"):
        LineReader(tmp_path / "t.txt", "ignore")
