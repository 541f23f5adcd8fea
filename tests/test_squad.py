"""Questions about a text: SQuAD's JSON, answers as tokens and back, the official scores, BiDAF."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.tasks.inputs import InputConfig, WordTable
from elmokit.tasks.model import TaskModel
from elmokit.tasks.nn.gru import BiGRU
from elmokit.tasks.squad.answers import (
    Answer,
    Question,
    Text,
    cut_contexts,
    exact_match,
    f1_score,
    find_tokens,
    normalize_answer,
    score_answers,
)
from elmokit.tasks.squad.network import BidafSettings, SpanScores, Trilinear, best_spans
from elmokit.tasks.squad.task import QuestionAnswering
from elmokit.text.tokens import make_tokenizer
from helpers.models import make_elmo

FIXTURE = Path(__file__).parent / "tasks" / "squad.json"
WORDS = make_tokenizer("words")
CONTEXT = "It began in 1973 ( October )."


def squad(context: object = CONTEXT, **changes: object) -> dict[str, object]:
    answer = {"text": "1973", "answer_start": 12}
    entry = {"id": "q7", "question": "When?", "answers": [answer], **changes}
    return {"version": "1.1", "data": [{"title": "t", "paragraphs": [{"context": context, "qas": [entry]}]}]}


def write(folder: Path, table: object) -> Path:
    path = folder / "data.json"
    path.write_text(table if isinstance(table, str) else json.dumps(table))
    return path


def ask(context: str, answer: str, question: str = "Who ?") -> Question:
    text = Text(context, WORDS)
    return Question(text, Text(question, WORDS), (Answer(answer, context.index(answer)),), f"data.json:{answer}")


def make_model(examples, elmo=None, span=17, **options) -> TaskModel:
    task = QuestionAnswering(BidafSettings(cells=4, dropout=0.0, span=span), {})
    words = sorted({token for e in examples for s in task.sentences(e) for token in s})
    calm = {"elmo_dropout": 0.0, "word_dropout": 0.0, **options}
    return TaskModel.fresh(task, WordTable(words), elmo, InputConfig(**calm))


# --- reading ---


def test_questions_are_read_and_those_about_one_context_share_its_tokens():
    examples = QuestionAnswering.read(FIXTURE)
    first, second = examples[:2]
    assert len(examples) == 10
    assert first.where == "squad.json:q01"
    assert first.question.tokens == ["How", "high", "is", "Hallasan", "?"]
    assert first.answers == (Answer("1,947 m", 10), Answer("1,947", 10))
    assert QuestionAnswering.sentences(first)[0] is QuestionAnswering.sentences(second)[0]
    assert QuestionAnswering.sentences(first) == [first.context.tokens, first.question.tokens]
    for example in examples:
        assert [example.context.text[a:b] for a, b in example.context.spans] == example.context.tokens


def test_equal_contexts_of_two_paragraphs_are_one(tmp_path):
    table = squad()
    again = json.loads(json.dumps(table["data"]).replace('"q7"', '"q8"'))
    table["data"] = [*table["data"], *again]
    one, two = QuestionAnswering.read(write(tmp_path, table))
    assert one.context is two.context


def test_compressed_files_are_read(tmp_path):
    path = tmp_path / "squad.json.xz"
    path.write_bytes(lzma.compress(FIXTURE.read_bytes()))
    assert len(QuestionAnswering.read(path)) == 10


ANSWER = {"text": "1973", "answer_start": 12}


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("{data", "data.json: not valid JSON"),
        ("[" * 100_000, "data.json: not valid JSON"),
        ([1], "data.json: expected a JSON object with the key 'data', found '\\[1\\]'"),
        ({"data": {}}, "data.json: expected 'data' to be a list"),
        ({"data": []}, "data.json: expected questions, found none: the file is empty but for its frame"),
        ({"data": [{"title": "t"}]}, "article 1: expected the key 'paragraphs', found 'title'"),
        (squad(context=None), "article 1, paragraph 1: expected 'context' to be text, found 'None'"),
        (squad(id=3), "article 1, paragraph 1, question 1: expected 'id' to be text"),
        (squad(question=None), "question 'q7': expected 'question' to be text"),
        (squad(answers=[]), "question 'q7': expected an answer, found none"),
        ({"data": 2 * squad()["data"]}, "question 'q7': expected an id of its own"),
        (squad(answers=[{"text": "1973"}]), "question 'q7': expected the key 'answer_start', found 'text'"),
        (squad(answers=[{**ANSWER, "answer_start": True}]), "expected 'answer_start' to be a whole number"),
        (
            squad(answers=[{**ANSWER, "answer_start": 11}]),
            "question 'q7': expected the answer '1973' at character 11, found ' 197'",
        ),
        (squad(answers=[{**ANSWER, "answer_start": -17}]), "question 'q7': .* at character -17, found ''"),
        (squad(answers=[{"text": " ", "answer_start": 2}]), "question 'q7': expected an answer with a word"),
    ],
)
def test_what_is_wrong_is_said_with_the_question(tmp_path, table, message):
    with pytest.raises(ValueError, match=message):
        QuestionAnswering.read(write(tmp_path, table))


# --- tokens and back ---


@pytest.mark.parametrize(
    ("answer", "tokens"),
    [
        ("1973", ["1973"]),
        ("1973 (", ["1973", "("]),
        (" 1973 ", ["1973"]),
        ("97", ["1973"]),
        ("73 ( Oct", ["1973", "(", "October"]),
        ("It", ["It"]),
        (".", ["."]),
    ],
)
def test_an_answer_is_the_fewest_tokens_that_cover_it(answer, tokens):
    question = ask(CONTEXT, answer)
    assert question.context.tokens[slice(*question.tokens_of_answer())] == tokens


@given(st.text(alphabet="ab'. -é\u0301한\u1112\u1161\u11ab\t\U0001f600", max_size=30))
def test_tokens_that_were_normalized_are_found_again(text):
    for tokenizer in (WORDS, make_tokenizer("whitespace")):
        assert find_tokens(text, tokenizer.tokens(text), "here") == tokenizer.spans(text)
    assert find_tokens(text, text.split(), "here") == make_tokenizer("whitespace").spans(text)


def test_tokens_that_are_not_in_the_text_are_refused():
    with pytest.raises(ValueError, match="input:1: expected the token 'c' in the text, found 'b'"):
        find_tokens("a b", ["a", "c"], "input:1")


# --- long contexts ---


def test_long_contexts_are_cut_around_the_answer_and_the_loss_is_told():
    text = " ".join(f"w{i}." for i in range(50)).replace(".", "")
    questions = [
        ask(text, " ".join(f"w{i}" for i in range(a, b))) for a, b in [(1, 3), (9, 11), (48, 50), (5, 16)]
    ]
    task = QuestionAnswering(BidafSettings(longest=10), {})
    with pytest.warns(
        UserWarning,
        match=r"3 of 5 questions are trained on 10 tokens .*; 1 are left out, .*: data.json:w5 w6",
    ):
        kept = task.training_examples([*questions, ask("w1 w2", "w2")])
    assert [question.context.tokens[0] for question in kept] == ["w0", "w5", "w40", "w1"]
    for question in kept:
        assert len(question.context.tokens) <= 10
        start, end = question.tokens_of_answer()
        (a, _), (_, b) = question.context.spans[start], question.context.spans[end - 1]
        assert question.context.text[a:b] == question.answers[0].text
    assert task.measured_examples(questions) == questions


@given(st.integers(1, 40), st.integers(1, 40), st.data())
def test_a_part_has_the_whole_answer_if_it_can(count, longest, data):
    first = data.draw(st.integers(0, count - 1))
    last = data.draw(st.integers(first + 1, count))
    words = [f"w{i}" for i in range(count)]
    context = " ".join(words)
    answer = " ".join(words[first:last])
    start = len(" ".join(words[:first])) + (first > 0)
    question = Question(Text(context, WORDS), Text("?", WORDS), (Answer(answer, start),), "here")
    cut = cut_contexts([question], longest)
    assert len(cut.questions) + len(cut.left_out) == 1
    assert bool(cut.left_out) == (count > longest and last - first > longest)
    for kept in cut.questions:
        assert len(kept.context.tokens) == min(count, longest)
        assert kept.context.tokens[slice(*kept.tokens_of_answer())] == words[first:last]


def test_questions_about_the_same_part_share_it():
    text = Text(" ".join(f"w{i}" for i in range(50)), WORDS)
    asked = [Question(text, Text("?", WORDS), (Answer(w, text.text.index(w)),), w) for w in ("w27", "w28")]
    one, two = cut_contexts(asked, 10).questions
    assert one.context is two.context


# --- official scores: cases worked out by hand from evaluate-v1.1.py ---


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The  Cat,\tan Owl; a dog!", "cat owl dog"),
        ("U.S.", "us"),
        ("a.b", "ab"),  # punctuation goes first, so no article is left
        ("the-other an'a", "theother ana"),
        ("“The” café — 5€", "“ ” café — 5€"),  # only ASCII punctuation; an article between others is one
        ("A", ""),
        ("theatre Athens", "theatre athens"),
    ],
)
def test_answers_are_normalized_as_the_official_script_does(text, normal):
    assert normalize_answer(text) == normal


@pytest.mark.parametrize(
    ("found", "right", "f1", "em"),
    [
        ("the 1973 Oil Crisis.", "1973 oil crisis", 1.0, 1.0),
        ("oil crisis of 1973", "1973 oil crisis", 6 / 7, 0.0),
        ("oil", "1973 oil crisis", 0.5, 0.0),
        ("oil oil oil", "oil oil", 0.8, 0.0),
        ("gas", "oil", 0.0, 0.0),
        ("", "oil", 0.0, 0.0),
        ("The", "a", 0.0, 1.0),  # nothing is left of either: equal, but without a word that both have
    ],
)
def test_f1_and_exact_match(found, right, f1, em):
    assert f1_score(found, right) == pytest.approx(f1)
    assert exact_match(found, right) == em


def test_the_best_of_several_right_answers_counts():
    questions = [ask("the oil crisis", "oil"), ask("the oil crisis", "crisis")]
    questions[0] = Question(questions[0].context, questions[0].question, (Answer("x", 0), Answer("oil", 4)), "")
    assert score_answers(["oil crisis", "Crisis"], questions) == {
        "f1": pytest.approx(100 * (2 / 3 + 1) / 2),
        "em": 50.0,
    }


# --- the network ---


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
