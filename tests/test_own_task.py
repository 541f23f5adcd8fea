"""A task of one's own: by module and class, by an entry point, never because a file says so."""

from __future__ import annotations

import re
import shutil
import sys
from importlib import metadata
from pathlib import Path

import pytest

from elmokit import train_task
from elmokit.errors import UserError
from elmokit.tasks import known_tasks, task_class
from elmokit.tasks.model import TaskModel

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "examples" / "own-task"
REFERENCE = "questions:Questions"
FILES = ("--train", "train.tsv", "--dev", "dev.tsv", "--out", "run", "--set", "train.epochs=2", "--threads", "1")


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
    """The example's files in a folder that is nowhere on the path."""
    for file in FOLDER.iterdir():
        if file.is_file():
            shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.delitem(sys.modules, "questions", raising=False)
    yield tmp_path
    sys.modules.pop("questions", None)


@pytest.fixture
def installed(monkeypatch):
    """As if a package with this entry point were installed."""
    found = metadata.entry_points

    def entry_points(**choice):
        own = metadata.EntryPoint("questions", REFERENCE, "elmokit.tasks")
        return [own] if choice == {"group": "elmokit.tasks"} else found(**choice)

    monkeypatch.setattr(metadata, "entry_points", entry_points)


def test_a_task_of_ones_own_by_module_and_class(own_folder, elmo_command, model_folder):
    code, out, err = elmo_command("task", "train", REFERENCE, *FILES, "-m", model_folder, "--cache", "cache")
    assert code == 0, err
    assert "best: epoch" in out
    code, out, err = elmo_command("task", "evaluate", "run", "dev.tsv", "--task", REFERENCE)
    assert (code, out.split()[0]) == (0, "accuracy"), err
    Path("line.txt").write_text("Who was it\n")
    code, out, err = elmo_command("task", "predict", "run", "line.txt", "--task", REFERENCE)
    assert (code, out.split("\t")[1]) == (0, "Who was it\n"), err


def test_a_folder_is_not_believed_about_which_code_to_run(own_folder, elmo_command):
    (own_folder / "questions.py").write_text(
        (own_folder / "questions.py").read_text() + "\nimport pathlib; pathlib.Path('was-run').touch()\n"
    )
    assert elmo_command("task", "train", REFERENCE, *FILES, "-m", "none")[0] == 0
    Path("was-run").unlink()
    del sys.modules["questions"]
    code, _, err = elmo_command("task", "evaluate", "run", "dev.tsv")
    assert code == 1
    assert f"give its class (--task {REFERENCE}" in err
    assert not Path("was-run").exists()
    with pytest.raises(UserError, match="and the class that was given is 'pos'"):
        TaskModel.load("run", task="pos")


def test_an_entry_point_brings_a_task_along(own_folder, elmo_command, installed):
    assert "questions" in known_tasks()
    assert "is it a question?" in elmo_command("task", "list")[1]
    assert elmo_command("task", "train", "questions", *FILES, "-m", "none")[0] == 0
    assert elmo_command("task", "evaluate", "run", "dev.tsv")[0] == 0  # installed, so it is believed


def test_an_entry_point_cannot_replace_a_task_of_ours(own_folder, installed, monkeypatch):
    monkeypatch.setitem(sys.modules["elmokit.tasks"].TASKS, "questions", "elmokit.tasks.pos.task:PartsOfSpeech")
    assert task_class("questions").name == "pos"


def test_a_class_is_a_task_in_python(own_folder):
    questions = task_class(REFERENCE)
    options = {"train": "train.tsv", "dev": "dev.tsv", "settings": ("train.epochs=1",)}
    trained = train_task(questions, out="run", **options)
    again = train_task(questions, out="run", **options)  # resumes: there is nothing left to do
    assert again.predict(["Who was it"]) == trained.predict(["Who was it"])
    assert TaskModel.load("run", task=questions).predict(["Who was it"]) == trained.predict(["Who was it"])


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("nowhere.module:Task", "cannot be imported: ModuleNotFoundError: No module named 'nowhere'"),
        ("questions:Nothing", "questions.py has no 'Nothing'"),
        ("json:loads", "expected a subclass of elmokit.tasks.task.Task"),
        ("broken:Task", "cannot be imported: ZeroDivisionError"),
        ("question", r"unknown task 'question' \(one of your own is package.module:Class\)"),
    ],
)
def test_what_is_wrong_with_a_task_of_ones_own_is_said(own_folder, reference, message):
    (own_folder / "broken.py").write_text("1 / 0\n")
    with pytest.raises(UserError, match=message):
        task_class(reference)


def test_the_guide_shows_the_file_and_its_path():
    page = (ROOT / "docs/guides/new-task.md").read_text(encoding="utf-8")
    assert f"```python\n{(FOLDER / 'questions.py').read_text()}```" in page
    for path in re.findall(r"`((?:src/)?elmokit/tasks/[a-z_/]+(?:\.py)?)`", page):
        assert (ROOT / "src" / path.removeprefix("src/")).exists(), path
