"""File to file: every format, and every way to be interrupted."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import h5py
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from elmokit import Elmo
from elmokit.embed import job as job_module
from elmokit.embed.job import EmbedJob, embed_file
from elmokit.embed.outputs import WRITERS
from elmokit.embed.scratch import Scratch
from elmokit.embed.vectors import open_vectors
from elmokit.errors import UserError
from elmokit.text.columns import Columns
from helpers.models import make_elmo

SUFFIXES = [".h5", ".npz", ".safetensors", ".parquet"]
LINES = ["He sat on the bank .", "", "밥을 먹었다 😀", "nul\0byte and é", "x" * 10_000, "last"]


def small_elmo(**options):
    return make_elmo(batch_tokens=8, **options)  # a window every few sentences


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n".join(LINES * 20) + "\n", encoding="utf-8")
    return path


def run(text, output, elmo=None, overwrite=False, restart=False, **options):
    return EmbedJob(elmo or small_elmo(), text, output, **options).run(overwrite=overwrite, restart=restart)


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


class Stop(Exception):
    pass


def stop_after(monkeypatch, appended, error=Stop):
    """Fail in the middle of things: at the so-manieth sentence that is appended, half of it written."""
    append = job_module.Scratch.append
    count = 0

    def failing(self, record):
        nonlocal count
        count += 1
        if count > appended:
            self._vectors.write(b"half")
            raise error
        append(self, record)

    monkeypatch.setattr(job_module.Scratch, "append", failing)
    monkeypatch.setattr(job_module, "SECONDS_BETWEEN_COMMITS", 0.0)


@pytest.mark.parametrize("state", ["zero", "carry", "warm"])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_interrupted_and_run_again_gives_the_bytes_of_an_uninterrupted_run(
    tmp_path, text, suffix, state, monkeypatch
):
    options = {"state": state, "warm_text": ["It was cold ."] if state == "warm" else None}
    run(text, tmp_path / f"whole{suffix}", small_elmo(**options))
    output = tmp_path / f"out{suffix}"
    for appended in (7, 40, 3):
        with monkeypatch.context() as patch:
            stop_after(patch, appended)
            with pytest.raises(Stop):
                run(text, output, small_elmo(**options))
        assert not output.exists()
    summary = run(text, output, small_elmo(**options))
    assert 0 < summary.resumed_at < summary.sentences
    assert output.read_bytes() == (tmp_path / f"whole{suffix}").read_bytes()
    assert not (tmp_path / f"out{suffix}.partial").exists()


def test_interrupted_while_the_output_is_written(tmp_path, text, monkeypatch):
    run(text, tmp_path / "whole.h5")
    with monkeypatch.context() as patch:
        patch.setitem(job_module.WRITERS, ".h5", lambda *arguments: (_ for _ in ()).throw(Stop))
        with pytest.raises(Stop):
            run(text, tmp_path / "out.h5")
    assert not (tmp_path / "out.h5").exists()
    summary = run(text, tmp_path / "out.h5")
    assert summary.resumed_at == summary.sentences
    assert (tmp_path / "out.h5").read_bytes() == (tmp_path / "whole.h5").read_bytes()


@pytest.mark.slow
def test_killed_and_run_again_gives_the_bytes_of_an_uninterrupted_run(tmp_path):
    """SIGKILL, for real, in another process, at whatever it is doing."""
    text = tmp_path / "text.txt"
    text.write_text("\n".join(f"sentence number {i} of many" for i in range(1200)) + "\n")
    make_elmo().save(tmp_path / "model")
    script = textwrap.dedent("""
        import sys, torch
        torch.set_num_threads(1)
        from pathlib import Path
        from elmokit import Elmo
        from elmokit.embed import job
        job.SECONDS_BETWEEN_COMMITS = 0.05
        elmo = Elmo.from_pretrained(sys.argv[1], batch_tokens=32)
        print("ready", flush=True)
        job.EmbedJob(elmo, sys.argv[2], Path(sys.argv[3])).run()
        print("done", flush=True)
    """)

    def start(output):
        command = [sys.executable, "-c", script, str(tmp_path / "model"), str(text), str(tmp_path / output)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    with start("whole.h5") as whole:
        assert whole.stdout.read() == "ready\ndone\n"
    kills = 0
    for _ in range(2):
        with start("out.h5") as process:
            assert process.stdout.readline() == "ready\n"
            journal = tmp_path / "out.h5.partial" / "journal.json"
            before = journal.read_text() if journal.exists() else ""
            while process.poll() is None and not (journal.exists() and journal.read_text() != before):
                time.sleep(0.005)
            process.send_signal(signal.SIGKILL)
            kills += process.wait() == -signal.SIGKILL
    assert kills > 0
    with start("out.h5") as process:
        assert process.stdout.read() == "ready\ndone\n"
    assert (tmp_path / "out.h5").read_bytes() == (tmp_path / "whole.h5").read_bytes()


def test_a_full_disk_keeps_what_was_done(tmp_path, text, monkeypatch):
    run(text, tmp_path / "whole.npz")
    with monkeypatch.context() as patch:
        stop_after(patch, 50, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        with pytest.raises(OSError, match="No space left"):
            run(text, tmp_path / "out.npz")
    assert run(text, tmp_path / "out.npz").resumed_at > 0
    assert (tmp_path / "out.npz").read_bytes() == (tmp_path / "whole.npz").read_bytes()


@pytest.fixture
def tiny_disk(tmp_path):
    """A file system of three megabytes, where the system lets us make one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)]
    if sys.platform != "linux" or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small file system needs Linux and its superuser")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("checked", [True, False])
def test_a_disk_that_is_really_full(tmp_path, tiny_disk, suffix, checked, monkeypatch):
    """The vectors fit, the output beside them does not: said as such, and made once there is room."""
    text = tmp_path / "t.txt"
    text.write_text("".join(f"sentence number {i} of many\n" for i in range(2000)))
    if not checked:  # the disk may also fill up while the output is being written
        monkeypatch.setattr(job_module, "check_space", lambda scratch, path: None)
    output = tiny_disk / f"out{suffix}"
    with pytest.raises(OSError, match="No space left") as caught:
        run(text, output, make_elmo(), pooling=None)
    assert caught.value.errno == errno.ENOSPC
    assert not output.exists()
    subprocess.run(["mount", "-o", "remount,size=30m", str(tiny_disk)], check=True)
    assert run(text, output, make_elmo()).resumed_at == 2000
    assert len(open_vectors(output)) == 2000


def interrupted(tmp_path, text, monkeypatch, **options):
    with monkeypatch.context() as patch:
        stop_after(patch, 60)
        with pytest.raises(Stop):
            run(text, tmp_path / "out.h5", **options)


def test_what_was_begun_with_other_settings_is_not_gone_on_with(tmp_path, text, monkeypatch):
    interrupted(tmp_path, text, monkeypatch)
    with pytest.raises(ValueError, match=r"other settings \(layers 'all', now '1'\).*--restart"):
        run(text, tmp_path / "out.h5", layers=1)
    assert run(text, tmp_path / "out.h5", layers=1, restart=True).resumed_at == 0


def test_a_text_that_changed_is_not_gone_on_with(tmp_path, text, monkeypatch):
    interrupted(tmp_path, text, monkeypatch)
    whole = text.read_text(encoding="utf-8")
    text.write_text("Another beginning\n" + whole, encoding="utf-8")
    with pytest.raises(ValueError, match="is not the text"):
        run(text, tmp_path / "out.h5")
    text.write_text("short\n", encoding="utf-8")
    with pytest.raises(ValueError, match="is shorter than when"):
        run(text, tmp_path / "out.h5")
    text.write_text(whole + "and more\n", encoding="utf-8")  # a text that only grew is the same text so far
    assert run(text, tmp_path / "out.h5").sentences == len(LINES) * 20 + 1


@pytest.mark.parametrize("damage", ["journal", "vectors", "state"])
def test_a_damaged_scratch_folder_is_refused_not_used(tmp_path, text, monkeypatch, damage):
    interrupted(tmp_path, text, monkeypatch, elmo=small_elmo(state="carry"))
    folder = tmp_path / "out.h5.partial"
    if damage == "journal":
        (folder / "journal.json").write_text("{")
    elif damage == "vectors":
        os.truncate(folder / "vectors.bin", 10)
    else:
        next(folder.glob("state-*")).write_bytes(b"junk")
    with pytest.raises(ValueError, match="--restart"):
        run(text, tmp_path / "out.h5", small_elmo(state="carry"))
    run(text, tmp_path / "out.h5", small_elmo(state="carry"), restart=True)


def test_two_jobs_never_write_to_the_same_output(tmp_path, text):
    job = EmbedJob(small_elmo(), text, tmp_path / "out.h5")
    seen = []

    def second(progress):
        if not seen:
            with pytest.raises(ValueError, match="another process is writing"):
                job.run()
            seen.append(True)

    job.run(on_progress=second)
    assert seen


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_restart_under_a_running_job_is_refused(tmp_path, text, monkeypatch, suffix):
    output, expected = tmp_path / f"out{suffix}", tmp_path / f"expected{suffix}"
    run(text, expected)
    append, refused = Scratch.append, []

    def append_and_restart(scratch, record):
        append(scratch, record)
        if scratch.sentences == 30:
            with pytest.raises(UserError, match=r"another process is writing to .*partial"):
                run(text, output, restart=True)
            refused.append(scratch.sentences)

    monkeypatch.setattr(Scratch, "append", append_and_restart)
    assert run(text, output).sentences == len(LINES) * 20
    assert refused == [30]
    assert output.read_bytes() == expected.read_bytes()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_is_verified_before_it_is_moved_into_place(tmp_path, text, monkeypatch, suffix):
    output = tmp_path / f"out{suffix}"
    write = WRITERS[suffix]

    def forgetful(scratch, path, metadata, on_progress):
        vectors = (scratch.folder / "vectors.bin").read_bytes()
        (scratch.folder / "vectors.bin").write_bytes(vectors[:-4] + b"\0\0\0\0")
        write(scratch, path, metadata, on_progress)
        (scratch.folder / "vectors.bin").write_bytes(vectors)

    monkeypatch.setitem(WRITERS, suffix, forgetful)
    with pytest.raises(UserError, match="was not put in place: read back, it is not what was computed"):
        run(text, output)
    assert not output.exists()
    monkeypatch.setitem(WRITERS, suffix, write)
    run(text, output)
    assert len(open_vectors(output)) == len(LINES) * 20
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"out{suffix}", "text.txt"]


def test_scratch_files_that_were_changed_under_a_job_are_not_written_as_its_output(tmp_path, text, monkeypatch):
    output = tmp_path / "out.npz"

    def removed(scratch):
        (scratch.folder / "vectors.bin").unlink()
        (scratch.folder / "vectors.bin").touch()
        check(scratch)

    check = Scratch.check
    monkeypatch.setattr(Scratch, "check", removed)
    with pytest.raises(UserError, match=r"vectors.bin: .* bytes were written, found 0: begin again"):
        run(text, output)
    assert not output.exists()


def test_killed_after_the_output_is_in_place_the_same_command_ends_well(tmp_path, text, monkeypatch):
    output = tmp_path / "out.npz"
    with monkeypatch.context() as context:
        context.setattr(Scratch, "remove", lambda scratch: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(text, output)
    before = output.stat().st_ino
    assert run(text, output).resumed_at == len(LINES) * 20
    assert output.stat().st_ino == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.npz", "text.txt"]
    with pytest.raises(UserError, match="exists already"):
        run(text, output)


def test_killed_while_its_scratch_is_deleted_the_next_command_tidies_up_and_refuses(tmp_path, text):
    output = tmp_path / "out.npz"
    run(text, output)
    left = tmp_path / ".out.npz.partial.abcd1234.tmp" / "out.npz.partial"  # as atomic.remove_folder moves it
    left.mkdir(parents=True)
    (left / "vectors.bin").write_bytes(b"1234")
    with pytest.raises(UserError, match="exists already"):
        run(text, output)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.npz", "text.txt"]


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


def test_one_call_resumes(tmp_path, text, monkeypatch):
    with monkeypatch.context() as patch:
        stop_after(patch, 60)
        with pytest.raises(Stop):
            embed_file(small_elmo(), text, tmp_path / "out.h5")
    assert embed_file(small_elmo(), text, tmp_path / "out.h5").resumed_at > 0


@pytest.mark.parametrize("which", [np.int64(1), np.array([0.5, 0.0, 0.5])])
def test_layers_may_be_chosen_by_numpys_numbers(tmp_path, text, which):
    run(text, tmp_path / "out.npz", layers=which)
    for sentence, expected in zip(open_vectors(tmp_path / "out.npz"), small_elmo().embed(LINES, layers=which)):
        np.testing.assert_array_equal(sentence.vectors, expected)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("damage", ["cut", "junk", "empty"])
def test_a_damaged_vector_file_is_said_to_be_one(tmp_path, suffix, damage):
    path = tmp_path / f"out{suffix}"
    (tmp_path / "t.txt").write_text("one\ntwo\n")
    run(tmp_path / "t.txt", path)
    whole = path.read_bytes()
    path.write_bytes({"cut": whole[: len(whole) // 2], "junk": b"junk" * 400, "empty": b""}[damage])
    with pytest.raises(UserError, match="not a whole file as elmo embed writes them"):
        open_vectors(path)


def test_a_file_of_another_program_is_said_to_be_one(tmp_path):
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["line"] = np.zeros(3)
    np.savez(tmp_path / "other.npz", vectors=np.zeros((2, 4)), offsets=np.zeros(2), sentences=np.zeros(1))
    save_file({name: np.zeros(2) for name in ("vectors", "offsets", "sentences")}, tmp_path / "other.safetensors")
    for suffix, message in (
        (".h5", "not written by"),
        (".npz", "not a whole"),
        (".safetensors", "not written by"),
    ):
        with pytest.raises(UserError, match=message):
            open_vectors(tmp_path / f"other{suffix}")


def test_a_vector_file_that_is_none(tmp_path):
    with pytest.raises(ValueError, match="no file"):
        open_vectors(tmp_path / "none.h5")
    (tmp_path / "out.txt").write_text("x")
    with pytest.raises(ValueError, match=r"expected .h5"):
        open_vectors(tmp_path / "out.txt")


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
