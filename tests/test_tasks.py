"""The contract that every task keeps. A task's fixture is tests/tasks/NAME.*: ten examples of its own format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from elmokit.tasks import TASKS, task_class
from elmokit.tasks.inputs import InputConfig, WordTable
from elmokit.tasks.layer_cache import LayerCache
from elmokit.tasks.model import TaskModel
from elmokit.tasks.run import TaskRun
from elmokit.tasks.task import TrainConfig
from helpers.models import make_elmo

FIXTURES = Path(__file__).parent / "tasks"
READY = [name for name in TASKS if list(FIXTURES.glob(f"{name}.*"))]
ELMO = make_elmo(tokenizer="words")


def fixture(name: str) -> Path:
    (path,) = FIXTURES.glob(f"{name}.*")
    return path


def fresh(name: str, elmo=ELMO, **options) -> tuple[TaskModel, list]:
    kind = task_class(name)
    examples = kind.read(fixture(name))
    task = kind(kind.recipes["laptop"][0], kind.labels_of(examples))
    words = sorted({token for e in examples for s in kind.sentences(e) for token in s})
    calm = {"elmo_dropout": 0.0, "word_dropout": 0.0, "word_width": 16, **options}
    return TaskModel.fresh(task, WordTable(words), elmo, InputConfig(**calm), seed=1), examples


def sentences(model: TaskModel, examples: list) -> list[list[str]]:
    return [sentence for example in examples for sentence in model.task.sentences(example)]


def still(model: TaskModel) -> TaskModel:
    """Without dropout: what is to be learned by heart must not be disturbed."""
    for module in model.network.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if hasattr(module, "p"):
            module.p = 0.0
    return model


@pytest.mark.slow
@pytest.mark.parametrize("name", READY)
def test_ten_examples_are_learned_by_heart_saved_and_predicted_the_same(name, tmp_path):
    model, examples = fresh(name)
    assert len(examples) == 10
    cache = LayerCache.open(ELMO, sentences(model, examples), tmp_path / "cache")
    run = TaskRun(
        tmp_path / "run",
        still(model),
        examples,
        examples,
        TrainConfig(epochs=120, patience=120, examples=5, learning_rate=0.01),
        cache=cache,
    )
    assert run.train()
    assert run.epochs[-1].loss < 0.05 * max(1.0, run.epochs[0].loss)
    assert run.best.scores[model.task.metric] == pytest.approx(100.0)
    predictions = model.predict(examples, cache)
    again = TaskModel.load(tmp_path / "run" / "best")
    saved_predictions = again.predict(examples, cache)
    assert model.task.metrics(saved_predictions, examples)[model.task.metric] == pytest.approx(100.0)
    model.save(tmp_path / "saved")
    assert TaskModel.load(tmp_path / "saved").predict(examples, cache) == predictions
    assert TaskModel.load(tmp_path / "saved").predict(examples) == predictions  # the biLM runs here
    json.dumps(predictions)
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["score"] == pytest.approx(100.0)
    assert sum(results["mix"]["input"]["s"]) == pytest.approx(1.0)


@pytest.mark.parametrize("place", ["input", "output", "both"])
@pytest.mark.parametrize("name", READY)
def test_padding_and_the_order_of_a_batch_change_nothing(name, place):
    model, examples = fresh(name, place=place)
    model.network.eval()
    alone = [model.predict([example])[0] for example in examples]
    assert model.predict(examples) == alone
    assert model.predict(examples[::-1]) == alone[::-1]


@pytest.mark.parametrize("name", READY)
def test_the_loss_does_not_depend_on_padding(name):
    model, examples = fresh(name)
    model.network.eval()
    one, two = examples[0], examples[2]

    def loss(batch):
        built = model.batch(batch)
        return float(model.network.loss(model.network(built), built).detach())

    assert loss([one, one]) == pytest.approx(loss([one]), rel=1e-4)
    assert loss([one, two]) == pytest.approx(loss([two, one]), rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("average", [0.0, 0.9])
@pytest.mark.parametrize("name", READY)
def test_stopped_and_resumed_it_is_the_same(name, average, tmp_path):
    config = TrainConfig(epochs=3, patience=9, examples=4, learning_rate=0.01, average=average)

    def go(folder, stops):
        model, examples = fresh(name, elmo_dropout=0.5, word_dropout=0.2)
        run = TaskRun(folder, model, examples, examples, config)
        return run, run.train(stop=stops)

    whole, finished = go(tmp_path / "whole", lambda: False)
    assert finished
    count = iter(range(1000))
    first, finished = go(tmp_path / "run", lambda: next(count) > 4)  # in the second epoch
    assert not finished
    assert len(first.epochs) == 1
    second, finished = go(tmp_path / "run", lambda: False)
    assert finished
    for key, tensor in whole.model.network.state_dict().items():
        assert torch.equal(tensor, second.model.network.state_dict()[key]), key
    assert [e[:3] for e in whole.epochs] == [e[:3] for e in second.epochs]
    kept = [TaskModel.load(tmp_path / name / "best").network.state_dict() for name in ("whole", "run")]
    for key, tensor in kept[0].items():
        assert torch.equal(tensor, kept[1][key]), key


@pytest.mark.parametrize("name", READY)
def test_without_elmo_there_is_a_baseline(name, tmp_path):
    model, examples = fresh(name, elmo=None)
    assert not model.network.inputs.places
    predictions = model.predict(examples)
    model.save(tmp_path / "saved")
    assert not (tmp_path / "saved" / "elmo").exists()
    assert TaskModel.load(tmp_path / "saved").predict(examples) == predictions


@pytest.mark.parametrize("name", READY)
def test_a_line_of_a_user_becomes_a_prediction_that_can_be_shown(name):
    model, examples = fresh(name)
    shown = model.task.show(examples[0], model.predict(examples[:1])[0])
    assert shown.strip()
    assert all(token in shown for token in model.task.sentences(examples[0])[0][:1])


@pytest.mark.parametrize("name", READY)
def test_an_empty_file_is_refused(name, tmp_path):
    (tmp_path / "empty").write_text("")
    with pytest.raises(ValueError, match="empty"):
        task_class(name).read(tmp_path / "empty")


def test_the_mean_of_the_weights_is_what_is_measured_and_kept(tmp_path):
    model, examples = fresh("pos")
    at_steps = []
    config = TrainConfig(epochs=1, examples=2, learning_rate=0.05, average=0.5)
    network = model.network
    named = {name: p for name, p in network.named_parameters() if p.requires_grad}
    expected = {name: p.detach().double() for name, p in named.items()}

    def follow(progress):
        if progress.loss is None:
            return
        at_steps.append(progress)
        share = min(0.5, (1 + len(at_steps)) / (10 + len(at_steps)))
        for name, p in named.items():
            expected[name] = share * expected[name] + (1 - share) * p.detach().double()

    run = TaskRun(tmp_path / "run", model, examples, examples, config)
    run.train(follow)
    assert len(at_steps) == 5
    kept = TaskModel.load(tmp_path / "run" / "best")
    for name, mean in expected.items():
        torch.testing.assert_close(kept.network.state_dict()[name].double(), mean, atol=1e-6, rtol=1e-6)
    apart = max(float((mean - named[name].detach()).abs().max()) for name, mean in expected.items())
    assert apart > 1e-3  # and it is not what the last step left
    assert kept.task.metrics(kept.predict(examples), examples) == run.epochs[0].scores


@pytest.mark.parametrize(
    ("scores", "epochs", "halved"),
    [
        ([0, 0, 0, 0, 3, 2, 1, 4], 7, 2),  # nothing found at first is no standstill; then patience is 2
        ([3, 2, 1, 4], 3, 2),
        ([0] * 9, 9, 0),
    ],
)
def test_patience_and_decay_begin_when_something_is_found(scores, epochs, halved, tmp_path, monkeypatch):
    model, examples = fresh("pos")
    config = TrainConfig(epochs=9, patience=2, decay=0.5, learning_rate=0.01)
    run = TaskRun(tmp_path / "run", model, examples, examples, config)
    monkeypatch.setattr(run, "evaluate", lambda: {model.task.metric: float(scores[len(run.epochs)])})
    assert run.train()
    assert len(run.epochs) == epochs
    assert run._optimizer.param_groups[0]["lr"] == pytest.approx(0.01 * 0.5**halved)


def test_a_run_of_before_a_setting_was_there_resumes(tmp_path):
    model, examples = fresh("pos")
    config = TrainConfig(epochs=1)
    TaskRun(tmp_path / "run", model, examples, examples, config)
    path = tmp_path / "run" / "run.json"
    table = json.loads(path.read_text())
    del table["train"]["average"]
    path.write_text(json.dumps(table))
    assert TaskRun(tmp_path / "run", model, examples, examples, config).train()


def test_dropout_is_a_probability_below_one():
    InputConfig(word_dropout=0.0, elmo_dropout=0.99)
    for p in (-0.1, 1.0, float("nan")):
        with pytest.raises(ValueError, match="elmo_dropout: expected 0 or more and less than 1, found"):
            InputConfig(elmo_dropout=p)


def test_an_unknown_task_is_answered_with_suggestions():
    with pytest.raises(ValueError, match="did you mean 'sentiment'"):
        task_class("sentment")
