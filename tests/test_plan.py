"""Pretraining as one call in Python: its way told, settings compared, what is wrong said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from inspect import signature
from pathlib import Path

import numpy as np
import pytest

import elmokit
from elmokit import Elmo, pretrain
from elmokit.cli.shared.training import duration
from elmokit.errors import UserError
from elmokit.pretrain.metrics import read_metrics
from helpers.plans import OPTIONS, assert_same, write_text
from helpers.training import SMALL, stop_after


@pytest.fixture
def text(tmp_path, monkeypatch) -> str:
    monkeypatch.chdir(tmp_path)
    return write_text()


ORDERS = {
    "the function first": "from elmokit import pretrain; import elmokit.pretrain.run as run",
    "the module first": "import elmokit.pretrain.run as run; from elmokit import pretrain",
    "by attribute": "import elmokit; pretrain = elmokit.pretrain; import elmokit.pretrain.run as run",
    "finetune first": "from elmokit import finetune, pretrain; from elmokit.pretrain import run",
}


@pytest.mark.parametrize("order", ORDERS)
def test_the_package_and_the_function_are_one_name_in_any_order_of_imports(order):
    script = f"""
{ORDERS[order]}
import elmokit, inspect, sys
assert pretrain is elmokit.pretrain is sys.modules["elmokit.pretrain"]
assert elmokit.pretrain.run is run
from elmokit import pretrain as again
assert again is pretrain
assert list(inspect.signature(pretrain).parameters)[:3] == ["texts", "out", "recipe"]
try:
    pretrain(out="nowhere")
except elmokit.pretrain.request.UserError as error:
    assert "no text given" in str(error)
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_model_is_trained_and_the_way_to_it_is_told(text):
    events = []
    trained = pretrain([text], out="run", tokens=1500, **OPTIONS, on_progress=events.append)
    assert trained.finished
    assert trained.fraction == 1
    assert list(dict.fromkeys(event.stage for event in events)) == [
        "reading",
        "training",
        "measuring",
    ]
    read, *others = events
    assert (read.fraction, read.plan) == (1.0, None)
    assert others[0].plan.words == len(trained.model.checkpoint.vocabulary)
    assert sum(event.plan is not None for event in events) == 1
    fractions = [event.fraction for event in others]
    assert (fractions, fractions[0], fractions[-1]) == (sorted(fractions), 0, 1)
    measured = [event.perplexity for event in events if event.perplexity is not None]
    assert [p.mean for p in measured] == [
        row["perplexity"] for row in read_metrics(Path("run")) if "perplexity" in row
    ]
    assert trained.perplexity == measured[-1]
    saved = Elmo.from_pretrained("run/model")
    for one, two in zip(trained.model.embed(["the of and ."]), saved.embed(["the of and ."])):
        np.testing.assert_array_equal(one, two)


def test_lines_that_are_skipped_are_told(text):
    Path("bad.txt").write_bytes(Path(text).read_bytes() + b"\xff\n\xfe\n")
    events = []
    pretrain("bad.txt", out="run", tokens=300, on_bad_line="skip", **OPTIONS, on_progress=events.append)
    first = next(event for event in events if event.message)
    assert (first.stage, first.fraction) == ("reading", 1.0)
    assert [event.message for event in events if event.message] == ["skipped 2 lines that cannot be read"]


def test_called_again_a_finished_run_is_only_opened(text):
    first = pretrain(text, out="run", tokens=600, **OPTIONS)
    before = {path: path.stat().st_mtime_ns for path in Path("run", "checkpoints").rglob("*")}
    metrics = Path("run", "metrics.jsonl").read_bytes()
    events = []
    again = pretrain(out="run", on_progress=events.append)
    assert again.finished
    assert (again.step, again.perplexity) == (first.step, first.perplexity)
    assert again.model.checkpoint.digest == first.model.checkpoint.digest
    assert {path: path.stat().st_mtime_ns for path in Path("run", "checkpoints").rglob("*")} == before
    assert Path("run", "metrics.jsonl").read_bytes() == metrics
    assert [event.loss for event in events if event.loss is not None] == []


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"recipe": "small"}, r"train.rows: the run has 8, found 64"),
        ({"settings": ["train.rows=16"]}, r"\(train.rows: the run has 8, found 16\)"),
        ({"settings": ["optimizer.clip_norm=5"]}, r"optimizer.clip_norm: the run has 10.0, found 5.0"),
        ({"texts": ["other.txt"]}, r"texts: the run has \['text.txt'\], found \['other.txt'\]"),
        ({"held_out": 0.2}, r"held_out: the run has 0.1, found 0.2"),
        (
            {"evaluations": 3, "sentences": "split"},
            r"sentences: the run has 'lines', found 'split'; evaluations: the",
        ),
        ({"checkpoint_minutes": 1.0}, r"checkpoint_minutes: the run has 5.0, found 1.0"),
        ({"on_bad_line": "skip"}, r"on_bad_line: the run has 'refuse', found 'skip'"),
        ({"vectors": "glove.txt"}, r"vectors: the run has None, found 'glove.txt'"),
    ],
)
def test_other_settings_than_the_runs_are_refused(text, asked, message):
    pretrain(text, out="run", tokens=600, **OPTIONS, stop=stop_after(1))
    Path("other.txt").write_text("the of\n")
    before = Path("run", "run.json").read_bytes()
    with pytest.raises(
        UserError, match=rf"run was begun with other settings .*{message}.* leave them out to resume"
    ):
        pretrain(out="run", tokens=900, **asked)
    assert Path("run", "run.json").read_bytes() == before  # nor is the budget changed


def test_the_same_settings_said_otherwise_are_the_same(text):
    pretrain(text, out="run", tokens=600, **OPTIONS, stop=stop_after(1))
    trained = pretrain(
        [Path("./text.txt")],
        out="run",
        settings=["train.rows = 8", "optimizer.learning_rate=1e-2"],
        sentences="auto",
    )
    assert trained.finished


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokens": 9, "hours": 1.0}, "three ways to say one thing"),
        ({"epochs": 0}, "more than nothing, found 0"),
        ({"tokens": -3}, "more than nothing, found -3"),
        ({"sentences": "words"}, "sentences: expected auto, lines, split, found 'words'"),
        ({"evaluations": 0}, "evaluations: expected 1 or more, found 0"),
        ({"checkpoint_minutes": -1.0}, "checkpoint_minutes: expected 0 or more"),
        ({"recipe": "smal"}, "did you mean 'small'"),
        ({"vectors": "none.txt"}, "none.txt"),
    ],
)
def test_what_is_wrong_is_said_before_the_text_is_read(text, options, message):
    events = []
    with pytest.raises(UserError, match=message):
        pretrain(text, out="run", **{**OPTIONS, **options}, on_progress=events.append)
    assert not events
    assert not Path("run").exists()


def test_the_command_refuses_other_settings_too(text, elmo_command):
    pretrain(text, out="run", tokens=600, **OPTIONS, stop=stop_after(1))
    code, _, err = elmo_command("pretrain", "--out", "run", "--resume", "--evaluations", "3")
    assert code == 1
    assert "evaluations: the run has 2, found 3" in err
    code, _, err = elmo_command("pretrain", "--out", "run", "--resume", "--set", "train.rows=8")
    assert code == 0, err
    assert "takes about" in err


SPREAD = """
import sys
from elmokit import pretrain
events = []
options = {"recipe": "tiny", "settings": sys.argv[2:], "tokens": int(sys.argv[1])}
trained = pretrain("text.txt", out="run", **options, on_progress=events.append)
print(trained.finished, trained.step, bool(events), trained.model.embed(["the of"])[0].shape)
"""


def test_processes_that_torchrun_started_call_it_alike(text):
    Path("spread.py").write_text(SPREAD)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    steps = []
    for tokens in ("600", "1200"):  # begun together, and resumed together with another budget
        process = subprocess.run(
            [*command, "spread.py", tokens, *SMALL], capture_output=True, text=True, env=environment
        )
        assert process.returncode == 0, process.stderr
        one, two = sorted(line.split(maxsplit=3) for line in process.stdout.splitlines())
        assert (one[2], two[2]) == ("False", "True")  # the first alone is told
        assert [one[0], one[1], one[3]] == [two[0], two[1], two[3]] == ["True", two[1], "(3, 2, 16)"]
        steps.append(int(one[1]))
    assert steps[0] < steps[1]
    alone = pretrain(text, out="alone", recipe="tiny", settings=SMALL, tokens=600)
    assert alone.step == steps[0]


def test_the_old_word_for_no_memory_is_read(text):
    """0.1.0 said "reset" for what is "zero" everywhere else."""
    settings = [*SMALL, "train.state=zero"]
    options = {**OPTIONS, "settings": settings}
    pretrain(text, out="whole", tokens=900, **options)
    pretrain(
        text, out="run", tokens=900, **{**options, "settings": [*SMALL, "train.state=reset"]}, stop=stop_after(3)
    )
    path = Path("run", "run.json")
    table = json.loads(path.read_bytes())
    assert table["recipe"]["train"]["state"] == "zero"
    table["recipe"]["train"]["state"] = "reset"
    path.write_text(json.dumps(table))
    assert pretrain(out="run", settings=["train.state=reset"]).finished
    assert_same("whole", "run")
    Path("old.toml").write_text('[train]\nstate = "reset"\n')
    assert elmokit.pretrain.recipe.load_recipe("old.toml").train.state == "zero"
    with pytest.raises(UserError, match=r"'train.state': expected one of 'carry', 'zero', 'either', found 'rest'"):
        elmokit.pretrain.recipe.load_recipe("tiny", ["train.state=rest"])


def test_what_editors_show_is_the_functions_signature():
    from elmokit.pretrain.plan import pretrain as function

    assert signature(pretrain) == signature(function)


@pytest.mark.parametrize(
    ("seconds", "shown"), [(-30.0, "0 min 00 s"), (0.4, "0 min 00 s"), (7259.6, "2 h 01 min")]
)
def test_the_time_left_is_never_less_than_nothing(seconds, shown):
    assert duration(seconds) == shown
