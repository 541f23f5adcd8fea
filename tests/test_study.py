"""Sweeps over tasks: what runs, what is skipped, what the tables say. Few runs are real: most are written down."""

from __future__ import annotations

import json
import statistics
import subprocess
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from elmokit.cli import app
from elmokit.study.data import open_data
from elmokit.study.experiments import EXPERIMENTS, put_into_page, read_shares
from elmokit.study.sweep import BASELINE, ELMO, PLACEMENT, WEIGHTING, Sweep, sample_variants
from elmokit.study.tables import (
    error_reduction,
    placement_exhibit,
    samples_exhibit,
    tasks_exhibit,
    weights_exhibit,
)

TASKS = Path(__file__).parent / "tasks"
SCORES = {"baseline": [80.0, 81.0, 82.0], "elmo": [85.0, 86.0, 87.0], "both": [84.0] * 3, "output": [70.0] * 3}


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("pos.conllu", "ner.conll"):
        (folder / name).write_bytes((TASKS / name).read_bytes())
    (folder / "study.toml").write_text(
        "\n".join(
            f'[tasks.{name}]\ntitle = "our {name}"\ntrain = "{file}"\ndev = "{file}"\npaper = 21'
            for name, file in (("pos", "pos.conllu"), ("ner", "ner.conll"))
        )
    )
    return folder


def make_sweep(tmp_path, data, variants=(BASELINE, ELMO), tasks=("pos", "ner"), **options):
    return Sweep(tmp_path / "runs", open_data(data), tasks, variants, model="M", digest="d1", **options)


def pretend(sweep, monkeypatch, scores=SCORES):
    """Runs that end at once, with known scores; the folders that were run are returned."""
    ran = []

    def train(trial):
        ran.append(trial)
        name = trial.variant.name
        mix = {p: {"s": [0.2, 0.5, 0.3], "gamma": 1.5} for p in ("input", "output")} if trial.variant.elmo else {}
        write_result(trial.folder, scores[name][trial.seed], mix)

    monkeypatch.setattr(sweep, "_train", train)
    return ran


def write_result(folder, score, mix=None, examples=40):
    folder.mkdir(parents=True, exist_ok=True)
    epochs = [{"scores": {"f1": score - 2}}, {"scores": {"f1": score}}]
    table = {"metric": "f1", "score": score, "seconds": 60.0, "examples": [examples, 10], "epochs": epochs}
    (folder / "results.json").write_text(json.dumps({**table, "mix": mix or {}}))


def test_everything_runs_once_and_is_not_run_again(tmp_path, data, monkeypatch):
    sweep = make_sweep(tmp_path, data)
    ran = pretend(sweep, monkeypatch)
    told = []
    assert sweep.run(2, lambda trial, result: told.append((trial.task, result.score))) == []
    assert len(ran) == len(told) == len(sweep.results()) == 2 * 2 * 3
    again = make_sweep(tmp_path, data, variants=PLACEMENT)
    ran = pretend(again, monkeypatch)
    again.run(1)
    assert {trial.variant.name for trial in ran} == {"both", "output"}


def test_seeds_come_one_after_the_other(tmp_path, data):
    seeds = [trial.seed for trial in make_sweep(tmp_path, data).trials]
    assert seeds == sorted(seeds)


def test_a_failed_run_is_told_and_the_others_go_on(tmp_path, data, monkeypatch):
    sweep = make_sweep(tmp_path, data, seeds=1)
    good = pretend(sweep, monkeypatch)
    train = sweep._train
    monkeypatch.setattr(sweep, "_train", lambda t: None if t.variant is ELMO else train(t))
    failed = sweep.run(2)
    assert [trial.variant for trial in failed] == [ELMO, ELMO]
    assert len(good) == len(sweep.results()) == 2


def test_a_stopped_sweep_begins_nothing_more(tmp_path, data, monkeypatch):
    sweep = make_sweep(tmp_path, data)
    ran = pretend(sweep, monkeypatch)
    assert sweep.run(1, lambda trial, result: sweep.stop()) == []
    assert len(ran) == 1
    assert sweep.stopped


def test_stopping_ends_the_processes(tmp_path, data, monkeypatch):
    sweep = make_sweep(tmp_path, data, seeds=1)
    monkeypatch.setattr(sweep, "command", lambda trial: ["--version"])
    begun, real = threading.Event(), subprocess.Popen

    def sleeper(line, **options):
        process = real(["sleep", "60"], **options)
        begun.set()
        return process

    monkeypatch.setattr("subprocess.Popen", sleeper)
    threading.Thread(target=lambda: (begun.wait(20), sweep.stop())).start()
    assert sweep.run(2) == []  # nothing failed: it was stopped
    assert sweep.results() == []


def test_a_folder_is_of_one_model_and_one_recipe(tmp_path, data):
    make_sweep(tmp_path, data)
    make_sweep(tmp_path, data)
    with pytest.raises(ValueError, match="another recipe"):
        make_sweep(tmp_path, data, recipe="paper")
    with pytest.raises(ValueError, match="another model"):
        Sweep(tmp_path / "runs", open_data(data), ["pos"], [ELMO], model="N", digest="d2")


def options_of(sweep, name, task="pos"):
    (trial,) = [t for t in sweep.trials if t.variant.name == name and t.task == task and t.seed == 0]
    line = sweep.command(trial)
    return {line[i]: line[i + 1] for i in range(3, len(line), 2)} | {"settings": line}


def test_the_variants_are_flags_of_task_train(tmp_path, data):
    found = {v.name: options_of(make_sweep(tmp_path, data, (v,)), v.name) for v in (*WEIGHTING, *PLACEMENT)}
    assert "--elmo" not in found["baseline"]
    assert found["elmo"]["--elmo"] == "M"
    assert found["last"]["--layers"] == "last"
    assert float(found["lambda-1"]["--lambda"]) == 1
    assert [found[name]["--place"] for name in ("elmo", "both", "output")] == ["input", "both", "output"]


def test_a_share_of_the_data_is_a_limit_and_more_epochs(tmp_path, data):
    sweep = make_sweep(
        tmp_path, data, sample_variants([0.125, 1]), settings=["train.epochs=10", "train.decay=0.25"]
    )
    whole, part = options_of(sweep, "elmo"), options_of(sweep, "elmo-0.125")
    examples = len((TASKS / "pos.conllu").read_text().strip().split("\n\n"))
    assert "--limit" not in whole
    assert part["--limit"] == str(round(examples / 8))
    longer = [word for word in part["settings"] if word.startswith("train.")][-3:]
    assert longer == ["train.epochs=20", "train.patience=20", "train.decay=0.5"]  # 8 ^ (1/3) is 2


def test_table_1_by_hand(tmp_path, data, monkeypatch):
    sweep = make_sweep(tmp_path, data)
    pretend(sweep, monkeypatch)
    sweep.run(1)
    exhibit = tasks_exhibit(sweep.results(), open_data(data))
    row = dict(zip(exhibit.columns, exhibit.rows[0]))
    assert row["task"] == "our pos"
    assert row["baseline"] == pytest.approx(81)
    assert row["+ ELMo"] == pytest.approx(86)
    assert row["± baseline"] == pytest.approx(statistics.stdev([80, 81, 82]))
    assert row["errors gone, %"] == pytest.approx(100 * 5 / 19)
    assert row["paper's, %"] == 21
    assert "appears: ahead in pos, ner" in exhibit.notes[-1]
    assert exhibit.svg().startswith("<?xml")
    assert error_reduction(100, 100) == 0


def test_a_gain_within_the_deviation_does_not_count(tmp_path, data, monkeypatch):
    sweep = make_sweep(tmp_path, data)
    pretend(sweep, monkeypatch, {"baseline": [70.0, 80.0, 90.0], "elmo": [85.0, 86.0, 87.0]})
    sweep.run(1)
    assert "does not appear" in tasks_exhibit(sweep.results(), open_data(data)).notes[-1]


def test_placement_and_weights(tmp_path, data, monkeypatch):
    sweep = make_sweep(tmp_path, data, PLACEMENT)
    pretend(sweep, monkeypatch)
    sweep.run(1)
    exhibit = placement_exhibit(sweep.results(), open_data(data))
    assert "pos: ELMo at the input" in exhibit.notes[0]
    assert len(set(exhibit.columns)) == len(exhibit.columns)
    weights = weights_exhibit(sweep.results())
    assert {row[1] for row in weights.rows} >= {"input", "input (of both)", "output (of both)"}
    assert weights.rows[0][2:6] == pytest.approx((0.2, 0.5, 0.3, 1.5))
    assert exhibit.svg()
    assert weights.svg()


def test_what_is_compared_has_the_same_seeds(tmp_path, data, monkeypatch):
    """ELMo has a lucky second seed; the other places have the first alone."""
    sweep = make_sweep(tmp_path, data, (BASELINE, ELMO), ("pos",), seeds=2)
    pretend(sweep, monkeypatch, {"baseline": [80.0, 82.0], "elmo": [84.0, 90.0]})
    sweep.run(1)
    sweep = make_sweep(tmp_path, data, PLACEMENT, ("pos",), seeds=2)
    for name, score in (("both", 85.0), ("output", 83.0)):
        write_result(tmp_path / "runs" / "pos" / name / "seed-0", score)
    exhibit = placement_exhibit(sweep.results(), open_data(data))
    row = dict(zip(exhibit.columns, exhibit.rows[0]))
    assert (row["baseline"], row["ELMo at the input"]) == (80, 84)
    assert row["seeds"] == 1
    assert "pos: ELMo at both" in exhibit.notes[0]


def test_samples(tmp_path, data, monkeypatch):
    shares = [0.1, 1.0]
    sweep = make_sweep(tmp_path, data, sample_variants(shares), seeds=1)
    pretend(sweep, monkeypatch, {"baseline-0.1": [50.0], "elmo-0.1": [49.0], "baseline": [80.0], "elmo": [81.0]})
    sweep.run(1)
    exhibit = samples_exhibit(sweep.results(), open_data(data), shares)
    assert [row[1] for row in exhibit.rows] == [10, 100, 10, 100]
    assert "does not appear: below at pos at 10.0%, ner at 10.0%" in exhibit.notes[-1]
    assert exhibit.svg()


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_too_little_done_is_an_empty_table(tmp_path, data, name):
    for exhibit in EXPERIMENTS[name].exhibits([], open_data(data), [1.0]):
        assert exhibit.rows == ()
        assert exhibit.svg() is None


@pytest.mark.parametrize("text", ["a", "0", "2", "0.1,-1", ""])
def test_shares_that_are_none(text):
    with pytest.raises(ValueError, match="shares"):
        read_shares(text)


def test_the_page_gets_the_table_between_its_marks(tmp_path, data, monkeypatch):
    sweep = make_sweep(tmp_path, data)
    pretend(sweep, monkeypatch)
    sweep.run(1)
    page = tmp_path / "results.md"
    exhibit = tasks_exhibit(sweep.results(), open_data(data))
    page.write_text("# Before\n<!-- tasks -->\nold\n<!-- end tasks -->\nafter\n")
    put_into_page(page, exhibit)
    put_into_page(page, exhibit)
    text = page.read_text()
    assert text.startswith("# Before\n<!-- tasks -->\n| task |")
    assert text.endswith("<!-- end tasks -->\nafter\n")
    assert "old" not in text
    assert text.count("our pos") == 1
    page.write_text("no marks")
    with pytest.raises(ValueError, match="no place"):
        put_into_page(page, exhibit)


def test_data_that_is_not_right(tmp_path, data):
    (data / "study.toml").write_text("[tasks.nerr]\ntrain = 'a'\ndev = 'b'\n")
    with pytest.raises(ValueError, match=r"study.toml: unknown task 'nerr'.*'ner'"):
        open_data(data)
    (data / "study.toml").write_text("[tasks.ner]\ntrain = 'a'\n")
    with pytest.raises(ValueError, match=r"missing key 'tasks.ner.dev'"):
        open_data(data)
    with pytest.raises(ValueError, match="no folder"):
        open_data(data / "absent")


def test_layouts(tmp_path, data):
    assert list(open_data(data).tasks) == ["pos", "ner"]
    assert set(open_data(data, "ko").tasks) == {"sentiment", "pos"}
    assert "squad" in open_data(data, "en").tasks
    own = tmp_path / "own.toml"
    own.write_text("corpus = 'a.txt'\n")
    assert open_data(data, str(own)).corpus == str(data / "a.txt")
    with pytest.raises(ValueError, match="layout: expected en or ko or a file, found 'kr'"):
        open_data(data, "kr")


def test_no_two_exhibits_of_all_experiments_share_a_name(tmp_path, data):
    """Else one's table would take the other's place, in a page and among saved files."""
    found = open_data(data)
    names = [exhibit.name for e in EXPERIMENTS.values() for exhibit in e.exhibits([], found, [0.1, 1.0])]
    assert len(names) == len(set(names)) >= 6


def test_tasks_without_their_files_are_left_out(tmp_path, data):
    (data / "ner.conll").unlink()
    found = open_data(data)
    assert found.choose(None) == ["pos"]
    with pytest.raises(ValueError, match="there is no file"):
        found.choose(["ner"])
    assert open_data(tmp_path).choose(None) == []  # the pack's layout, and nothing of it


def test_a_real_study_by_the_command(tmp_path, data, model_folder):
    line = ["study", "tasks", "--data", data, "-m", model_folder, "--out", tmp_path / "runs", "--tasks", "pos"]
    line += ["--seeds", 1, "--set", "cells=8", "--set", "train.epochs=1", "--cache", tmp_path / "cache", "--json"]
    result = CliRunner().invoke(app, [*map(str, line), "--save", str(tmp_path / "saved")])
    assert result.exit_code == 0, result.output + repr(result.exception)
    tables = {table["name"]: table for table in json.loads(result.stdout)}
    assert len(tables["tasks"]["rows"]) == 1
    assert sum(tables["weights"]["rows"][0][2:5]) == pytest.approx(1)
    assert {path.suffix for path in (tmp_path / "saved").glob("tasks.*")} == {".csv", ".json", ".png", ".svg"}
    assert "pos, elmo, seed 0" in result.stderr


def test_a_study_whose_runs_fail_says_where_the_reason_is(tmp_path, data, model_folder):
    line = ["study", "tasks", "--data", data, "-m", model_folder, "--out", tmp_path / "runs", "--tasks", "pos"]
    result = CliRunner().invoke(app, [*map(str, line), "--seeds", "1", "--set", "cells=-1"])
    assert isinstance(result.exception, ValueError)
    assert "seed-0.log" in str(result.exception)
