"""A whole run: its folder, its interruptions, its command, and several processes."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from elmokit import Elmo
from elmokit.errors import UserError
from elmokit.pretrain import checkpoints
from elmokit.pretrain.metrics import read_metrics
from elmokit.pretrain.recipe import load_recipe
from elmokit.pretrain.run import Run
from elmokit.pretrain.run_config import Budget, RunConfig
from helpers.training import OPTIONS, SMALL, SPREAD, made_up_text, make_run, stop_after


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(sorted((folder / "checkpoints").glob("step-*"))[-1] / "training.safetensors")


def assert_same(one: Path, two: Path) -> None:
    first, second = tensors(one), tensors(two)
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name


def test_a_run_trains_measures_saves_and_exports(tmp_path):
    run = make_run(tmp_path / "run")
    events = []
    outcome = run.train(events.append)
    run.close()
    assert outcome.finished
    losses = [event.loss for event in events if event.loss is not None]
    assert losses[-1] < losses[0]
    assert [event.fraction for event in events] == sorted(event.fraction for event in events)
    assert [e.perplexity.mean for e in events if e.stage == "measuring"] == [
        row["perplexity"] for row in read_metrics(tmp_path / "run") if "perplexity" in row
    ]
    rows = read_metrics(tmp_path / "run")
    seconds = [row["cpu_seconds"] for row in rows]
    assert seconds == sorted(seconds)
    assert 0 < seconds[0] < seconds[-1] == round(run.cpu_seconds, 3)
    measured = [row["perplexity"] for row in rows if "perplexity" in row]
    assert len(measured) == 4
    assert measured[-1] < measured[0]
    assert outcome.perplexity.mean == measured[-1]
    assert (tmp_path / "run" / "curve.png").stat().st_size > 1000
    assert list((tmp_path / "run" / "tensorboard").iterdir())
    elmo = Elmo.from_pretrained(tmp_path / "run" / "model")
    assert elmo.embed(["the of and ."])[0].shape == (3, 4, 16)
    assert f"mean {measured[-1]:.2f}" in (elmo.checkpoint.card or "")
    assert len(list((tmp_path / "run" / "checkpoints").iterdir())) <= 2


@pytest.mark.parametrize(
    ("stops", "settings"),
    [
        ([3], ()),
        ([0, 17, 1], ()),
        ([5], ("train.softmax_width=12",)),
        ([5], ("train.softmax_width=5", "train.full_softmax=1", "train.negatives=12")),
        ([4, 9], ("optimizer.kind=muon", "train.full_softmax=1", "train.negatives=12")),
        ([5], ("train.softmax_width=5", "train.full_softmax=1", "train.negatives=12", "train.precision=bfloat16")),
    ],
)
def test_stopped_and_resumed_the_run_is_the_same_to_the_bit(tmp_path, stops, settings):
    whole = make_run(tmp_path / "whole", settings=settings)
    whole.train()
    whole.close()
    run = make_run(tmp_path / "run", settings=settings)
    for steps in stops:
        outcome = run.train(stop=stop_after(steps))
        assert not outcome.finished
        run.close()
        run = Run.open(tmp_path / "run")
    assert run.train().finished
    run.close()
    assert_same(tmp_path / "whole", tmp_path / "run")

    def lines(folder):
        timed = {"seconds", "cpu_seconds", "tokens_per_second"}
        return [{k: v for k, v in row.items() if k not in timed} for row in read_metrics(folder)]

    assert lines(tmp_path / "whole") == lines(tmp_path / "run")


def test_on_the_level_a_budget_may_change_as_if_it_had_always_been_that(tmp_path):
    level = ("optimizer.schedule=trapezoid", "optimizer.warmup=0.0")
    whole = make_run(tmp_path / "whole", tokens=1500, settings=level)
    whole.train()
    whole.close()
    run = make_run(tmp_path / "run", tokens=100_000, settings=level)
    assert not run.train(stop=stop_after(10)).finished
    run.close()
    Run.open(tmp_path / "run", budget=Budget(tokens=1500)).close()
    shorter = Run.open(tmp_path / "run")  # the budget is kept
    assert shorter.train().finished
    shorter.close()
    assert_same(tmp_path / "whole", tmp_path / "run")
    longer = Run.open(tmp_path / "run", budget=Budget(tokens=1800))
    assert longer.train().finished
    assert longer.trainer.tokens > shorter.trainer.tokens
    longer.close()


def test_a_run_of_the_old_spelling_resumes(tmp_path):
    """0.1.0 wrote "optimiser" into run.json and into the names of tensors, and counted no CPU seconds."""
    run = make_run(tmp_path / "run")
    run.train(stop=stop_after(3))
    run.close()
    before = run.trainer.optimizer.state_dict()
    table = json.loads((tmp_path / "run" / "run.json").read_bytes())
    table["recipe"]["optimiser"] = table["recipe"].pop("optimizer")
    (tmp_path / "run" / "run.json").write_text(json.dumps(table))
    (folder,) = (tmp_path / "run" / "checkpoints").iterdir()
    old = {name.replace("optimizer.", "optimiser."): tensor for name, tensor in tensors(tmp_path / "run").items()}
    save_file(old, folder / "training.safetensors")
    progress = json.loads((folder / "progress.json").read_bytes())
    assert progress.pop("cpu_seconds") > 0
    (folder / "progress.json").write_text(json.dumps(progress))
    again = Run.open(tmp_path / "run")
    assert again.config == run.config
    assert all(torch.equal(before[name], tensor) for name, tensor in again.trainer.optimizer.state_dict().items())
    assert (again.trainer.step, again.cpu_seconds) == (run.trainer.step, 0.0)
    again.close()


def test_a_damaged_last_checkpoint_falls_back_to_the_one_before(tmp_path):
    run = make_run(tmp_path / "run", checkpoint_seconds=0.0)  # one after every step
    run.train(stop=stop_after(6))
    run.close()
    last = sorted((tmp_path / "run" / "checkpoints").iterdir())[-1]
    os.truncate(last / "training.safetensors", 100)
    again = Run.open(tmp_path / "run")
    assert again.trainer.step == 5
    assert again.train().finished
    again.close()


def test_a_full_disk_makes_training_wait(tmp_path, monkeypatch):
    run = make_run(tmp_path / "run")
    monkeypatch.setattr(checkpoints, "SECONDS_BETWEEN_TRIES", 0.0)
    tries = 0
    save = checkpoints.save_file

    def full_at_first(*arguments):
        nonlocal tries
        tries += 1
        if tries < 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        save(*arguments)

    monkeypatch.setattr(checkpoints, "save_file", full_at_first)
    events = []
    assert run.train(events.append).finished
    run.close()
    told = [event.message for event in events if event.message]
    assert (
        told[:2]
        == [f"the disk is full, training waits: free some space for {tmp_path / 'run' / 'checkpoints'}"] * 2
    )


def test_how_long_it_takes_is_told_by_the_first_steps_for_real(tmp_path, monkeypatch):
    """Nothing is tried out, so nothing need be kept to take it back: the state is gathered only to be saved."""
    run = make_run(tmp_path / "run", report_steps=1000)
    gathered, events, gather = [], [], run.trainer.state_dict
    monkeypatch.setattr(run.trainer, "state_dict", lambda: gathered.append(run.trainer.step) or gather())
    run.train(events.append)
    run.close()
    (told,) = [event for event in events if event.seconds_left is not None]
    assert (told.step, told.fraction) == (2, told.tokens / 2000)
    assert told.seconds_left == pytest.approx((2000 - told.tokens) / told.tokens_per_second)
    assert gathered == [run.trainer.step]


@pytest.mark.parametrize("budget", [{}, {"tokens": 1, "hours": 1.0}, {"tokens": 0}, {"hours": -1.0}])
def test_a_budget_is_tokens_or_hours(budget):
    with pytest.raises(UserError, match="budget"):
        Budget(**budget)


@pytest.mark.parametrize("wrong", ["evaluations", "held_out_sentences", "report_steps"])
def test_measuring_never_is_refused(wrong):
    with pytest.raises(UserError, match=f"{wrong}: expected 1 or more, found 0"):
        RunConfig(load_recipe("tiny"), Budget(tokens=1), **{wrong: 0})


def test_a_budget_of_hours_ends(tmp_path):
    run = make_run(tmp_path / "run")
    timed = Run(tmp_path / "run", RunConfig(run.config.recipe, Budget(hours=0.0001)))
    run.close()
    assert timed.train().finished
    timed.close()


def test_the_command_trains_a_model_that_the_other_commands_use(elmo_command, tmp_path):
    Path("text.txt").write_text(made_up_text(120))
    code, out, err = elmo_command("pretrain", "text.txt", "--out", "run", "--tokens", "1500", *OPTIONS)
    assert code == 0, err
    assert "The plan" in err
    assert "held-out perplexity: forward" in out
    code, out, err = elmo_command("perplexity", "-m", "run/model", "text.txt", "--json")
    assert code == 0, err
    assert json.loads(out)["mean"] < 29
    assert elmo_command("pretrain", "text.txt", "--out", "run", *OPTIONS)[0] == 0  # only opened


def test_how_often_and_on_how_much_to_measure(elmo_command):
    Path("text.txt").write_text(made_up_text(120))
    measuring = ["--evaluations", "3", "--held-out-sentences", "4"]
    code, _, err = elmo_command("pretrain", "text.txt", "--out", "run", "--tokens", "1500", *OPTIONS, *measuring)
    assert code == 0, err
    assert sum("perplexity" in row for row in read_metrics(Path("run"))) == 3
    run = Run.open(Path("run"))
    assert run.corpus.held_out.sentences > 4
    assert len(list(run.held_out_sentences())) == 4
    assert run.measured.sentences == 4
    run.close()


def test_a_softmax_of_another_width_by_command(elmo_command):
    Path("text.txt").write_text(made_up_text(120))
    wide = [*OPTIONS, "--set", "train.softmax_width=12"]
    code, _, err = elmo_command("pretrain", "text.txt", "--out", "run", "--tokens", "1500", *wide)
    assert code == 0, err
    assert "all computed, 12 wide" in err
    assert "by a softmax 12 wide" in json.loads(elmo_command("info", "run/model", "--json")[1])["predicts"]
    code, out, _ = elmo_command("perplexity", "-m", "run/model", "text.txt", "--json")
    assert (code, json.loads(out)["mean"] < 29) == (0, True)
    for command in (["score", "-m", "run/model", "text.txt"], ["fill", "the ___ and", "--model", "run/model"]):
        assert elmo_command(*command)[0] == 0
    # bilm-tf's files have no softmax: the head stays behind, with or without a map
    assert elmo_command("convert", "run/model", "-o", "pair", "--to", "bilm")[0] == 0
    assert json.loads(elmo_command("info", "pair", "--json")[1])["predicts"] == "nothing"
    assert elmo_command("convert", "run/model", "-o", "half", "--weights", "float16")[0] == 0
    assert elmo_command("perplexity", "-m", "half", "text.txt")[0] == 0


def start(arguments, cwd):
    command = [sys.executable, "-m", "elmokit", "pretrain", *arguments]
    return subprocess.Popen(command, cwd=cwd, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def wait_for(path, process):
    while process.poll() is None and not list(path.parent.glob(path.name)):
        time.sleep(0.02)


@pytest.mark.slow
def test_interrupted_the_command_ends_well_and_says_how_to_resume_and_killed_it_loses_little(tmp_path):
    (tmp_path / "text.txt").write_text(made_up_text(120))
    arguments = ["text.txt", "--out", "run", "--tokens", "40000", "--threads", "1", *OPTIONS]
    with start([*arguments, "--checkpoint-minutes", "0.001"], tmp_path) as process:
        wait_for(tmp_path / "run" / "checkpoints" / "step-*", process)
        process.send_signal(signal.SIGINT)
        message = process.communicate()[1]
    assert process.returncode == 130, message
    assert "pretrain --out run --resume" in message
    with start(["--out", "run", "--resume", "--threads", "1"], tmp_path) as process:
        before = max(path.name for path in (tmp_path / "run" / "checkpoints").glob("step-*"))
        while (
            process.poll() is None
            and max((path.name for path in (tmp_path / "run" / "checkpoints").glob("step-*")), default="")
            <= before
        ):
            time.sleep(0.02)
        process.kill()
    again = Run.open(tmp_path / "run")
    assert again.trainer.step > int(before.removeprefix("step-"))
    again.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sampled", "softmax_width", "kind"),
    [(False, 0, "adamw"), (False, 5, "adamw"), (True, 0, "adamw"), (True, 5, "adamw"), (True, 5, "muon")],
)
def test_two_processes_train_as_one_does(tmp_path, sampled, softmax_width, kind):
    """The same rows, shared: the same losses. And a run resumes at another number of processes."""
    changes = ["train.full_softmax=1", "train.negatives=12"] if sampled else []
    curves = {}
    for name in ("one", "two"):
        folder = tmp_path / name
        run = make_run(folder, tokens=3000)
        recipe = load_recipe(
            "tiny",
            [
                *SMALL,
                *changes,
                "train.dropout=0.2",
                f"train.softmax_width={softmax_width}",
                f"optimizer.kind={kind}",
            ],
        )
        Run.create(folder, RunConfig(recipe, Budget(tokens=3000), report_steps=1, evaluations=2)).close()
        run.close()
        if name == "two":
            (tmp_path / "spread.py").write_text(SPREAD)
            command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
            process = subprocess.run(
                [*command, tmp_path / "spread.py", folder],
                capture_output=True,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
            assert process.returncode == 0, process.stderr
        else:
            alone = Run.open(folder)
            alone.train()
            alone.close()
        curves[name] = [row["loss"] for row in read_metrics(folder) if "loss" in row]
    assert len(curves["one"]) > 20
    np.testing.assert_allclose(curves["one"], curves["two"], atol=1e-4)
    # what two processes saved, one can resume
    again = Run.open(tmp_path / "two")
    assert again.trainer.state.hidden.shape[2] == 8
    again.close()


@pytest.mark.slow
def test_two_processes_begin_a_run_together_and_a_budget_of_hours_ends_for_both(tmp_path):
    (tmp_path / "text.txt").write_text(made_up_text(120))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
    process = subprocess.run(
        [*command, "elmokit", "pretrain", "text.txt", "--out", "run", "--hours", "0.0003", *OPTIONS],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.returncode == 0, process.stderr
    assert (tmp_path / "run" / "model" / "config.json").is_file()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds the ranks by /proc")
def test_a_process_that_dies_ends_the_run_with_a_message_and_the_run_resumes_later(tmp_path):
    make_run(tmp_path / "run", tokens=10**7, checkpoint_seconds=0.5).close()
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "-m",
        "elmokit",
    ]
    process = subprocess.Popen(
        [*command, "pretrain", "--out", "run", "--resume"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    wait_for(tmp_path / "run" / "checkpoints" / "step-*", process)
    for entry in Path("/proc").iterdir():
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
            mine = f"PPid:\t{process.pid}\n" in (entry / "status").read_text()
        except OSError:
            continue
        if mine and b"RANK=1" in variables:
            os.kill(int(entry.name), signal.SIGKILL)
    message = process.communicate(timeout=120)[1]
    assert process.returncode != 0
    assert "another process of this run is gone" in message
    again = Run.open(tmp_path / "run")
    assert again.trainer.step > 0
    again.close()
