"""The walks of examples/: what their users would run, from end to end."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from elmokit.embed.vectors import open_vectors

EXAMPLES = Path(__file__).parent.parent / "examples"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_paper_from_end_to_end(tmp_path, elmo_command):
    paper = example("paper")
    data = paper.make_up(tmp_path / "data")
    lines = paper.commands(tmp_path, data, [str(data / "text.txt")], tokens=3000, tasks="pos")
    assert [arguments[0] for _, arguments in lines] == "pretrain perplexity probe study study report".split()
    for _, arguments in lines:
        code, _, err = elmo_command(*arguments)
        assert code == 0, err
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    for table in ("Table 1", "Table 3", "Table 4", "Table 6"):
        assert f"{table} of the paper" in page


@pytest.mark.slow
def test_an_engineer_with_a_csv_of_reviews(tmp_path, elmo_command, model_folder, monkeypatch):
    """The commands; tests/test_encode.py has the Python half."""
    reviews = example("reviews")
    rows, test = reviews.read(reviews.REVIEWS), reviews.in_fold(reviews.read(reviews.REVIEWS), 0)
    reviews.write(tmp_path / "train.csv", [row for row, held in zip(rows, test) if not held])
    reviews.write(tmp_path / "dev.csv", [row for row, held in zip(rows, test) if held])
    for arguments in reviews.commands(tmp_path):
        monkeypatch.setenv("ELMO_MODEL", str(model_folder))
        monkeypatch.setenv("ELMOKIT_CACHE", str(tmp_path / "cache"))
        code, out, err = elmo_command(*arguments)
        assert code == 0, err
        assert "text from 'review'" in err
    assert len(open_vectors(tmp_path / "reviews.npz")) == len(rows)  # the header is no row
    assert len(out.splitlines()) == sum(test)
