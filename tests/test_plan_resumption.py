"""Runs that are stopped, killed, refused, begun twice or exported: the same call or command resumes them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from elmokit import Elmo, pretrain
from elmokit.errors import UserError
from elmokit.pretrain import preparation
from elmokit.pretrain.corpus import Corpus
from elmokit.pretrain.export import export_run
from elmokit.pretrain.step import Trainer
from helpers.plans import OPTIONS, assert_same, budget, write_text
from helpers.training import OPTIONS as COMMAND
from helpers.training import SMALL, stop_after


@pytest.fixture
def text(tmp_path, monkeypatch) -> str:
    monkeypatch.chdir(tmp_path)
    return write_text()


def test_stopped_and_called_again_it_is_the_same_to_the_bit(text):
    whole = pretrain([text], out="whole", tokens=1500, **OPTIONS)
    cut = pretrain([text], out="run", tokens=1500, **OPTIONS, stop=stop_after(7))
    assert (cut.finished, cut.step) == (False, 7)
    assert 0 < cut.fraction < 1
    assert cut.model.embed(["the of"])[0].shape == (3, 2, 16)  # as far as it came
    assert not Path("run", "model").exists()
    again = pretrain(["text.txt"], out="run", **OPTIONS)  # all that it was begun with
    assert again.finished
    assert again.step == whole.step
    assert_same("whole", "run")


def test_another_budget_replaces_the_runs(text):
    pretrain(text, out="run", tokens=10**6, **OPTIONS, stop=stop_after(3))
    shorter = pretrain(out="run", tokens=900)
    assert shorter.finished
    assert budget("run") == {"tokens": 900, "hours": None}
    longer = pretrain(out="run", epochs=2, resume=True)
    assert longer.finished
    assert longer.step > shorter.step
    corpus = Corpus.open("run/corpus/train")
    assert budget("run")["tokens"] == 2 * (corpus.tokens + corpus.sentences)
    assert pretrain(out="run", hours=1e-6).finished  # used up already
    assert budget("run") == {"tokens": None, "hours": 1e-6}


def test_ctrl_c_ends_a_step_saves_and_is_raised(text):
    whole = pretrain(text, out="whole", tokens=1500, **OPTIONS)
    before = signal.getsignal(signal.SIGINT)

    def press(now) -> None:
        if now.seconds_left is not None:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        pretrain(text, out="run", tokens=1500, **OPTIONS, on_progress=press)
    assert signal.getsignal(signal.SIGINT) is before
    assert [path.name for path in Path("run", "checkpoints").iterdir()] == ["step-000000002"]
    assert pretrain(out="run").step == whole.step
    assert_same("whole", "run")


def test_an_interrupt_between_steps_saves_and_within_a_step_nothing_is_mixed(text, monkeypatch):
    pretrain(text, out="whole", tokens=1500, **OPTIONS)

    def interrupt(now) -> None:
        if now.seconds_left is not None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pretrain(text, out="run", tokens=1500, **OPTIONS, on_progress=interrupt)
    assert [path.name for path in Path("run", "checkpoints").iterdir()] == ["step-000000002"]
    train_step = Trainer.train_step

    def broken(trainer, progress):
        result = train_step(trainer, progress)
        if trainer.step == 5:
            raise KeyboardInterrupt
        return result

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "train_step", broken)
        with pytest.raises(KeyboardInterrupt):
            pretrain(out="run")
    assert [path.name for path in Path("run", "checkpoints").iterdir()] == ["step-000000002"]
    assert pretrain(out="run").finished
    assert_same("whole", "run")


@pytest.mark.parametrize("resumed", [False, True])
def test_a_corpus_is_opened_once(text, monkeypatch, resumed):
    if resumed:
        pretrain(text, out="run", tokens=600, **OPTIONS, stop=stop_after(1))
    opened, open_ = [], Corpus.open.__func__
    monkeypatch.setattr(
        Corpus, "open", classmethod(lambda cls, path: opened.append(path.name) or open_(cls, path))
    )
    if resumed:
        pretrain(out="run", epochs=1)
    else:
        pretrain(text, out="run", epochs=1, **OPTIONS)
    assert opened == ["train", "held-out"]


def test_what_never_came_to_begin_is_begun_anew_and_nothing_else_is_touched(text):
    def fail(now) -> None:
        if now.plan is None:
            raise RuntimeError("while the text is read")

    with pytest.raises(RuntimeError):
        pretrain(text, out="run", tokens=600, **OPTIONS, on_progress=fail)
    assert not Path("run").exists()
    Path("run", ".corpus.abc_1234.tmp", "new", "train").mkdir(parents=True)  # as kill -9 leaves it
    first = pretrain(text, out="run", tokens=600, **OPTIONS, stop=stop_after(1))
    assert not first.finished
    assert not list(Path("run").glob(".*"))
    Path("run", "run.json").unlink()
    Path("run", "notes.txt").touch()
    with pytest.raises(UserError, match="run exists already, and holds no run to resume: choose another name"):
        pretrain(text, out="run", tokens=600, **OPTIONS)
    assert Path("run", "corpus", "train", "meta.json").is_file()


KILLED = """
import os, signal, sys
from elmokit.cli import app
from elmokit.pretrain import preparation
def kill(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)
preparation._Part.add = kill
app(sys.argv[1:])
"""


def test_pretrain_killed_while_tokenizing_is_begun_again_by_the_same_command(text, elmo_command):
    command = ["pretrain", text, "--out", "run", "--tokens", "600", *COMMAND]
    killed = subprocess.run([sys.executable, "-c", KILLED, *command], capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert sorted(path.name[:8] for path in Path("run").iterdir()) == [".corpus.", ".lock"]
    code, _, err = elmo_command("pretrain", "--out", "run", "--resume")
    assert (code, "nothing to resume: begin it again with its text" in err) == (1, True), err
    code, _, err = elmo_command(*command)
    assert code == 0, err
    assert not list(Path("run").glob(".*"))
    code, _, err = elmo_command(*command)  # and a finished one is only opened
    assert (code, "done: run/model" in err) == (0, True), err


def test_the_same_command_resumes_a_stopped_run(text, elmo_command):
    command = ["pretrain", text, "--tokens", "600", *COMMAND]
    pretrain(text, out="run", tokens=600, **OPTIONS, stop=stop_after(2))
    for out in ("run", "whole"):
        assert elmo_command(*command, "--out", out)[0] == 0
    assert_same("run", "whole")
    assert elmo_command(*command, "--out", "run", "--resume")[0] == 0


def test_a_setting_that_is_refused_is_no_dead_end(text):
    with pytest.raises(UserError, match="seed of 0 or more"):
        pretrain(text, out="run", tokens=600, **{**OPTIONS, "settings": [*SMALL, "train.seed=-1"]})
    refused = pretrain(text, out="run", tokens=600, **OPTIONS, stop=stop_after(0))
    assert (refused.finished, refused.step) == (False, 0)
    shutil.rmtree(Path("run", "checkpoints"))  # as one that a later check refused
    pretrain(text, out="run", tokens=600, **{**OPTIONS, "settings": [*SMALL, "train.steps=5"]})
    pretrain(text, out="whole", tokens=600, **{**OPTIONS, "settings": [*SMALL, "train.steps=5"]})
    assert_same("run", "whole")


def test_two_resumes_of_one_folder_at_once_the_second_is_refused(text):
    pretrain(text, out="run", tokens=600, **OPTIONS, stop=stop_after(1))
    refused = []

    def resume_too(now) -> None:
        if now.plan is not None:
            with pytest.raises(UserError, match="another process is training in run: wait for it, or stop it"):
                pretrain(out="run", resume=True)
            refused.append(now.step)

    assert pretrain(out="run", resume=True, on_progress=resume_too).finished
    assert refused == [1]
    pretrain(text, out="whole", tokens=600, **OPTIONS)
    assert_same("run", "whole")


def test_half_written_checkpoints_of_a_killed_run_are_removed(text):
    pretrain(text, out="run", tokens=600, **OPTIONS, stop=stop_after(1))
    for left in ("checkpoints/.step-000000009.abc_1234.tmp", ".model.abc_1234.tmp", ".run.json.abc_1234.tmp"):
        Path("run", left, "new").mkdir(parents=True)
    pretrain(out="run", resume=True)
    assert not list(Path("run").rglob(".*"))


def test_a_stopped_run_is_exported_and_still_resumes(text, elmo_command):
    pretrain(text, out="whole", tokens=600, **OPTIONS)
    pretrain(text, out="run", tokens=600, **OPTIONS, stop=stop_after(3))
    stopped, _, step, fraction, *_ = pretrain(text, out="run", stop=stop_after(0))
    assert (step, 0 < fraction < 1) == (3, True)
    assert not Path("run", "model").exists()
    exported = export_run("run")
    assert exported == Path("run", "model")
    card = (exported / "README.md").read_text()
    told = f"exported at {round(600 * fraction)} of 600 tokens, {100 * fraction:.1f} % of the planned training"
    assert f"| unfinished | {told} |" in card
    for model in ("run", "run/model"):
        np.testing.assert_array_equal(Elmo.from_pretrained(model).embed(["a b"])[0], stopped.embed(["a b"])[0])
    pretrain(out="run", resume=True)
    assert_same("run", "whole")
    assert "unfinished" not in (exported / "README.md").read_text()
    assert (exported / "model.safetensors").read_bytes() == Path("whole/model/model.safetensors").read_bytes()
    with pytest.raises(UserError, match="nowhere holds no training run"):
        export_run("nowhere")


def test_resume_may_be_asked_for_or_ruled_out(text):
    with pytest.raises(UserError, match="run holds no training run"):
        pretrain(out="run", resume=True)
    assert not Path("run").exists()
    pretrain(text, out="run", tokens=300, **OPTIONS, resume=False)
    with pytest.raises(UserError, match="run exists already"):
        pretrain(text, out="run", tokens=300, **OPTIONS, resume=False)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("stage", ["reading", "training"])
def test_a_stopped_pretrain_exits_with_the_signals_code(text, elmo_command, monkeypatch, number, stage):
    def signalled(*arguments, **options):
        os.kill(os.getpid(), number)
        return real(*arguments, **options)

    place, name = (Trainer, "train_step") if stage == "training" else (preparation, "holds_paragraphs")
    real = getattr(place, name)
    command = ["pretrain", text, "--out", "run", "--tokens", "600", *COMMAND]
    with monkeypatch.context() as patched:
        patched.setattr(place, name, signalled)
        assert elmo_command(*command)[0] == 128 + number
    assert not Path("run", "model").exists()
    assert elmo_command(*command)[0] == 0
    assert Path("run", "model").is_dir()


def test_the_command_exports_a_stopped_run(text, elmo_command):
    fraction = pretrain(text, out="run", tokens=600, **OPTIONS, stop=stop_after(3)).fraction
    code, _, err = elmo_command("info", "run/model")
    assert code == 1
    assert f"{100 * fraction:.0f} % done: resume it with `elmo pretrain --out run --resume`" in err
    assert "elmo pretrain --out run --export" in err
    code, _, err = elmo_command("pretrain", "--out", "run", "--export")
    assert (code, "exported: run/model" in err) == (0, True), err
    assert elmo_command("info", "run")[0] == 0
    assert elmo_command("pretrain", "--out", "nowhere", "--export")[0] == 1
