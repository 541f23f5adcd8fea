"""Pipes, devices and files that are too large are refused before a byte is read."""

from __future__ import annotations

import os

import pytest

from elmokit import Elmo
from elmokit.errors import UserError
from elmokit.regular import read_regular
from elmokit.sources.folder import kind_of


def test_what_is_no_regular_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, kind in ((tmp_path / "pipe", "a pipe"), (tmp_path, "a folder"), ("/dev/null", "a device")):
        with pytest.raises(UserError, match=f"expected a regular file, found {kind}"):
            read_regular(tmp_path / path, 10)


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_regular(path, 5) == b"12345"
    os.truncate(path, 1 << 40)
    with pytest.raises(UserError, match="expected no more than 5 bytes, found 1,099,511,627,776"):
        read_regular(path, 5)


@pytest.mark.parametrize("name", ["config.json", "mapper.json", "tokenizer.json", "model.safetensors"])
def test_a_pipe_in_a_model_folder_does_not_hang(model_folder, name):
    (model_folder / name).unlink()
    os.mkfifo(model_folder / name)
    with pytest.raises(UserError, match=f"{name}: expected a regular file, found a pipe"):
        Elmo.from_pretrained(model_folder)


def test_a_pipe_as_model_card_is_passed_over(model_folder):
    (model_folder / "README.md").unlink()
    os.mkfifo(model_folder / "README.md")
    assert Elmo.from_pretrained(model_folder).checkpoint.card is None


def test_a_pipe_as_config_beside_a_published_pair_is_passed_over(published_pair):
    folder = published_pair[0].parent
    os.mkfifo(folder / "config.json")
    assert kind_of(folder) == "bilm"
