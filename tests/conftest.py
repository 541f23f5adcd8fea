"""Models small enough to check by hand, and the real data where it lies beside the repository."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

# Two workers on two cores, and threads of BLAS besides, wait for each other: a test took 224 s instead of 10. To
# be set before NumPy is imported; it also holds for the processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
import torch
from hypothesis import HealthCheck, settings

from elmokit import Elmo
from elmokit.formats.bilm_hdf5 import write_bilm
from helpers.models import make_elmo

# New random cases at home, the same ones every time in CI: what lands must not depend on luck. Nor on the clock: a
# machine that does other work too is slow, not wrong.
untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("home", untimed)
settings.register_profile("ci", untimed, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "home")

torch.set_num_threads(1)  # the models are tiny; waiting for threads costs more than they bring


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Random numbers are those of the test alone, whichever tests ran before it in this process."""
    random.seed(0)
    torch.manual_seed(0)


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

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["elmo", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_:
            main()
        out, err = capsys.readouterr()
        return exit_.value.code or 0, out, err

    return run
