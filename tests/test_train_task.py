"""A task trained, resumed, measured and used from Python; folders that 0.1.0 wrote open as before."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from elmokit import Elmo, train_task
from elmokit.checkpoint import Checkpoint
from elmokit.errors import UserError
from elmokit.tasks import model as task_model
from elmokit.tasks.inputs import InputConfig, WordTable
from elmokit.tasks.model import TaskModel
from elmokit.tasks.ner.task import NamedEntities
from elmokit.tasks.run import TaskRun
from elmokit.tasks.task import TrainConfig

FIXTURES = Path(__file__).parent / "tasks"
NER = FIXTURES / "ner.conll"
QUICK = ("cells=[8]", "filters=4", "train.epochs=4", "train.patience=4", "train.learning_rate=0.02")
PLACES = {"input": ("input",), "output": ("output",), "both": ("input", "output")}


@pytest.fixture
def train(tmp_path, model_folder):
    """train_task on the fixture, with a tiny ELMo."""

    def go(out: str, **options):
        common = {"train": NER, "dev": NER, "elmo": model_folder, "settings": QUICK, "cache": tmp_path / "cache"}
        return train_task("ner", out=tmp_path / out, **common | options)

    return go


def ner_run(folder: Path, elmo: Elmo, scores: list[float] | None = None, **options) -> TaskRun:
    examples = NamedEntities.read(NER)
    sizes = NamedEntities.settings_class(cells=(8,), filters=4)
    task = NamedEntities(sizes, NamedEntities.labels_of(examples))
    model = TaskModel.fresh(task, WordTable(["a"]), elmo, InputConfig(**options))
    run = TaskRun(folder, model, examples, examples, TrainConfig(epochs=4, learning_rate=0.02))
    if scores is not None:
        run.evaluate = lambda: {"f1": scores[len(run.epochs)]}
    return run


@pytest.mark.parametrize("options", [{"place": "both"}, {"train_bilm": True}, {"elmo": None}])
def test_a_score_of_training_is_the_score_of_evaluate(train, tmp_path, options):
    model = train("run", settings=(*QUICK, "train.epochs=15", "train.average=0.0"), **options)
    best = model.results["best"]["scores"]
    assert 0 < best["f1"] < 100
    assert model.evaluate(NER).scores == best
    loaded = TaskModel.load(tmp_path / "run")
    assert loaded.evaluate(str(NER)).scores == best
    assert loaded.results == model.results
    examples = NamedEntities.read(NER)
    assert loaded.predict(examples) == model.predict(examples)


def test_the_same_call_resumes(train, tmp_path):
    reports = []
    whole = train("whole", on_progress=reports.append)
    assert "reading the vectors" not in [report.stage for report in reports]  # none were given
    assert [report.epoch.epoch for report in reports if report.epoch] == [1, 2, 3, 4]
    assert [report.done for report in reports if report.loss is not None] == [10] * 4
    assert any(report.total == 10 and report.done == 10 and report.loss is None for report in reports)  # the biLM

    seen = []
    stopped = train("run", on_progress=seen.append, stop=lambda: any(report.epoch for report in seen))
    assert stopped.results is None
    assert not (tmp_path / "run" / "results.json").exists()
    assert stopped.evaluate(NER).scores == next(report.epoch.scores for report in seen if report.epoch)
    resumed = train("run", on_progress=seen.append)
    assert any("resumes after epoch 1" in report.stage for report in seen)
    for name, tensor in whole.network.state_dict().items():
        assert torch.equal(tensor, resumed.network.state_dict()[name]), name
    assert resumed.results["epochs"][-1]["loss"] == whole.results["epochs"][-1]["loss"]


def test_stopped_before_the_first_epoch_there_is_still_a_model(train):
    model = train("run", stop=lambda: True)
    assert model.results is None
    assert len(model.predict(["Ada lives in London ."])[0]) == 5


def test_texts_tokens_and_examples_are_predicted_alike(train):
    model = train("run")
    text, tokens = "Ada lives in London .", ["Ada", "lives", "in", "London", "."]
    (example,) = model.examples([text])
    assert example.tokens == tokens
    predictions = model.predict([text, tokens, tuple(tokens), example])
    assert predictions == [predictions[0]] * 4
    assert model.annotate([tokens]) == [{"tokens": [tokens], "prediction": predictions[0]}]
    assert model.examples(["a b-c"], "whitespace")[0].tokens == ["a", "b-c"]
    assert model.predict([]) == []


@pytest.mark.parametrize(
    ("items", "error"),
    [
        ("Ada lives", "put it in a list"),
        (["Ada", ["New York", "is"]], "item 2: expected tokens without white space in them, found 'New York'"),
        ([["Ada", ""]], "item 1: expected tokens without white space in them, found ''"),
        ([3], "item 1: expected a text, a list of tokens or an example"),
    ],
)
def test_what_is_no_example_is_refused(elmo, tmp_path, items, error):
    with pytest.raises(UserError, match=error):
        ner_run(tmp_path / "run", elmo).model.predict(items)


def test_a_task_with_a_mark_in_its_lines_reads_it_from_tokens_too(tmp_path):
    data = FIXTURES / "srl.conll"
    model = train_task("srl", train=data, dev=data, out=tmp_path / "srl", settings=("cells=4", "train.epochs=1"))
    one, other = model.annotate(["He [gave] it .", ["He", "[gave]", "it", "."]])
    assert one == other
    assert one["tokens"] == [["He", "gave", "it", "."]]


def test_a_frozen_bilm_is_written_once(tmp_path, elmo, monkeypatch):
    saves = []
    real = Checkpoint.save
    monkeypatch.setattr(Checkpoint, "save", lambda *a, **k: (saves.append(a), real(*a, **k)))
    run, inodes = ner_run(tmp_path / "run", elmo, [10, 20, 15, 30]), []
    weights = tmp_path / "run" / "best" / "elmo" / "model.safetensors"
    run.train(lambda report: report.epoch and inodes.append(weights.stat().st_ino))
    assert len(saves) == 1
    assert len(inodes) == 4
    assert len(set(inodes)) == 1
    assert TaskModel.load(tmp_path / "run").elmo.checkpoint.digest == elmo.checkpoint.digest
    assert weights.stat().st_nlink == 1  # what was replaced is gone


def test_a_trained_bilm_is_written_with_every_best_epoch(tmp_path, elmo):
    digest = elmo.checkpoint.digest
    run, weights = ner_run(tmp_path / "run", elmo, [10, 20, 15, 30], train_bilm=True), []
    file = tmp_path / "run" / "best" / "elmo" / "model.safetensors"
    run.train(lambda report: report.epoch and weights.append(file.read_bytes()))
    assert len(set(weights)) == 3
    assert weights[1] == weights[2]
    best = TaskModel.load(tmp_path / "run")
    assert best.elmo.checkpoint.digest != digest
    for name, tensor in best.network.state_dict().items():
        assert torch.equal(tensor, run.model.network.state_dict()[name]), name  # the last epoch is the best
    assert not any("bilm" in name for name in load_file(tmp_path / "run" / "best" / "model.safetensors"))


def test_killed_while_the_best_is_written_the_one_before_it_stays(tmp_path, elmo, monkeypatch):
    run = ner_run(tmp_path / "run", elmo, [10, 20])
    examples, kept = run.examples, []
    monkeypatch.setattr(task_model.os, "link", lambda *a: (_ for _ in ()).throw(KeyboardInterrupt))

    def note(report):
        if report.epoch:
            kept.append(TaskModel.load(tmp_path / "run").predict(examples))

    with pytest.raises(KeyboardInterrupt):
        run.train(note)
    assert len(kept) == 1
    assert TaskModel.load(tmp_path / "run").predict(examples) == kept[0]
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["best", "last", "run.json"]


def test_where_files_cannot_be_linked_they_are_copied(tmp_path, elmo, monkeypatch):
    monkeypatch.setattr(task_model.os, "link", lambda *a: (_ for _ in ()).throw(OSError("no links here")))
    run = ner_run(tmp_path / "run", elmo, [10, 20, 30, 40])
    assert run.train()
    assert TaskModel.load(tmp_path / "run").elmo.checkpoint.digest == elmo.checkpoint.digest


def as_before(folder: Path, places: tuple[str, ...]) -> None:
    """Make of a run's folder what 0.1.0 would have written."""

    def old(name: str) -> str:
        for number, place in enumerate(places):
            name = name.replace(f"inputs.elmo.mixes.{number}.", f"inputs.mixes.{place}.")
        return name.replace("inputs.elmo.bilm.", "inputs.bilm.").replace("optimizer.", "optimiser.")

    best, last = folder / "best" / "model.safetensors", folder / "last" / "training.safetensors"
    tensors = load_file(last)
    own = load_file(best)
    if any(name.startswith("network.inputs.elmo.bilm.") for name in tensors):  # 0.1.0 wrote a trained one twice
        bilm = load_file(folder / "best" / "elmo" / "model.safetensors")
        own |= {f"inputs.elmo.bilm.{name}": tensor for name, tensor in bilm.items()}
    save_file({old(name): tensor for name, tensor in own.items()}, best)
    save_file({old(name): tensor for name, tensor in tensors.items()}, last)
    for path in (folder / "best" / "task.json", folder / "run.json"):
        table = json.loads(path.read_text())
        table["inputs"]["layers"] = table["inputs"].pop("which_layers")
        if "train" in table:
            table["train"]["optimiser"] = table["train"].pop("optimizer")
        path.write_text(json.dumps(table))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("train_bilm", [False, True])
def test_folders_that_0_1_0_wrote_open_and_resume(train, tmp_path, place, train_bilm):
    options = {"place": place, "train_bilm": train_bilm, "settings": (*QUICK, "train.average=0.9")}
    seen = []
    whole = train("whole", **options)
    before = train("run", on_progress=seen.append, stop=lambda: any(r.epoch for r in seen), **options)
    as_before(tmp_path / "run", PLACES[place])
    assert "inputs.mixes.output.gamma" in load_file(tmp_path / "run/best/model.safetensors") or place == "input"
    opened = TaskModel.load(tmp_path / "run")
    assert opened.predict(NamedEntities.read(NER)) == before.predict(NamedEntities.read(NER))
    for name, tensor in before.network.state_dict().items():
        assert torch.equal(tensor, opened.network.state_dict()[name]), name
    resumed = train("run", **options)
    for name, tensor in whole.network.state_dict().items():
        assert torch.equal(tensor, resumed.network.state_dict()[name]), name


def test_leftovers_of_a_killed_task_run_are_removed_and_two_at_once_are_refused(train, tmp_path):
    done = train("whole")
    train("run", stop=lambda: True)
    folder = tmp_path / "run"
    (folder / ".best.abc_1234.tmp" / "new").mkdir(parents=True)
    refused = []

    def train_too(now):
        if now.loss is not None and not refused:
            with pytest.raises(UserError, match="another process is training in"):
                train("run")
            refused.append(now)

    assert train("run", on_progress=train_too).results["best"]["scores"] == done.results["best"]["scores"]
    assert len(refused) == 1
    assert not list(folder.glob(".*"))


@pytest.mark.parametrize(
    ("section", "name", "value", "message"),
    [
        ("settings", "cells", [1_000_000], "expected shape"),
        ("settings", "cells", [8] * 5, "found none"),
        ("settings", "filters", 10**9, "filters: expected 1,048,576 at most, found 1000000000"),
        ("inputs", "word_width", 10**9, "expected shape"),
    ],
)
def test_a_small_hostile_task_folder_takes_no_memory(train, tmp_path, section, name, value, message):
    train("run", settings=(*QUICK, "train.epochs=1"), elmo=None)
    path = tmp_path / "run" / "best" / "task.json"
    table = json.loads(path.read_text())
    table[section][name] = value
    path.write_text(json.dumps(table))
    with pytest.raises(UserError, match=message):
        TaskModel.load(tmp_path / "run")


def test_a_pipe_in_a_task_folder_is_refused(train, tmp_path):
    train("run", settings=(*QUICK, "train.epochs=1"), elmo=None)
    for name in ("words.txt", "model.safetensors", "task.json"):
        path = tmp_path / "run" / "best" / name
        path.rename(tmp_path / name)
        os.mkfifo(path)
        with pytest.raises(UserError, match=r"regular file, found a pipe|holds no trained task"):
            TaskModel.load(tmp_path / "run")
        path.unlink()
        (tmp_path / name).rename(path)
