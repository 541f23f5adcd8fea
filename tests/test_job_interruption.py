"""Jobs that are interrupted, killed, run twice at once or out of disk: the same bytes in the end, or a message."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from elmokit.embed import job as job_module
from elmokit.embed.job import EmbedJob, embed_file
from elmokit.embed.outputs import WRITERS
from elmokit.embed.scratch import Scratch
from elmokit.embed.vectors import open_vectors
from elmokit.errors import UserError
from helpers.jobs import LINES, SUFFIXES, Stop, run, small_elmo, stop_after, write_lines
from helpers.models import make_elmo


@pytest.fixture
def text(tmp_path):
    return write_lines(tmp_path / "text.txt")


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


def test_one_call_resumes(tmp_path, text, monkeypatch):
    with monkeypatch.context() as patch:
        stop_after(patch, 60)
        with pytest.raises(Stop):
            embed_file(small_elmo(), text, tmp_path / "out.h5")
    assert embed_file(small_elmo(), text, tmp_path / "out.h5").resumed_at > 0
