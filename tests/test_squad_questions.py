"""Questions about a text: SQuAD's JSON, answers as tokens and back, long contexts, the official scores."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.tasks.squad.answers import exact_match, f1_score, normalize_answer, score_answers
from elmokit.tasks.squad.network import BidafSettings
from elmokit.tasks.squad.questions import Answer, Question, Text, cut_contexts, find_tokens
from elmokit.tasks.squad.task import QuestionAnswering
from elmokit.text.tokens import make_tokenizer

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


# Reading


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


# Tokens and back


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


# Long contexts


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


# Official scores: cases worked out by hand from evaluate-v1.1.py


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
    ("predicted", "gold", "f1", "em"),
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
def test_f1_and_exact_match(predicted, gold, f1, em):
    assert f1_score(predicted, gold) == pytest.approx(f1)
    assert exact_match(predicted, gold) == em


def test_the_best_of_several_gold_answers_counts():
    questions = [ask("the oil crisis", "oil"), ask("the oil crisis", "crisis")]
    questions[0] = Question(questions[0].context, questions[0].question, (Answer("x", 0), Answer("oil", 4)), "")
    assert score_answers(["oil crisis", "Crisis"], questions) == {
        "f1": pytest.approx(100 * (2 / 3 + 1) / 2),
        "em": 50.0,
    }
