"""File to file: every format, every kind of text, what is refused."""

from __future__ import annotations

import json
import os
import time

import h5py
import numpy as np
import pytest
from safetensors.numpy import load_file

from elmokit import Elmo
from elmokit.embed.job import EmbedJob, embed_file
from elmokit.embed.vectors import open_vectors
from elmokit.errors import UserError
from elmokit.text.columns import Columns
from helpers.jobs import LINES, SUFFIXES, Stop, run, small_elmo, stop_after, write_lines
from helpers.models import make_elmo


@pytest.fixture
def text(tmp_path):
    return write_lines(tmp_path / "text.txt")


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    "options", [{}, {"layers": 1}, {"pooling": "mean"}, {"layers": "mean", "pooling": "max", "dtype": "float16"}]
)
def test_what_is_read_back_is_what_embed_gives(tmp_path, text, suffix, options):
    summary = run(text, tmp_path / f"out{suffix}", **options)
    vectors = open_vectors(tmp_path / f"out{suffix}")
    assert len(vectors) == summary.sentences == len(LINES) * 20
    expected = small_elmo().embed(LINES * 20, **options)
    for i, (line, sentence) in enumerate(zip(LINES * 20, vectors)):
        assert sentence.line == i + 1
        assert sentence.tokens == line.split()
        assert sentence.text == (line.replace("\0", "\u2400") if suffix == ".h5" else line)
        assert sentence.vectors.dtype == expected[i].dtype
        np.testing.assert_array_equal(sentence.vectors, expected[i])
    assert vectors[-1].text == "last"
    with pytest.raises(IndexError):
        vectors[len(vectors)]
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"out{suffix}", "text.txt"]


def test_the_files_are_what_other_tools_read(tmp_path, text):
    for suffix in SUFFIXES:
        run(text, tmp_path / f"out{suffix}")
    with h5py.File(tmp_path / "out.h5") as file:
        assert file["0"].shape == (3, 6, 16)
        assert file["text"].asstr()[0] == LINES[0]
        assert json.loads(file["tokens"][0]) == LINES[0].split()
    flat = load_file(tmp_path / "out.safetensors")
    with np.load(tmp_path / "out.npz", allow_pickle=False) as archive:
        assert archive["offsets"][:3].tolist() == [0, 6, 6]
        for name in ("vectors", "offsets", "sentences"):
            np.testing.assert_array_equal(archive[name], flat[name])
    import pyarrow.parquet as pq

    table = pq.read_table(tmp_path / "out.parquet")
    assert table.column_names == ["id", "line", "text", "tokens", "vectors"]
    assert table["text"][2].as_py() == LINES[2]
    assert len(table["vectors"][0].as_py()) == 6


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_two_runs_give_the_same_bytes(tmp_path, text, suffix):
    run(text, tmp_path / f"a{suffix}")
    time.sleep(1.1)  # a clock in the file would show
    run(text, tmp_path / f"b{suffix}")
    assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()


def test_a_job_hands_the_model_to_nobody(tmp_path, text, model_folder):
    """Weights that nobody can have edited are not hashed with every batch."""
    elmo = Elmo.from_pretrained(model_folder)
    EmbedJob(elmo, text, tmp_path / "out.npz").run()
    assert elmo._bilm.private


def test_lines_that_are_not_utf8(tmp_path):
    text = tmp_path / "t.txt"
    text.write_bytes(b"one\nb\xff\xfed\nthree\n")
    with pytest.raises(ValueError, match="line 2: not valid UTF-8"):
        run(text, tmp_path / "out.h5")
    assert not (tmp_path / "out.h5").exists()
    summary = run(text, tmp_path / "out.h5", on_bad_line="skip", restart=True)
    assert summary.skipped_lines == [2]
    assert [sentence.line for sentence in open_vectors(tmp_path / "out.h5")] == [1, 3]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_empty_file_gives_an_empty_output(tmp_path, suffix):
    (tmp_path / "t.txt").write_bytes(b"")
    assert run(tmp_path / "t.txt", tmp_path / f"out{suffix}").sentences == 0
    assert len(open_vectors(tmp_path / f"out{suffix}")) == 0


def test_paragraphs_are_split_on_request(tmp_path):
    (tmp_path / "t.txt").write_text("It rained. We stayed.\n\nThen it stopped.\n")
    run(tmp_path / "t.txt", tmp_path / "out.h5", small_elmo(tokenizer="words"), split=True)
    found = [(s.line, s.text, s.tokens) for s in open_vectors(tmp_path / "out.h5")]
    assert found == [
        (1, "It rained.", ["It", "rained", "."]),
        (1, "We stayed.", ["We", "stayed", "."]),
        (3, "Then it stopped.", ["Then", "it", "stopped", "."]),
    ]


def test_what_cannot_be_written_is_refused_before_the_work(tmp_path, text):
    (tmp_path / "there.h5").write_bytes(b"precious")
    for output, message in [
        (tmp_path / "out.xyz", r"expected a name that ends in .h5"),
        (tmp_path / "there.h5", "exists already"),
        (tmp_path / "none" / "out.h5", "no folder"),
    ]:
        with pytest.raises(ValueError, match=message):
            run(text, output)
    assert (tmp_path / "there.h5").read_bytes() == b"precious"
    run(text, tmp_path / "there.h5", overwrite=True)
    assert len(open_vectors(tmp_path / "there.h5")) == len(LINES) * 20


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs a folder that nobody can write to")
def test_a_folder_that_cannot_be_written_to(text):
    from pathlib import Path

    with pytest.raises(ValueError, match="cannot write to"):
        run(text, Path("/proc/out.h5"))


def test_one_call_takes_a_model_by_name(tmp_path, text):
    make_elmo().save(tmp_path / "model")
    run(text, tmp_path / "whole.h5", make_elmo(), layers=1, pooling="mean")
    stages = set()
    summary = embed_file(
        tmp_path / "model",
        text,
        str(tmp_path / "out.h5"),
        layers=1,
        pooling="mean",
        on_progress=lambda progress: stages.add(progress.stage),
    )
    assert summary.sentences == len(LINES) * 20
    assert stages == {"embedding", "writing"}
    assert (tmp_path / "out.h5").read_bytes() == (tmp_path / "whole.h5").read_bytes()
    with pytest.raises(UserError, match="exists already"):
        embed_file(tmp_path / "model", text, tmp_path / "out.h5")
    assert embed_file(tmp_path / "model", text, tmp_path / "out.h5", overwrite=True).resumed_at == 0


@pytest.mark.parametrize("which", [np.int64(1), np.array([0.5, 0.0, 0.5])])
def test_layers_may_be_chosen_by_numpys_numbers(tmp_path, text, which):
    run(text, tmp_path / "out.npz", layers=which)
    for sentence, expected in zip(open_vectors(tmp_path / "out.npz"), small_elmo().embed(LINES, layers=which)):
        np.testing.assert_array_equal(sentence.vectors, expected)


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "reviews.csv"
    rows = '1,"He sat, ""on"" the\nbank .",a\n2,,b b\n3,밥을 먹었다 😀,c c\n' * 20
    path.write_text("id,review,note\n" + rows, encoding="utf-8")
    return path


def test_a_table_is_embedded_row_by_row_without_its_header(tmp_path, table):
    summary = run(table, tmp_path / "out.npz")
    found = list(open_vectors(tmp_path / "out.npz"))
    assert (summary.sentences, len(found)) == (60, 60)
    assert [sentence.line for sentence in found] == list(range(1, 61))
    assert [sentence.text for sentence in found[:3]] == ['He sat, "on" the bank .', "", "밥을 먹었다 😀"]
    assert found[1].tokens == []
    np.testing.assert_array_equal(found[0].vectors, small_elmo().embed(['He sat, "on" the bank .'])[0])
    run(table, tmp_path / "split.npz", split=True)
    assert {sentence.line for sentence in open_vectors(tmp_path / "split.npz")} == {
        i for i in range(1, 61) if i % 3 != 2
    }


def test_a_table_that_was_interrupted_gives_the_same_bytes_and_only_with_the_same_column(
    tmp_path, table, monkeypatch
):
    run(table, tmp_path / "whole.npz", columns=Columns(("review",)))
    output = tmp_path / "out.npz"
    for appended in (7, 20):
        with monkeypatch.context() as patch:
            stop_after(patch, appended)
            with pytest.raises(Stop):
                run(table, output, columns=Columns(("review",)))
    for other in (Columns(("note",)), Columns(("2",), header=False)):
        with pytest.raises(UserError, match="was begun with other settings"):
            run(table, output, columns=other)
    assert run(table, output, columns=Columns(("2",))).resumed_at > 0  # the same column
    assert output.read_bytes() == (tmp_path / "whole.npz").read_bytes()


def test_one_call_takes_a_column(tmp_path, table):
    elmo = small_elmo()
    embed_file(elmo, table, tmp_path / "a.npz", text_column="note", pooling="mean")
    assert next(iter(open_vectors(tmp_path / "a.npz"))).text == "a"
    plain = tmp_path / "plain"
    plain.write_bytes(table.read_bytes())
    embed_file(elmo, plain, tmp_path / "b.npz", text_column=3, table_format="csv", pooling="mean")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
