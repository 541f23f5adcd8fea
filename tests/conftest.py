"""Models small enough to check by hand, and the real data where it lies beside the repository."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from elmokit import Elmo
from elmokit.formats.bilm_hdf5 import write_bilm
from helpers.models import make_elmo

# New random cases at home, the same ones every time in CI: what lands must not depend on luck.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")

torch.set_num_threads(1)  # the models are tiny; waiting for threads costs more than they bring


@pytest.fixture
def elmo() -> Elmo:
    return make_elmo()


@pytest.fixture
def model_folder(tmp_path: Path, elmo: Elmo) -> Path:
    elmo.save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def published_pair(tmp_path: Path) -> tuple[Path, Path]:
    """options.json and weights.hdf5 of a random model, in the published layout."""
    options, weights = tmp_path / "options.json", tmp_path / "weights.hdf5"
    write_bilm(make_elmo(published=True).checkpoint, options, weights)
    return options, weights


@pytest.fixture(scope="session")
def fixture_folder() -> Path:
    folder = Path(__file__).parent.parent.parent / "shared" / "data" / "original_elmo"
    if not folder.is_dir():
        pytest.skip("the published fixture (shared/data/original_elmo beside the repository) is not here")
    return folder


@pytest.fixture
def elmo_command(monkeypatch, capsys, tmp_path):
    """Run `elmo ...` in tmp_path; gives (exit code, standard output, standard error)."""
    from elmokit.cli import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ELMO_MODEL", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["elmo", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_:
            main()
        out, err = capsys.readouterr()
        return exit_.value.code or 0, out, err

    yield run
    for number, handler in handlers.items():  # commands that can be interrupted set their own
        signal.signal(number, handler)
