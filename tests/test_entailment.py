"""Entailment: JSON lines of SNLI's kind, pairs from a user's line, ESIM with sentences that may be empty."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from elmokit.tasks.entailment.network import EsimSettings
from elmokit.tasks.entailment.pairs import Pair
from elmokit.tasks.entailment.task import Entailment
from elmokit.tasks.inputs import InputConfig, WordTable
from elmokit.tasks.model import TaskModel
from elmokit.text.columns import Columns
from helpers.models import make_elmo

FIXTURE = Path(__file__).parent / "tasks" / "entailment.jsonl"
GOOD = {"gold_label": "neutral", "sentence1": "It's cold.", "sentence2": "It snows."}


def write(folder: Path, *rows: object) -> Path:
    path = folder / "data.jsonl"
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


def make_model(examples, elmo=None, **options) -> TaskModel:
    task = Entailment(EsimSettings(cells=5, dropout=0.0), Entailment.labels_of(examples))
    words = sorted({token for e in examples for s in Entailment.sentences(e) for token in s})
    return TaskModel.fresh(task, WordTable(words), elmo, InputConfig(word_dropout=0.0, **options))


def test_pairs_are_read_and_those_without_a_majority_left_out():
    examples = Entailment.read(FIXTURE)
    assert len(examples) == 10  # of eleven lines
    assert examples[0].premise == ["A", "dog", "runs", "across", "the", "green", "field", "."]
    assert examples[0].hypothesis == ["An", "animal", "moves", "."]
    assert examples[8].where == "entailment.jsonl:10"
    assert Entailment.sentences(examples[9]) == [examples[9].premise, examples[9].hypothesis]
    assert Entailment.labels_of(examples) == {"labels": ["contradiction", "entailment", "neutral"]}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{gold", "line 2: not valid JSON"),
        ("[" * 100_000, "line 2: not valid JSON"),
        ('["neutral"]', "line 2: expected a JSON object"),
        (
            {"gold_label": "neutral", "sentence1": "a"},
            "line 2: expected the key 'sentence2', found 'gold_label', ",
        ),
        ({}, "line 2: expected the key 'gold_label', found none"),
        ({**GOOD, "sentence1": None}, "line 2: expected 'sentence1' to be text, found 'None'"),
        ({**GOOD, "gold_label": 1}, "line 2: expected 'gold_label' to be text, found '1'"),
        ({**GOOD, "gold_label": "maybe"}, "line 2: expected gold_label to be contradiction, .* found 'maybe'"),
    ],
)
def test_what_is_wrong_is_said_with_file_and_line(tmp_path, row, message):
    with pytest.raises(ValueError, match=f"data.jsonl, {message}"):
        Entailment.read(write(tmp_path, GOOD, row))


def test_a_file_without_one_label_is_refused(tmp_path):
    with pytest.raises(ValueError, match='expected pairs with a label, found "-" in all 1 lines'):
        Entailment.read(write(tmp_path, {**GOOD, "gold_label": "-"}))


@pytest.mark.parametrize("line", ["It is cold . ||| It snows .", "It is cold .\tIt snows ."])
def test_a_line_of_a_user_is_a_pair(line):
    pair = Entailment.example(line, str.split, "input:1")
    assert pair == Pair(["It", "is", "cold", "."], ["It", "snows", "."], None, "input:1")
    assert Entailment.show(pair, "neutral") == "neutral\tIt is cold . ||| It snows ."


@pytest.mark.parametrize("line", ["It is cold .", "a ||| b ||| c"])
def test_a_line_that_is_no_pair_is_refused(line):
    with pytest.raises(ValueError, match=r"input:1: expected a premise and a hypothesis with \|\|\| or a tab"):
        Entailment.example(line, str.split, "input:1")


def test_pairs_without_an_answer_are_predicted():
    examples = Entailment.read(FIXTURE)
    model = make_model(examples)
    asked = Entailment.example("A dog runs . ||| An animal moves .", str.split, "input:1")
    assert model.predict([asked])[0] in model.task.labels["labels"]


@pytest.mark.parametrize("place", ["input", "output", "both"])
def test_sentences_without_a_token_have_scores_and_gradients(place):
    whole = ["It", "snows"]
    examples = [
        Pair(whole, whole, "entailment", "a"),
        Pair([], whole, "neutral", "b"),
        Pair(whole, [], "contradiction", "c"),
        Pair([], [], "neutral", "d"),
    ]
    model = make_model(examples, make_elmo(), place=place, elmo_dropout=0.0)
    together = model.network(model.batch(examples))
    alone = torch.cat([model.network(model.batch([example])) for example in examples])  # T or S is 0
    assert together.isfinite().all()
    assert torch.allclose(together, alone, atol=1e-5)
    for chosen in (examples, examples[3:]):
        batch = model.batch(chosen)
        model.network.loss(model.network(batch), batch).backward()
    assert all(p.grad.isfinite().all() for p in model.network.parameters() if p.grad is not None)


def test_the_order_of_the_two_sentences_counts():
    examples = Entailment.read(FIXTURE)[:1]
    model = make_model(examples)
    swapped = Pair(examples[0].hypothesis, examples[0].premise, None, "")
    scores = [model.network(model.batch([pair])) for pair in (examples[0], swapped)]
    assert not torch.allclose(scores[0], scores[1], atol=1e-4)


def test_labels_and_probabilities_agree():
    examples = Entailment.read(FIXTURE)
    model = make_model(examples)
    batch = model.batch(examples)
    output = model.network(batch)
    tables = model.network.probabilities(output)
    assert [max(table, key=table.get) for table in tables] == model.network.decode(output, batch)
    assert list(tables[0]) == model.task.labels["labels"]


def test_settings_are_checked():
    with pytest.raises(ValueError, match="cells: expected 1 or more"):
        EsimSettings(cells=0)
    with pytest.raises(ValueError, match="dropout"):
        EsimSettings(dropout=1.0)


def test_tables_have_two_columns_of_texts(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("h,p,gold\nIt rains,It is wet,1\nIt snows,It is hot,-\nIt rains,It is dry,0\n")
    columns = Columns(("p", "h"), "gold")
    first, second = Entailment.read_table(path, columns)
    assert (first.premise, first.hypothesis, first.label) == (["It", "is", "wet"], ["It", "rains"], "1")
    assert second.where == "pairs.csv:4"
    assert Entailment.read(path)[0].premise == ["It", "rains"]  # in their order
    path = tmp_path / "pairs.jsonl"
    path.write_text('{"p": "It is", "h": "It", "gold": true}\n')
    assert Entailment.read_table(path, columns)[0].label == "true"
