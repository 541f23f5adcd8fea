"""BiDAF: spans, attention, texts without a token; the task's lines and predictions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.tasks.inputs import InputConfig, WordTable
from elmokit.tasks.model import TaskModel
from elmokit.tasks.nn.gru import BiGRU
from elmokit.tasks.squad.network import BidafSettings, SpanScores, Trilinear, best_spans
from elmokit.tasks.squad.questions import Answer, Question, Text
from elmokit.tasks.squad.task import QuestionAnswering
from elmokit.text.tokens import make_tokenizer
from helpers.models import make_elmo

FIXTURE = Path(__file__).parent / "tasks" / "squad.json"
WORDS = make_tokenizer("words")


def ask(context: str, answer: str, question: str = "Who ?") -> Question:
    text = Text(context, WORDS)
    return Question(text, Text(question, WORDS), (Answer(answer, context.index(answer)),), f"data.json:{answer}")


def make_model(examples, elmo=None, span=17, **options) -> TaskModel:
    task = QuestionAnswering(BidafSettings(cells=4, dropout=0.0, span=span), {})
    words = sorted({token for e in examples for s in task.sentences(e) for token in s})
    calm = {"elmo_dropout": 0.0, "word_dropout": 0.0, **options}
    return TaskModel.fresh(task, WordTable(words), elmo, InputConfig(**calm))


@settings(deadline=None)
@given(st.integers(0, 2**20), st.integers(1, 9), st.integers(1, 12))
def test_the_best_span_is_that_of_a_search_through_all(seed, count, limit):
    chance = torch.Generator().manual_seed(seed)
    scores = SpanScores(*(torch.randn(3, count, generator=chance) for _ in range(2)))
    lengths = torch.randint(1, count + 1, (3, 1), generator=chance)
    found = best_spans(scores, torch.arange(count) < lengths, limit).tolist()
    for row, (first, last) in enumerate(found):
        sums = {
            (i, j): float(scores.start[row, i] + scores.end[row, j])
            for i in range(int(lengths[row]))
            for j in range(i, min(i + limit, int(lengths[row])))
        }
        assert (first, last) in sums
        assert sums[first, last] == max(sums.values())


def test_trilinear_attention_is_a_product_with_all_three():
    layer, x, y = Trilinear(4), torch.randn(2, 3, 4), torch.randn(2, 5, 4)
    torch.nn.init.normal_(layer.of_both)
    pairs = torch.cat(
        [
            x.unsqueeze(2).expand(2, 3, 5, 4),
            y.unsqueeze(1).expand(2, 3, 5, 4),
            x.unsqueeze(2) * y.unsqueeze(1),
        ],
        dim=-1,
    )
    weights = torch.cat([layer.of_x.weight[0], layer.of_y.weight[0], layer.of_both])
    torch.testing.assert_close(layer(x, y), pairs @ weights)


@pytest.mark.parametrize("of_elmo", [0, 512])
def test_before_anything_is_learned_a_word_finds_itself(of_elmo):
    torch.manual_seed(0)
    words = torch.randn(30, 100) * 0.4
    read, attention = BiGRU(100, 64), Trilinear(128, of_elmo)
    elmo = torch.randn(1, 30, of_elmo) * 0.3
    there = torch.ones(1, 30, dtype=torch.bool)
    order = torch.randperm(30)
    with torch.no_grad():
        x = torch.cat([read(words.unsqueeze(0), there), elmo], dim=-1)
        y = torch.cat([read(words[order].unsqueeze(0), there), elmo[:, order]], dim=-1)  # among other neighbours
        scores = attention(x, y)[0]
    found = order[scores.argmax(dim=1)] == torch.arange(30)
    assert found.sum() >= 27
    assert scores.max() < 20  # soft enough to learn from


def test_a_long_context_sees_itself_by_rows(monkeypatch):
    """All T x T scores of a novel would fill the memory."""
    examples = QuestionAnswering.read(FIXTURE)[:3]
    model = make_model(examples)
    model.network.eval()
    batch = model.batch(examples)
    whole = model.network(batch)
    seen = []
    scores = model.network.self_attention.forward
    monkeypatch.setattr(
        model.network.self_attention, "forward", lambda x, y: (seen.append(x.shape[1]), scores(x, y))[1]
    )
    monkeypatch.setattr("elmokit.tasks.squad.network.CHUNK", 2 * batch.sentences[0].mask.numel())
    for one, other in zip(whole, model.network(batch)):
        torch.testing.assert_close(one, other)
    assert max(seen) == 2
    assert sum(seen) == batch.sentences[0].mask.shape[1]


def test_a_token_does_not_see_itself():
    model = make_model([ask("b", "b")])
    x, mask = torch.randn(1, 5, 8), torch.ones(1, 5, dtype=torch.bool)
    seen = []
    model.network.self_projection.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    model.network._see_itself(x[:, :1], mask[:, :1])
    assert not seen[0][..., 8:].any()  # alone, it sees nothing
    model.network._see_itself(x, mask)
    assert seen[1][..., 8:].any()


@pytest.mark.parametrize("elmo", [None, make_elmo(tokenizer="words")], ids=["baseline", "elmo"])
def test_texts_without_a_token_are_no_trouble(elmo):
    full, silent = ask("The owl saw Ada .", "Ada"), ask("The owl saw Ada .", "Ada", question=" ")
    empty = Question(Text("", WORDS), Text("Who ?", WORDS), (), "here")
    nothing = Question(Text(" ", WORDS), Text("", WORDS), (), "here")
    examples = [full, silent, empty, nothing]
    model = make_model(examples, elmo, place="both")
    together = model.predict(examples)
    assert together == [model.predict([example])[0] for example in examples]
    assert together[2] == together[3] == {"text": "", "start": 0, "end": 0}
    assert QuestionAnswering.show(empty, together[2]) == "Who ?\n"
    assert all(prediction["text"] for prediction in together[:2])
    batch = model.batch([full, silent])
    loss = model.network.loss(model.network(batch), batch)
    loss.backward()
    assert torch.isfinite(loss)
    for name, parameter in model.network.named_parameters():
        assert parameter.grad is None or torch.isfinite(parameter.grad).all(), name


def test_an_empty_question_is_the_same_beside_a_longer_context():
    silent, long = ask("The owl saw Ada .", "Ada", question=""), ask("The owl " * 20, "owl")
    model = make_model([silent, long])
    with torch.no_grad():
        alone, beside = (model.network(model.batch(part)) for part in ([silent], [silent, long]))
    torch.testing.assert_close(alone.start[0], beside.start[0, :5])
    torch.testing.assert_close(alone.end[0], beside.end[0, :5])


def test_predictions_are_the_characters_of_the_text_as_given_and_not_too_long():
    text = "Cafe\u0301 \U0001f600\U0001f600  “Ada’s” bar\u00a0isn't open , they say"
    model = make_model([ask(text, "bar")], span=3)
    question = ask(text, "bar")
    prediction = model.predict([question])[0]
    assert prediction["text"] == text[prediction["start"] : prediction["end"]]
    first, last = question.context.covering(prediction["start"], prediction["end"])
    assert 1 <= last - first <= 3
    json.dumps(prediction)


@pytest.mark.parametrize("line", ["It isn't  cold . ||| Is it?", "It isn't  cold .\tIs it?"])
def test_a_line_of_a_user_is_a_question(line):
    question = QuestionAnswering.example(line, WORDS.tokens, "input:1")
    tabs = QuestionAnswering.example("  a\tb ||| c?", WORDS.tokens, "input:1")
    assert tabs.context.spans == [(2, 3), (4, 5)]  # of the line, as it is
    assert QuestionAnswering.sentences(question) == [["It", "is", "n't", "cold", "."], ["Is", "it", "?"]]
    assert question.context.spans == [(0, 2), (3, 5), (5, 8), (10, 14), (15, 16)]
    shown = QuestionAnswering.show(question, {"text": "cold", "start": 10, "end": 14})
    assert shown == "Is it?\nIt isn't  [cold] ."
    assert set(make_model([question]).predict([question])[0]) == {"text", "start", "end"}
    with pytest.raises(ValueError, match="input:1: expected an answer, found none"):
        QuestionAnswering(BidafSettings(), {}).check([question])


@pytest.mark.parametrize("line", ["It is cold .", "a ||| b ||| c"])
def test_a_line_that_is_no_question_is_refused(line):
    with pytest.raises(ValueError, match=r"input:1: expected a context and a question with \|\|\| or a tab"):
        QuestionAnswering.example(line, str.split, "input:1")


@pytest.mark.parametrize("change", [{"cells": 0}, {"longest": 0}, {"span": 0}, {"dropout": 1.0}])
def test_settings_out_of_range_are_refused(change):
    with pytest.raises(ValueError, match=f"{next(iter(change))}: expected"):
        BidafSettings(**change)
