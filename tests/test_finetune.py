"""Finetuning as one call: compared, resumed with another budget, and told what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from elmokit import Elmo, finetune, pretrain
from elmokit.checkpoint import Checkpoint
from elmokit.errors import UserError
from elmokit.pretrain.corpus import Corpus
from elmokit.pretrain.metrics import read_metrics
from elmokit.pretrain.perplexity import perplexity
from elmokit.pretrain.recipe import load_recipe
from helpers.plans import OPTIONS, TUNING, assert_same, budget, write_text
from helpers.training import made_up_text, stop_after


@pytest.fixture
def text(tmp_path, monkeypatch) -> str:
    monkeypatch.chdir(tmp_path)
    return write_text()


@pytest.fixture
def base(text) -> Elmo:
    Path("domain.txt").write_text(made_up_text(120, seed=9).replace("the", "qoph"))
    return pretrain(text, out="base", tokens=1500, **OPTIONS).model


def test_the_plan_of_finetuning_is_of_the_model_and_not_of_the_recipe(base):
    events = []
    finetune(base, ["domain.txt"], out="tuned", **TUNING, epochs=1, on_progress=events.append)
    (plan,) = [event.plan for event in events if event.plan is not None]
    assert plan.lstm == base.bilm.config.lstm
    assert plan.lstm != load_recipe("finetune").model.lstm


def test_finetuning_compares_before_and_after(base):
    events = []
    digest = base.checkpoint.digest
    options = {"general": "text.txt", "new_words": 5, **TUNING, "epochs": 3}
    tuned = finetune(base, ["domain.txt"], out="tuned", **options, on_progress=events.append)
    assert tuned.finished
    assert base.checkpoint.digest == digest  # the model that was given stays as it is
    before, after = Checkpoint.load("tuned/start"), Checkpoint.load("tuned/model")
    assert "qoph" in after.vocabulary
    general = [line.split() for line in Path("text.txt").read_text().splitlines()]
    held_out = Corpus.open("tuned/corpus/held-out")
    domain = [held_out.words(i) for i in range(held_out.sentences)]
    texts = {"domain, held out": domain, "general (text.txt)": general}
    words = [len(after.vocabulary), len(base.checkpoint.vocabulary)]
    assert [(c.text, c.words) for c in tuned.comparisons] == [(name, count) for name in texts for count in words]
    for name, first, second, count in tuned.comparisons:
        if count == words[0]:
            assert (first, second) == (perplexity(before, texts[name]), perplexity(after, texts[name]))
        else:
            assert first == pytest.approx(perplexity(base, texts[name]), rel=1e-5)
    assert tuned.comparisons[0].after.mean < tuned.comparisons[0].before.mean
    assert [event.fraction for event in events if event.stage == "comparing"] == [0, 0.5, 1]
    assert next(event.plan for event in events if event.plan).lstm == base.bilm.config.lstm  # not the recipe's
    again = finetune(base, "domain.txt", out="tuned", new_words=5, **TUNING)
    assert (again.step, len(again.comparisons)) == (tuned.step, 2)


def test_finetuning_resumes_with_the_budget_that_is_given(base, elmo_command):
    finetune("base/model", "domain.txt", out="whole", tokens=1200, **TUNING)
    cut = finetune("base/model", "domain.txt", out="tuned", tokens=1200, **TUNING, stop=stop_after(3))
    assert not cut.finished
    assert not cut.comparisons
    code, out, err = elmo_command("finetune", "--out", "tuned", "--resume")
    assert code == 0, err
    assert "domain, held out" in out
    assert_same("whole", "tuned")
    code, _, err = elmo_command("finetune", "--out", "tuned", "--resume", "--tokens", "2400")
    assert code == 0, err
    assert budget("tuned") == {"tokens": 2400, "hours": None}
    assert read_metrics(Path("tuned"))[-1]["tokens"] >= 2400
    code, _, err = elmo_command("finetune", "--out", "tuned", "--resume", "--hours", "0.0000001")
    assert code == 0, err
    assert budget("tuned") == {"tokens": None, "hours": 1e-7}


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"model": "other/model"}, "model: the run has 'base/model', found 'other/model'"),
        ({"new_words": 3}, "new_words: the run has 0, found 3"),
        ({"settings": ["train.rows=16"]}, "train.rows: the run has 8, found 16"),
    ],
)
def test_finetuning_refuses_other_settings_than_the_runs(base, asked, message):
    finetune("base/model", "domain.txt", out="tuned", tokens=900, **TUNING, stop=stop_after(1))
    with pytest.raises(UserError, match=message):
        finetune(out="tuned", **asked)
    with pytest.raises(UserError, match="tuned holds a run that finetune began: resume it with finetune"):
        pretrain(out="tuned")
    with pytest.raises(UserError, match="base holds a run that pretrain began: resume it with pretrain"):
        finetune(out="base")
    with pytest.raises(UserError, match=r"no file or folder none.txt"):
        finetune(out="tuned", general="none.txt")
    assert finetune("base/model", ["domain.txt"], out="tuned", new_words=0).finished
