from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys

import pytest

from elmokit.atomic import remove_all_leftovers, remove_folder, replacing, replacing_folder, write_file
from elmokit.errors import UserError
from elmokit.lock import Lock


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "file"
    write_file(path, b"old")
    write_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_permissions_are_those_of_any_new_file(tmp_path):
    write_file(tmp_path / "ours", b"")
    (tmp_path / "theirs").write_bytes(b"")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "theirs").stat().st_mode


def test_a_failure_leaves_the_old_file_and_no_litter(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError), replacing(path) as temporary:
        temporary.write_bytes(b"half")
        raise RuntimeError
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_appears_whole_or_not_at_all(tmp_path):
    with pytest.raises(RuntimeError), replacing_folder(tmp_path / "deep" / "folder") as temporary:
        (temporary / "a").write_text("half")
        raise RuntimeError
    assert list((tmp_path / "deep").iterdir()) == []
    with replacing_folder(tmp_path / "deep" / "folder") as temporary:
        (temporary / "a").write_text("whole")
        assert not (tmp_path / "deep" / "folder").exists()
    assert (tmp_path / "deep" / "folder" / "a").read_text() == "whole"


def test_a_folder_is_replaced_only_on_request(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "old").write_text("old")
    with pytest.raises(FileExistsError, match="ask to overwrite"), replacing_folder(folder):
        pass
    with replacing_folder(folder, overwrite=True) as temporary:
        (temporary / "new").write_text("new")
        assert (folder / "old").exists()
    assert [path.name for path in folder.iterdir()] == ["new"]
    assert list(tmp_path.iterdir()) == [folder]


def test_if_moving_in_fails_the_old_folder_is_back(tmp_path, monkeypatch):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "old").write_text("old")
    rename = type(folder).rename

    def refuse(self, target):
        if self.name == "new":
            raise OSError(errno.EIO, "broken")
        return rename(self, target)

    monkeypatch.setattr(type(folder), "rename", refuse)
    with pytest.raises(OSError, match="broken"), replacing_folder(folder, overwrite=True) as temporary:
        (temporary / "new").write_text("new")
    assert [path.name for path in folder.iterdir()] == ["old"]


KILLED = """
import os, signal, sys
from pathlib import Path
from elmokit import atomic
with getattr(atomic, sys.argv[1])(Path("out")) as temporary:
    (temporary / "half" if temporary.is_dir() else temporary).write_bytes(b"half")
    if sys.argv[2] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    print("ready", flush=True)
    sys.stdin.read()
"""


def begin(how, end, folder):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", KILLED, how, end], cwd=folder, **pipes)


@pytest.mark.parametrize("how", ["replacing", "replacing_folder"])
def test_leftovers_of_kill_9_are_removed_by_the_next_that_makes_the_same(tmp_path, how):
    for _ in range(2):
        process = begin(how, "kill", tmp_path)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    left = list(tmp_path.iterdir())
    assert len(left) == 1  # the second removed the first's
    write_file(tmp_path / "other", b"")
    assert left[0].exists()  # not what it makes
    living = begin(how, "wait", tmp_path)
    assert living.stdout.readline() == b"ready\n"
    (owned,) = tmp_path.glob(".out.*")
    assert owned != left[0]
    with replacing_folder(tmp_path / "out"):
        assert owned.exists()
        living.communicate()
        assert living.returncode == 0


def test_what_0_1_0_left_is_removed_and_what_looks_alike_is_not(tmp_path):
    (tmp_path / ".out.abc_1234.tmp").write_bytes(b"half")
    (tmp_path / ".out.abc.tmp").write_bytes(b"a user's")
    (tmp_path / ".out.txt.abc_1234.tmp").write_bytes(b"another's")
    write_file(tmp_path / "out", b"new")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".out.abc.tmp", ".out.txt.abc_1234.tmp", "out"]
    remove_all_leftovers(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".out.abc.tmp", "out"]


def test_killed_between_the_two_renames_the_old_folder_is_back(tmp_path):
    folder = tmp_path / "folder"
    with replacing_folder(folder) as temporary:
        (temporary / "old").write_text("old")
    left = tmp_path / ".folder.abc_1234.tmp"
    (left / "new").mkdir(parents=True)
    folder.rename(left / "old")
    with pytest.raises(FileExistsError), replacing_folder(folder):
        pass
    assert [path.name for path in folder.iterdir()] == ["old"]
    assert list(tmp_path.iterdir()) == [folder]


def test_a_folder_is_removed_at_once(tmp_path):
    (tmp_path / "folder" / "deep").mkdir(parents=True)
    remove_folder(tmp_path / "folder")
    assert list(tmp_path.iterdir()) == []


def test_a_lock_is_held_by_one_and_gone_when_released(tmp_path):
    with Lock(tmp_path / "lock", "busy"):
        with pytest.raises(UserError, match="busy"):
            Lock(tmp_path / "lock", "busy")
        assert (tmp_path / "lock").exists()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "lock").touch()  # as kill -9 leaves it
    Lock(tmp_path / "lock", "busy").release()
