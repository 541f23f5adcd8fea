from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import queue
import sys
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from elmokit.errors import UserError
from elmokit.text import corpus as corpus_module
from elmokit.text.corpus import CorpusReader, Line, LineReader, expand_sources, read_lines

TEXT = "one\n\n밥 😀\r\nlast without an end".encode()
ARCHIVES = [
    (".gz", gzip.compress),
    (".bz2", bz2.compress),
    (".xz", lzma.compress),
    (".zst", zstandard.ZstdCompressor().compress),
]
LINES = [Line(1, "one"), Line(2, ""), Line(3, "밥 😀"), Line(4, "last without an end")]


def read(path, **options):
    with LineReader(path, **options) as reader:
        return list(reader)


@pytest.mark.parametrize(
    ("suffix", "compress"),
    [(".txt", bytes), *ARCHIVES],
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


def test_utf16_is_recognized_and_refused(tmp_path):
    (tmp_path / "t.txt").write_text("one", encoding="utf-16")
    with pytest.raises(ValueError, match="UTF-16"):
        read(tmp_path / "t.txt")


@pytest.mark.parametrize(("suffix", "compress"), ARCHIVES)
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


def test_all_frames_of_a_zstd_file_are_read(tmp_path):
    compress = zstandard.ZstdCompressor().compress
    (tmp_path / "t.zst").write_bytes(compress(b"one\ntw") + compress(b"o\n"))
    assert read(tmp_path / "t.zst") == [Line(1, "one"), Line(2, "two")]


@pytest.mark.parametrize(
    "content",
    [
        bytes(1000),
        bytes(range(256)),
        gzip.compress(bytes(range(256)) * 20),
        "plain letters".encode("utf-16-le"),
        "밥을 먹었다 그리고 잤다".encode("cp949"),
    ],
    ids=["zeros", "all bytes", "gzip", "utf-16", "cp949"],
)
@pytest.mark.parametrize("on_bad_line", ["refuse", "skip", "replace"])
def test_what_is_not_text_is_refused_by_name(tmp_path, content, on_bad_line):
    (tmp_path / "junk.txt").write_bytes(content)
    with pytest.raises(ValueError, match=r"junk\.txt: expected UTF-8 text, found something else"):
        read(tmp_path / "junk.txt", on_bad_line=on_bad_line)


@pytest.mark.parametrize("ahead", range(4))
def test_a_character_across_the_end_of_the_first_block_is_whole(tmp_path, ahead):
    text = "a" * ahead + "😀" * 3000
    (tmp_path / "t.txt").write_text(f"{text}\n\ufffd\n", encoding="utf-8")
    assert read(tmp_path / "t.txt") == [Line(1, text), Line(2, "\ufffd")]


def test_a_very_long_line(tmp_path):
    text = "word " * 4_000_000
    (tmp_path / "t.txt").write_text(text + "\nnext\n", encoding="utf-8")
    lines = read(tmp_path / "t.txt")
    assert [len(line.text) for line in lines] == [20_000_000, 4]


def test_a_line_longer_than_the_limit_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch):
    """A small .gz may hold one line of gigabytes; how long a line may be, a flag says."""
    monkeypatch.setattr(corpus_module, "LONGEST_LINE", 5000)
    with gzip.open(tmp_path / "t.txt.gz", "wb") as file:
        file.write(b"short\n" + b"x" * 20_000_000)
    with LineReader(tmp_path / "t.txt.gz") as reader:
        with pytest.raises(
            UserError, match=r"t.txt.gz, line 2: expected lines of 5,000 bytes at most.*--longest-line"
        ):
            list(reader)
        assert reader._raw.tell() < 20_000
    monkeypatch.setenv("ELMO_LONGEST_LINE", "30000000")
    assert [len(line.text) for line in read(tmp_path / "t.txt.gz")] == [5, 20_000_000]
    monkeypatch.setenv("ELMO_LONGEST_LINE", "many")
    with pytest.raises(UserError, match="ELMO_LONGEST_LINE: expected a number of bytes, found 'many'"):
        read(tmp_path / "t.txt.gz")


def test_the_flag_of_the_longest_line(elmo_command, tmp_path, monkeypatch):
    monkeypatch.setenv("ELMO_LONGEST_LINE", "")  # put back afterwards
    (tmp_path / "t.txt").write_text("one two three four\n")
    code, _, err = elmo_command("--longest-line", 9, "embed", "t.txt", "-o", "v.npz", "-m", "en-small")
    assert code == 1
    assert "line 1: expected lines of 9 bytes at most" in err


def write_parquet(path, **columns):
    pq.write_table(pa.table(columns), path)
    return path


def test_parquet(tmp_path):
    rows = ["one\ntwo\r\n", None, "", "밥"]
    path = write_parquet(tmp_path / "t.parquet", title=["a", "b", "c", "d"], text=rows)
    with LineReader(path) as reader:
        assert reader.fraction() == 0
        assert list(reader) == [Line(1, "one"), Line(2, "two"), Line(3, ""), Line(4, "밥")]
        assert reader.fraction() == 1
    large = pa.array(["one"], pa.large_string())
    assert read(write_parquet(tmp_path / "t.parquet", number=[1], content=large)) == [Line(1, "one")]


def test_parquet_without_a_column_of_text(tmp_path):
    path = write_parquet(tmp_path / "t.parquet", a=["x"], b=["y"], text=[1])
    with pytest.raises(ValueError, match=r'named "text".*found a \(string\), b \(string\), text \(int64\)'):
        read(path)
    path.write_bytes(b"PAR1 but not really")
    with pytest.raises(ValueError, match=r"t\.parquet: not a Parquet file"):
        read(path)


def test_parquet_lines_that_are_not_utf8(tmp_path):
    bytes_of = pa.array([b"good\nb\xffd"], pa.binary())
    text = pa.Array.from_buffers(pa.string(), 1, bytes_of.buffers())
    path = write_parquet(tmp_path / "t.parquet", text=text)
    with pytest.raises(ValueError, match="line 2: not valid UTF-8"):
        read(path)
    assert read(path, on_bad_line="skip") == [Line(1, "good")]


@pytest.mark.parametrize(
    ("suffix", "module", "extra"), [(".parquet", "pyarrow", "parquet"), (".zst", "zstandard", "zstd")]
)
def test_a_missing_extra_is_named(tmp_path, monkeypatch, suffix, module, extra):
    (tmp_path / f"t{suffix}").write_bytes(b"")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ValueError, match=rf"elmokit\[{extra}\]"):
        read(tmp_path / f"t{suffix}")


TAKEN = ["a.txt", "b.TEXT", "c.txt.gz", "d.bz2", "deep/er/z.xz", "e.parquet", "news.en-00001-of-00100", "wiki_00"]
LEFT = [".hidden.txt", ".git/config", "archive.tar.gz", "image.png", "data.json", "data.json.zst", "script.py"]


def test_a_folder_stands_for_the_text_in_it(tmp_path):
    for name in TAKEN + LEFT:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    assert [str(path.relative_to(tmp_path)) for path in expand_sources([tmp_path])] == sorted(TAKEN)


def test_files_and_patterns_are_taken_whatever_their_suffix(tmp_path):
    for name in ("b.log", "a.log", "c.txt", "[x].log"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "folder.log").mkdir()
    logs = [tmp_path / name for name in ("[x].log", "a.log", "b.log")]
    assert expand_sources([str(tmp_path / "*.log")]) == logs
    assert expand_sources([tmp_path / "[x].log"]) == logs[:1]
    assert expand_sources([tmp_path / "c.txt", tmp_path / "b.log"]) == [tmp_path / "c.txt", tmp_path / "b.log"]
    assert expand_sources(["-"]) == [expand_sources("-")[0]]


def test_a_file_found_twice_is_read_once(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"")
    assert expand_sources([tmp_path / "a.txt", tmp_path, str(tmp_path / "*")]) == [tmp_path / "a.txt"]


def test_finding_nothing_is_an_error_that_says_what_was_looked_for(tmp_path):
    (tmp_path / "image.png").write_bytes(b"")
    for sources, message in (
        ([], "no sources"),
        ([tmp_path], r"no text in this folder: looked for \*\.txt"),
        ([str(tmp_path / "*.txt")], r"no file matches the pattern .*\*\.txt"),
        ([tmp_path / "none.txt"], r"no file or folder .*none\.txt"),
    ):
        with pytest.raises(ValueError, match=message):
            expand_sources(sources)


def test_lines_of_several_files(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"one\ntwo")
    (tmp_path / "b.txt").write_bytes(b"three\nb\xffd\n")
    assert list(read_lines([tmp_path], "skip")) == [Line(1, "one"), Line(2, "two"), Line(1, "three")]
    with pytest.raises(ValueError, match=r"b\.txt, line 2"):
        list(read_lines([tmp_path]))


def test_progress_over_several_files(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"one\n" * 3)
    write_parquet(tmp_path / "b.parquet", text=["b"] * 3)
    (tmp_path / "c.txt").write_bytes(b"c\xff\n" * 3 + b"last")
    reader = CorpusReader([tmp_path], "skip")
    assert reader.fraction() == 0
    fractions = [reader.fraction() for _ in reader]
    assert fractions == sorted(fractions)
    assert fractions[0] < 0.5 < fractions[-1]
    assert reader.fraction() == 1
    assert reader.skipped == 3


def test_a_pipe_has_no_known_length():
    ends = os.pipe()
    with open(ends[1], "wb") as writer:
        writer.write(b"one\ntwo\n")
    try:
        reader = CorpusReader([f"/dev/fd/{ends[0]}"])
        assert [(line.text, reader.fraction()) for line in reader] == [("one", None), ("two", None)]
    finally:
        os.close(ends[0])


def test_a_line_is_there_when_it_is_written():
    """Who types a question waits for its answer before the next."""
    ends = os.pipe()
    lines = queue.Queue()
    with open(ends[0], "rb"), open(ends[1], "wb", buffering=0) as writer:

        def read():
            with LineReader(f"/dev/fd/{ends[0]}") as reader:
                for line in reader:
                    lines.put(line.text)

        reading = threading.Thread(target=read, daemon=True)
        reading.start()
        for text in ("one", "two", "three"):
            writer.write(text.encode() + b"\n")
            assert lines.get(timeout=20) == text
        writer.close()
        reading.join(20)
    assert not reading.is_alive()
