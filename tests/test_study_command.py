"""elmo study: what it prints, saves and puts into a page; how it ends."""

from __future__ import annotations

import json
import os
import signal

import pytest
from typer.testing import CliRunner

from elmokit.cli import app
from elmokit.study.data import open_data
from elmokit.study.markdown import check_page, put_into_page
from elmokit.study.study import Study
from elmokit.study.sweep import Sweep
from elmokit.study.tables import tasks_exhibit
from helpers.studies import TASKS, make_sweep, pretend, write_data, write_result


@pytest.fixture
def data(tmp_path):
    return write_data(tmp_path / "data")


@pytest.fixture
def study(tmp_path, data, model_folder, monkeypatch):
    """The command over runs that end at once; `elmo study WHAT --data DATA ...`."""

    def train(sweep, trial):
        mix = {"input": {"s": [0.2, 0.5, 0.3], "gamma": 1.5}} if trial.variant.elmo else {}
        write_result(trial.folder, 85.0 if trial.variant.elmo else 80.0, mix)

    monkeypatch.setattr(Sweep, "_train", train)

    def run(what, *options):
        line = ["study", what, "--data", data, "-m", model_folder, "--out", tmp_path / "runs", "--seeds", 1]
        return CliRunner().invoke(app, [*map(str, line), *map(str, options)])

    return run


def test_the_page_gets_the_table_between_its_marks(tmp_path, data, monkeypatch):
    sweep = make_sweep(tmp_path, data)
    pretend(sweep, monkeypatch)
    sweep.run(1)
    page = tmp_path / "results.md"
    exhibit = tasks_exhibit(sweep.results(), open_data(data))
    page.write_text("# Before\n<!-- tasks -->\nold\n<!-- end tasks -->\nafter\n")
    assert put_into_page(page, [exhibit]) == []
    assert put_into_page(page, [exhibit]) == []
    text = page.read_text()
    assert text.startswith("# Before\n<!-- tasks -->\n| task |")
    assert text.endswith("<!-- end tasks -->\nafter\n")
    assert "old" not in text
    assert text.count("our pos") == 1
    page.write_text("no marks")
    with pytest.raises(ValueError, match="no place for tasks or weights: expected a line <!-- tasks -->"):
        check_page(page, ["tasks", "weights"])
    page.write_text("<!-- tasks -->\n")
    with pytest.raises(ValueError, match="expected a line <!-- end tasks -->, found none"):
        check_page(page, ["tasks", "weights"])


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_study_whose_runs_fail_says_where_the_reason_is(tmp_path, data, model_folder):
    line = ["study", "tasks", "--data", data, "-m", model_folder, "--out", tmp_path / "runs", "--tasks", "pos"]
    early = CliRunner().invoke(app, [*map(str, line), "--seeds", "1", "--set", "cells=-1"])
    assert str(early.exception) == "pos: cells: expected 0 or more, found -1"
    assert not (tmp_path / "runs").exists()
    result = CliRunner().invoke(app, [*map(str, line), "--seeds", "1", "--set", "train.learning_rate=-1.0"])
    assert isinstance(result.exception, ValueError)
    assert "seed-0.log" in str(result.exception)


def test_a_page_has_marks_for_some_of_the_tables(tmp_path, study):
    page = tmp_path / "results.md"
    page.write_text("<!-- tasks -->\n<!-- end tasks -->\n")
    result = study("tasks", "--page", page)
    assert result.exit_code == 0, result.output + repr(result.exception)
    assert "our pos" in page.read_text()
    assert "no line <!-- weights -->" in result.stderr


def test_a_page_without_marks_is_refused_before_anything_runs(tmp_path, study):
    (tmp_path / "results.md").write_text("no marks")
    result = study("tasks", "--page", tmp_path / "results.md")
    assert "no place for tasks or weights" in str(result.exception)
    (tmp_path / "file").write_text("")
    assert "expected a folder" in str(study("tasks", "--save", tmp_path / "file").exception)
    assert not (tmp_path / "runs").exists()


def test_what_is_done_is_shown_and_saved_though_a_run_failed(tmp_path, study, monkeypatch):
    train = Sweep._train
    monkeypatch.setattr(Sweep, "_train", lambda sweep, trial: trial.task == "pos" and train(sweep, trial))
    result = study("tasks", "--save", tmp_path / "saved", "--json")
    assert result.exit_code == 1
    assert "2 of the runs failed" in str(result.exception)
    assert f"runs{os.sep}ner{os.sep}baseline{os.sep}seed-0.log" in str(result.exception)
    assert [row[0] for row in json.loads(result.stdout)[0]["rows"]] == ["our pos"]
    assert (tmp_path / "saved" / "tasks.csv").is_file()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_study_exits_with_the_signals_code(tmp_path, study, monkeypatch, number):
    train = Sweep._train
    monkeypatch.setattr(Sweep, "_train", lambda sweep, trial: (train(sweep, trial), os.kill(os.getpid(), number)))
    result = study("tasks", "--jobs", 1)
    assert result.exit_code == 128 + number
    assert "the same command resumes" in result.stderr


def test_data_without_the_papers_tasks_give_all_that_they_have(study):
    result = study("weighting", "--json")
    assert result.exit_code == 0, result.output + repr(result.exception)
    assert "none of squad, entailment, srl: taking pos, ner; --tasks chooses" in result.stderr
    assert [row[0] for row in json.loads(result.stdout)[0]["rows"]] == ["our pos", "our ner"]
    samples = study("samples", "--json")
    assert [row[0] for row in json.loads(samples.stdout)[0]["rows"]] == ["our ner"] * 4
    assert "--tasks chooses" not in samples.stderr


def test_one_call_in_python_does_what_the_command_does(tmp_path, study, data, model_folder):
    (tmp_path / "results.md").write_text("<!-- weighting -->\n<!-- end weighting -->\n")
    told = []
    planned = Study("weighting", model_folder, data=data, out=tmp_path / "python", page=tmp_path / "results.md")
    assert planned.notes == ["the data has none of squad, entailment, srl: taking pos, ner; --tasks chooses"]
    assert not any(trial.done for trial in planned.trials)
    exhibits = planned.run(1, lambda trial, measured: told.append((trial.task, measured.score)))
    assert [exhibit.facts() for exhibit in exhibits] == json.loads(study("weighting", "--json").stdout)
    assert len(told) == len(planned.trials) == 8
    assert (planned.failed, planned.stopped) == ([], False)
    assert "our pos" in (tmp_path / "results.md").read_text()
    told.clear()
    again = Study("weighting", model_folder, data=data, out=tmp_path / "python", tasks=["ner"])
    assert again.notes == []
    assert [row[0] for row in again.run(on_trial=lambda *each: told.append(each))[0].rows] == ["our ner"]
    assert told == []  # all was done
    stopped = Study("placement", model_folder, data=data, out=tmp_path / "python")
    assert len(stopped.run(1, stop=lambda: True)) == 2  # the tables of what other studies have done
    assert stopped.stopped


def test_studies_that_are_none(tmp_path, data, model_folder):
    with pytest.raises(ValueError, match="unknown study 'weights': did you mean 'weighting'"):
        Study("weights", model_folder, data=data, out=tmp_path / "runs")
    for shares in ([], [0.0], [2]):
        with pytest.raises(ValueError, match="shares: each is more than 0 and at most 1"):
            Study("samples", model_folder, data=data, out=tmp_path / "runs", shares=shares)
    with pytest.raises(ValueError, match="seeds: expected 1 or more, found 0"):
        Study("tasks", model_folder, data=data, out=tmp_path / "runs", seeds=0)
    assert not (tmp_path / "runs").exists()


def test_other_data_are_refused(study, data):
    assert study("tasks").exit_code == 0
    (data / "pos.conllu").write_text((TASKS / "pos.conllu").read_text() + "\n")
    result = study("tasks", "--tasks", "pos,pos")
    assert "another training file (pos.conllu of" in str(result.exception)


def test_the_corrected_command_is_not_refused(study):
    assert "'train.epoch'" in str(study("tasks", "--set", "train.epoch=1").exception)
    assert study("tasks", "--set", "train.epochs=1").exit_code == 0


def test_small_shares_alone_are_drawn(tmp_path, study):
    result = study("samples", "--shares", "0.001,0.01", "--save", tmp_path / "saved")
    assert result.exit_code == 0, result.output + repr(result.exception)
    assert (tmp_path / "saved" / "samples.svg").is_file()
    assert not (tmp_path / "saved" / "samples-epochs.csv").exists()
    study("samples", "--save", tmp_path / "saved")
    assert (tmp_path / "saved" / "samples-epochs.csv").read_text().startswith("task,epoch,baseline,+ ELMo\n")
