from __future__ import annotations

import errno
import os

import pytest

from elmokit.atomic import replacing, replacing_folder, write_file


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
        if self.suffix == ".tmp":
            raise OSError(errno.EIO, "broken")
        return rename(self, target)

    monkeypatch.setattr(type(folder), "rename", refuse)
    with pytest.raises(OSError, match="broken"), replacing_folder(folder, overwrite=True) as temporary:
        (temporary / "new").write_text("new")
    assert [path.name for path in folder.iterdir()] == ["old"]
