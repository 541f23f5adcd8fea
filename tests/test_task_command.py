"""elmo task: train, resume, measure, predict."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from elmokit.cli import app
from elmokit.tasks import TASKS
from elmokit.tasks.coref.clusters import read_documents
from elmokit.tasks.coref.scores import cluster_scores
from elmokit.tasks.inputs import InputConfig, WordTable, elmo_layer
from elmokit.tasks.pos.task import PartsOfSpeech
from elmokit.tasks.prepare import settings_of, word_table
from elmokit.tasks.run import TaskRun
from elmokit.tasks.spans import overall, score_spans, spans_of
from elmokit.tasks.squad.answers import exact_match

DATA = Path(__file__).parent / "tasks" / "pos.conllu"
QUICK = ["--set", "cells=8", "--set", "train.epochs=2", "--threads", "1"]


def elmo_task(*arguments: object, error: str | None = None) -> str:
    result = CliRunner().invoke(app, ["task", *map(str, arguments)])
    if error is not None:
        assert isinstance(result.exception, ValueError), result.output
        assert error in str(result.exception)
        return ""
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.stdout


def test_the_tasks_are_listed():
    listed = elmo_task("list")
    assert all(name in listed for name in TASKS)
    assert "McCann et al. 2017" in listed


def test_trained_measured_and_used(tmp_path, model_folder):
    out = tmp_path / "run"
    common = ["train", "pos", "--train", DATA, "--dev", DATA, "--out", out, "--elmo", model_folder]
    common += ["--cache", tmp_path / "cache", *QUICK]
    assert "best: epoch" in elmo_task(*common)
    assert len(list((tmp_path / "cache").iterdir())) == 1
    assert "best: epoch" in elmo_task(*common)  # done already: said again
    scores = json.loads(elmo_task("evaluate", out, DATA, "--json"))
    results = json.loads((out / "results.json").read_text())
    assert scores["scores"]["accuracy"] == pytest.approx(results["score"])
    assert {row["label"] for row in scores["by_label"]} >= {"NOUN", "VERB"}
    assert "NOUN" in elmo_task("evaluate", out / "best", DATA, "--by-label")
    text = tmp_path / "text.txt"
    text.write_text("The dog sings.\n\nStop!\n")
    lines = elmo_task("predict", out, text).splitlines()
    assert [line.count("/") for line in lines] == [4, 2]
    (first, _) = map(json.loads, elmo_task("predict", out, text, "--json").splitlines())
    assert first["tokens"] == [["The", "dog", "sings", "."]]
    assert len(first["prediction"]) == 4


def test_other_settings_do_not_resume_a_run(tmp_path):
    common = ["train", "pos", "--train", DATA, "--dev", DATA, "--out", tmp_path / "run", *QUICK]
    elmo_task(*common)
    elmo_task(*common, "--seed", 1, error="other settings")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("")
    elmo_task(*common[:-6], "--out", tmp_path / "other", *QUICK, error="is no run of a task")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_after_a_step_with_its_exit_code_and_the_same_command_resumes(
    tmp_path, elmo_command, monkeypatch, number
):
    common = ["task", "train", "pos", "--train", DATA, "--dev", DATA, "--out", tmp_path / "run", *QUICK]
    common += ["--set", "train.examples=4"]
    real = TaskRun._step

    def step(run, indices):
        if len(run.epochs) == 1:
            os.kill(os.getpid(), number)
        return real(run, indices)

    with monkeypatch.context() as patched:
        patched.setattr(TaskRun, "_step", step)
        code, out, err = elmo_command(*common)
    assert (code, out) == (128 + number, "")
    assert "stopped" in err
    assert (tmp_path / "run" / "best").is_dir()
    code, out, err = elmo_command(*common)
    assert code == 0
    assert "resumes after epoch 1" in err
    assert "best: epoch" in out


def test_a_signal_before_training_ends_it_at_once(tmp_path, elmo_command, monkeypatch):
    def reading(*arguments):
        os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("went on")

    monkeypatch.setattr("elmokit.tasks.train.read_data", reading)
    code, _, _ = elmo_command("task", "train", "pos", "--train", DATA, "--dev", DATA, "--out", tmp_path / "run")
    assert code == 130
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--set", "cels=3"], "did you mean 'cells'"),
        (["--set", "train.epoch=3"], "unknown key 'train.epoch'"),
        (["--recipe", "laptp"], "did you mean 'laptop'"),
        (["--layers", "first"], "expected all, last, mean or a layer's number"),
    ],
)
def test_what_a_user_may_get_wrong(tmp_path, arguments, error):
    elmo_task("train", "pos", "--train", DATA, "--dev", DATA, "-o", tmp_path / "run", *arguments, error=error)


def test_a_label_of_dev_that_training_has_not_is_refused(tmp_path):
    other = tmp_path / "other.conllu"
    other.write_text(DATA.read_text().replace("\tNOUN\t", "\tTHING\t"))
    arguments = ["--train", DATA, "--dev", other, "-o", tmp_path / "run", *QUICK]
    elmo_task("train", "pos", *arguments, error="is not among those of training")


def test_a_part_of_the_examples_has_all_the_labels(tmp_path):
    elmo_task("train", "pos", "--train", DATA, "--dev", DATA, "-o", tmp_path / "run", "--limit", 1, *QUICK)
    whole = PartsOfSpeech.labels_of(PartsOfSpeech.read(DATA))
    assert json.loads((tmp_path / "run/best/task.json").read_text())["labels"] == whole
    assert json.loads((tmp_path / "run/results.json").read_text())["examples"][0] == 1


def test_labels_that_training_has_not_seen_are_missed_when_measured(tmp_path):
    elmo_task("train", "pos", "--train", DATA, "--dev", DATA, "-o", tmp_path / "run", *QUICK)
    other = tmp_path / "other.conllu"
    other.write_text(DATA.read_text().replace("\tNOUN\t", "\tTHING\t"))
    scores = json.loads(elmo_task("evaluate", tmp_path / "run", other, "--json"))["scores"]
    assert (
        scores["accuracy"]
        <= json.loads(elmo_task("evaluate", tmp_path / "run", DATA, "--json"))["scores"]["accuracy"]
    )


def test_a_folder_without_a_model_is_refused(tmp_path):
    elmo_task("evaluate", tmp_path, DATA, error="holds no trained task: it has no task.json. Expected")


def test_settings_lie_on_top_of_the_recipe():
    sizes, train = settings_of(PartsOfSpeech, "laptop", ("cells=5", "train.learning_rate=0.5"), seed=3)
    assert (sizes.cells, sizes.layers, train.learning_rate, train.seed) == (5, 1, 0.5, 3)


def test_words_and_their_vectors(tmp_path):
    path = tmp_path / "glove.txt"
    path.write_text("the 1 2\ndog 3 4\n")
    table = word_table(path, {"The", "Dog", "barks"})
    assert table.words == ["the", "dog"]
    assert table.rows(["The", "dog", "barks"]) == [2, 3, 1]
    np.testing.assert_array_equal(table.vectors, [[1, 2], [3, 4]])
    assert word_table(None, {"The", "Dog"}).words == ["dog", "the"]
    assert WordTable(["A", "a"]).rows(["A", "a"]) == [2, 3]


@pytest.mark.parametrize("train_bilm", [False, True])
def test_the_layers_to_mix(elmo, train_bilm):
    def mixes(which_layers):
        return elmo_layer(elmo, 2, InputConfig(which_layers=which_layers, train_bilm=train_bilm)).mixes

    assert [mix.which_layers for mix in mixes("all")] == [[0, 1, 2]] * 2
    assert [mix.which_layers for mix in mixes("last")] == [[2]] * 2
    assert [mix.which_layers for mix in mixes("1")] == [[1]] * 2
    assert not any(mix.weights.requires_grad for mix in mixes("mean"))
    assert all(mix.gamma.requires_grad for mix in mixes("mean"))
    with pytest.raises(ValueError, match="layers 0 to 2"):
        mixes("3")


def test_questions_about_a_text(tmp_path):
    data = DATA.parent / "squad.json"
    common = ["--train", data, "--dev", data, "--set", "cells=4", "--set", "train.epochs=1", "--threads", "1"]
    elmo_task("train", "squad", *common, "-o", tmp_path / "run")
    text = tmp_path / "article.txt"
    text.write_text("Ada wrote it\nin London\tin 1843.\n")
    shown = elmo_task("predict", tmp_path / "run", "--context", text, "--question", "Who wrote it?")
    question, *rest = shown.splitlines()
    assert question == "Who wrote it?"
    assert "\n".join(rest).replace("[", "").replace("]", "") == text.read_text().rstrip("\n")
    asked = ["--context", text, "--question", "Who?", "--question", "Where?"]
    assert len(elmo_task("predict", tmp_path / "run", *asked, "--json").splitlines()) == 2
    (tmp_path / "questions.txt").write_text("Who?\n\nWhere?\n")
    lines = elmo_task(
        "predict", tmp_path / "run", tmp_path / "questions.txt", "--context", text, "--json"
    ).splitlines()
    answers = [json.loads(line)["prediction"] for line in lines]
    assert len(answers) == 2
    assert all(text.read_text()[a["start"] : a["end"]] == a["text"] for a in answers)
    elmo_task("predict", tmp_path / "run", "--question", "Who?", error="--context FILE")
    text.write_text(" \n")
    elmo_task("predict", tmp_path / "run", "--context", text, "--question", "Who?", error="found none: the file")


def evaluated(task: str, folder: Path, *settings: str) -> tuple[dict[str, float], Path]:
    """A model that has hardly learned, its scores on its own fixture, and the file of its predictions."""
    data = next(path for path in DATA.parent.iterdir() if path.stem == task)
    sizes = [part for setting in ("train.epochs=1", *settings) for part in ("--set", setting)]
    elmo_task("train", task, "--train", data, "--dev", data, "--out", folder / task, "--threads", "1", *sizes)
    predictions = folder / f"{task}.predicted"
    shown = elmo_task("evaluate", folder / task, data, "--predictions", predictions, "--json")
    return json.loads(shown)["scores"], predictions


def test_answers_are_written_for_the_official_script(tmp_path):
    scores, path = evaluated("squad", tmp_path, "cells=4")
    answers = json.loads(path.read_text(encoding="utf-8"))
    table = json.loads((DATA.parent / "squad.json").read_text(encoding="utf-8"))["data"]
    asked = [q for article in table for paragraph in article["paragraphs"] for q in paragraph["qas"]]
    assert set(answers) == {question["id"] for question in asked}
    correct = [max(exact_match(answers[q["id"]], a["text"]) for a in q["answers"]) for q in asked]
    assert scores["em"] == pytest.approx(100 * sum(correct) / len(correct))


def test_half_a_surrogate_pair_is_written_as_json_has_it(tmp_path):
    evaluated("squad", tmp_path, "cells=4")
    table = json.loads((DATA.parent / "squad.json").read_text(encoding="utf-8"))
    question = table["data"][0]["paragraphs"][0]["qas"][0]
    question["id"] = "half \ud800"
    data, predictions = tmp_path / "half.json", tmp_path / "half.predicted"
    data.write_text(json.dumps(table))
    elmo_task("evaluate", tmp_path / "squad", data, "--predictions", predictions)
    assert "half \ud800" in json.loads(predictions.read_text(encoding="utf-8"))


@pytest.mark.slow
def test_clusters_are_written_for_the_reference_scorer(tmp_path):
    scores, path = evaluated(
        "coref",
        tmp_path,
        "cells=16",
        "hidden=16",
        "train.epochs=30",
        "train.patience=30",
        "train.learning_rate=0.01",
    )
    predicted, gold = read_documents(path), read_documents(DATA.parent / "coref.conll")
    assert [document.sentences for document in predicted] == [document.sentences for document in gold]
    clusters = [[document.clusters or [] for document in documents] for documents in (predicted, gold)]
    muc = cluster_scores(*clusters, singletons=False)["muc"].scores()["f1"]
    assert muc == pytest.approx(scores["muc"])
    assert muc > 0


def test_entities_are_written_for_conlleval(tmp_path):
    scores, path = evaluated("ner", tmp_path, "train.epochs=15", "train.patience=15", "train.learning_rate=0.01")
    rows = [line.split(" ") for line in path.read_text(encoding="utf-8").splitlines()]
    ends = [i for i, row in enumerate(rows) if row == [""]]
    sentences = [rows[a:b] for a, b in zip([0, *(end + 1 for end in ends)], ends)]
    gold, predicted = ([spans_of([row[column] for row in s]) for s in sentences] for column in (1, 2))
    assert overall(score_spans(predicted, gold).values()).scores()["f1"] == pytest.approx(scores["f1"])
    assert scores["f1"] > 0


def test_any_other_prediction_is_a_line_of_json(tmp_path):
    _, path = evaluated("pos", tmp_path, "cells=8")
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert len(lines) == len(PartsOfSpeech.read(DATA))
    assert all(len(line["prediction"]) == len(line["sentences"][0]) for line in lines)
    assert lines[0]["where"].startswith("pos.conllu:")
