"""The room of tasks: predictions as the trained models give them; the bundled ones; the code that is copied."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from elmokit import Elmo, UserError
from elmokit.serve.offer import Offer
from elmokit.serve.play.bundled_tasks import TASKS as FOLDERS
from elmokit.serve.play.bundled_tasks import bundled_folder, bundled_pairs, bundled_tasks
from elmokit.serve.play.playground import Playground
from elmokit.serve.play.rooms.task import CODE, Request, answer
from elmokit.tasks import TASKS, task_class
from elmokit.tasks.inputs import InputConfig, WordTable
from elmokit.tasks.model import ELMO, TaskModel
from elmokit.tasks.spans import spans_of
from helpers.language_models import make_model

LARGEST = 1_600_000  # bytes of a bundled folder
FILES = {path.stem: path for path in (Path(__file__).parent / "tasks").iterdir()}
A, B = "Ada Byron went to Seoul .", "She likes it there ."
ELMO_MODEL = Elmo(make_model())
BUNDLED = [(pair["name"], kind) for pair in bundled_pairs() for kind in ("baseline", "elmo")]


def fresh(name: str, elmo: Elmo | None = ELMO_MODEL) -> TaskModel:
    kind = task_class(name)
    task = kind(kind.recipes["laptop"][0], kind.labels_of(kind.read(FILES[name])))
    return TaskModel.fresh(task, WordTable(["ada", "seoul"]), elmo, InputConfig(), seed=3)


def ask(tasks: dict[str, TaskModel], side: str = "a", **changes: Any) -> dict[str, Any]:
    body = {"a": A, "b": B, "wa": 2, "wb": 1, "side": side, **changes}
    return answer(Playground(Offer({"small": ELMO_MODEL}, tasks)), Request.model_validate(body))


@pytest.mark.parametrize(("side", "text"), [("a", A), ("b", B)])
def test_given_tasks_predict_as_the_library_does(side: str, text: str) -> None:
    tasks = {"mine": fresh("ner"), "plain": fresh("ner", None), "mood": fresh("sentiment")}
    found = ask(tasks, side)
    assert found["given"]
    assert [(card["name"], card["elmo"]) for card in found["tasks"]] == [
        ("mine", True),
        ("plain", False),
        ("mood", True),
    ]
    for card in found["tasks"][:2]:
        (prediction,) = tasks[card["name"]].predict([text])
        assert [(span["start"], span["end"], span["type"]) for span in card["spans"]] == spans_of(prediction)
        assert card["tokens"] == text.split()
        assert card["score"] is None  # nothing is known of how good they are
    mood = found["tasks"][2]
    assert [mood["label"]] == tasks["mood"].predict([text])
    batch = tasks["mood"].batch(tasks["mood"].examples([text]))
    with torch.no_grad():
        expected = tasks["mood"].network(batch).softmax(dim=-1)[0]
    assert [p for _, p in mood["probabilities"]] == pytest.approx(expected.tolist(), abs=1e-6)
    assert mood["mix"]["s"] == pytest.approx([1 / 3] * 3)


@pytest.mark.parametrize("name", sorted(TASKS))
def test_every_task_has_an_answer(name: str) -> None:
    (card,) = ask({"one": fresh(name)})["tasks"]
    assert card["kind"] == {"ner": "spans", "srl": "spans", "sentiment": "label", "entailment": "label"}.get(
        name, "text"
    )


def test_the_picked_word_is_the_predicate() -> None:
    model = fresh("srl")
    (card,) = ask({"roles": model})["tasks"]
    (prediction,) = model.predict(["Ada Byron [went] to Seoul ."])
    assert [(span["start"], span["end"], span["type"]) for span in card["spans"]] == spans_of(prediction)


def test_a_task_that_cannot_read_the_sentence_says_why() -> None:
    bad, good = ask({"roles": fresh("srl"), "names": fresh("ner")}, a="None was picked .", wa=99)["tasks"]
    assert (bad["kind"], good["kind"]) == ("trouble", "spans")
    assert bad["text"].startswith("expected one predicate")


def test_the_score_of_a_run_is_shown() -> None:
    model = fresh("ner")
    model.results = {"score": 71.5}
    (card,) = ask({"names": model})["tasks"]
    assert (card["metric"], card["score"]) == ("f1", 71.5)


def test_no_sentence() -> None:
    with pytest.raises(UserError, match="second sentence"):
        ask({"names": fresh("ner")}, "b", b="  ")


def test_a_model_that_no_bundled_task_was_trained_with() -> None:
    found = ask({})
    assert (found["given"], found["tasks"]) == (False, [])
    assert found["bundled_for"]


@pytest.mark.parametrize("word", ["<img/src=x/onerror=alert(1)>", "x" * 100, "👩‍👩‍👧", "\u202e밥", "|||"])
def test_any_word_can_be_read(word: str) -> None:
    (names, mood) = ask({"names": fresh("ner"), "mood": fresh("sentiment")}, a=word, wa=0)["tasks"]
    assert "".join(names["tokens"]) == word
    assert mood["label"] in ("negative", "positive", "neutral", "very negative", "very positive")


# The bundled ones


@pytest.fixture(scope="module")
def english() -> Elmo:
    return Elmo.from_pretrained("en-small")


def test_bundled_folders_are_small_and_hold_no_bilm() -> None:
    folders = {path.name for path in FOLDERS.iterdir() if path.is_dir()}
    assert folders == {f"{name}-{kind}" for name, kind in BUNDLED}
    assert {pair["name"] for pair in bundled_pairs()} == {"ner-en", "sentiment-en", "sentiment-ko"}
    for name in folders:
        assert not (bundled_folder(name) / ELMO).exists()
        assert sum(file.stat().st_size for file in bundled_folder(name).iterdir()) <= LARGEST


def test_bundled_tasks_read_with_the_served_model(english: Elmo) -> None:
    tasks = bundled_tasks(english)
    assert [(task.pair, task.with_elmo) for task in tasks] == [
        ("ner-en", False),
        ("ner-en", True),
        ("sentiment-en", False),
        ("sentiment-en", True),
    ]
    assert all(task.model.elmo is (english if task.with_elmo else None) for task in tasks)  # not in memory twice
    assert bundled_tasks(english) is tasks


def test_what_bundled_tasks_find(english: Elmo) -> None:
    playground = Playground(Offer({"en-small": english}))
    text = "Barack Obama visited Paris and praised the wonderful , moving films of France ."
    found = answer(playground, Request(a=text, b="", wa=0, wb=-1))
    names, mood = (card for card in found["tasks"] if card["elmo"])
    assert {(" ".join(names["tokens"][s["start"] : s["end"]]), s["type"]) for s in names["spans"]} >= {
        ("Barack Obama", "PER"),
        ("Paris", "LOC"),
    }
    assert mood["label"] in ("positive", "very positive")
    assert 60 < names["score"] < 95
    for card, task in zip(found["tasks"], bundled_tasks(english), strict=True):  # each alone says the same
        (alone,) = task.model.predict([text])
        if card["kind"] == "label":
            assert card["label"] == alone
        else:
            assert [(span["start"], span["end"], span["type"]) for span in card["spans"]] == spans_of(alone)


def test_the_card_has_the_scores_of_the_manifest() -> None:
    card = (FOLDERS / "README.md").read_text(encoding="utf-8")
    for pair in bundled_pairs():
        scores = [pair[kind]["scores"][pair["metric"]] for kind in ("baseline", "elmo")]
        assert f"| {pair['name']} | {pair['metric']} | {scores[0]:.2f} | {scores[1]:.2f} |" in card
        assert (f"gains nothing in {pair['name']}" in card) == (scores[1] <= scores[0])


# The code to copy


def test_the_code_is_fifteen_lines_and_learns_only_the_mix_of_elmo(english: Elmo) -> None:
    lines = [line for line in CODE.splitlines() if line.strip()]
    assert len(lines) == 15
    space: dict[str, Any] = {}
    exec(CODE, space)  # what the page tells people to run
    torch.manual_seed(0)
    model = space["Tagger"](words=5, tags=3)
    words, sentences = torch.tensor([[1, 2, 3], [4, 1, 0]]), [["Ada", "saw", "Seoul"], ["A", "man"]]
    assert model(words, sentences).shape == (2, 3, 3)
    learned = {name for name, p in model.named_parameters() if p.requires_grad and name.startswith("elmo.")}
    assert learned == {"elmo.mixes.0.weights", "elmo.mixes.0.gamma"}
    model(words, sentences).sum().backward()
    assert model.elmo.mixes[0].gamma.grad.abs() > 0
