"""Semantic roles: propositions of CoNLL-2012, arguments as srl-eval.pl counts them, the task."""

from __future__ import annotations

from pathlib import Path

import pytest

from elmokit.tasks.spans import Span, overall, spans_of
from elmokit.tasks.srl.arguments import Argument, arguments_of, score_arguments
from elmokit.tasks.srl.network import SrlSettings
from elmokit.tasks.srl.propositions import Proposition
from elmokit.tasks.srl.task import SemanticRoles
from elmokit.tasks.task import IGNORED, TrainConfig

FIXTURE = Path(__file__).parent / "tasks" / "srl.conll"
DATA = Path(__file__).parent.parent.parent / "shared" / "data" / "srl"


def columns(words: str, *roles: str) -> str:
    """A sentence: one string of cells a predicate."""
    cells = zip(*(role.split() for role in roles)) if roles else [()] * len(words.split())
    rows = [
        " ".join(["doc", "0", str(i), word, "XX", "*", "-", "-", "-", "-", "*", *row, "-"])
        for i, (word, row) in enumerate(zip(words.split(), cells))
    ]
    return "\n".join(rows) + "\n\n"


def read(tmp_path: Path, text: str) -> list[Proposition]:
    (tmp_path / "x.conll").write_text("#begin document (doc); part 000\n" + text + "#end document\n")
    return SemanticRoles.read(tmp_path / "x.conll")


# Reading


def test_the_fixture_is_read():
    examples = SemanticRoles.read(FIXTURE)
    assert examples[0].tokens == ["He", "gave", "her", "a", "book", "."]
    assert examples[0].predicate == (1, 2)
    assert examples[0].spans == [Span(0, 1, "ARG0"), Span(1, 2, "V"), Span(2, 3, "ARG2"), Span(3, 5, "ARG1")]
    assert examples[0].tags == ["B-ARG0", "B-V", "B-ARG2", "B-ARG1", "I-ARG1", "O"]
    assert examples[0].where == "srl.conll:3"  # the predicate's line
    assert examples[1].tokens[8:11] == ["(", "again", ")"]
    assert examples[6].predicate == (1, 3)  # pick up
    assert all(spans_of(example.tags) == example.spans for example in examples)
    assert SemanticRoles.labels_of(examples)["roles"] == sorted(
        "V C-V ARG0 ARG1 ARG2 R-ARG0 C-ARG1 ARGM-TMP ARGM-ADV ARGM-DIS ARGM-MOD ARGM-NEG ARGM-MNR".split()
    )


def test_a_sentence_without_predicates_gives_none(tmp_path):
    examples = read(tmp_path, columns("Well .") + columns("Go !", "(V*) *") + columns("Hm"))
    assert [example.tokens for example in examples] == [["Go", "!"]]
    with pytest.raises(ValueError, match=r"x\.conll: expected predicates .* found none"):
        read(tmp_path, columns("Well ."))


@pytest.mark.parametrize(
    ("cells", "line", "message"),
    [
        (
            "(A*) (A0* (A1*) *) (V*)",
            4,
            r"expected A0 of line 3 to end before another span begins, found '\(A1\*\)'",
        ),
        ("(A0* (A1* *) *) (V*)", 3, "expected A0 of line 2 to end before"),
        ("(A0*) *) * * (V*)", 3, r"expected an open span where one ends, found '\*\)'"),
        ("(V*) (A0* * * *", 3, r"expected A0 to end in its sentence, found no '\)' up to line 6"),
        ("(A0(A1* *)) * * (V*)", 2, r"expected \(ROLE\*, \*, \*\) or \(ROLE\*\), found '\(A0\(A1\*'"),
        ("(V*) A0 * * *", 3, "found 'A0'"),
        ("(V*) * (V*) * *", 4, "expected one V in column 12 of the sentence, found 2"),
        ("(A0*) * * * *", 2, "expected one V in column 12 of the sentence, found 0"),
    ],
)
def test_brackets_that_are_wrong_are_refused_with_their_line(tmp_path, cells, line, message):
    with pytest.raises(ValueError, match=rf"x\.conll, line {line}: .*{message}"):
        read(tmp_path, columns("a b c d e", cells))


def test_a_missing_column_is_refused_with_its_line(tmp_path):
    lines = columns("a b c", "(V*) * *").splitlines()
    lines[1] = lines[1].rsplit(" ", 1)[0]
    with pytest.raises(ValueError, match=r"x\.conll, line 3: expected 13 columns as in line 2.*, found 12"):
        read(tmp_path, "\n".join(lines) + "\n")
    with pytest.raises(ValueError, match=r"x\.conll, line 2: expected 12 columns or more, .* found 4"):
        read(tmp_path, "doc 0 0 word\n")


@pytest.mark.skipif(not DATA.is_dir(), reason="shared/data/srl beside the repository is not here")
def test_the_real_dev_data_is_read():
    examples = SemanticRoles.read(DATA / "dev.conll.xz")
    assert len(examples) == 4950
    assert sum(len(example.spans) - 1 for example in examples) == 9556


# Scores


def test_continuations_are_pieces_of_one_argument():
    spans = [Span(0, 2, "A1"), Span(2, 3, "V"), Span(4, 5, "C-A1"), Span(5, 6, "C-V"), Span(6, 7, "R-A1")]
    assert arguments_of(spans) == {Argument("A1", ((0, 2), (4, 5))), Argument("R-A1", ((6, 7),))}
    # Of two A1 it is the last that is continued; without one, C-A2 is an A2, and can be continued.
    spans = [Span(0, 1, "A1"), Span(1, 2, "A1"), Span(3, 4, "C-A1"), Span(4, 5, "C-A2"), Span(6, 7, "C-A2")]
    assert arguments_of(spans) == {
        Argument("A1", ((0, 1),)),
        Argument("A1", ((1, 2), (3, 4))),
        Argument("A2", ((4, 5), (6, 7))),
    }


def test_scores_by_hand():
    gold = [
        [Span(0, 1, "A0"), Span(1, 2, "V"), Span(2, 4, "A1"), Span(4, 5, "TMP")],
        [Span(0, 1, "A1"), Span(1, 2, "V"), Span(2, 3, "C-A1"), Span(3, 4, "R-A1")],
        [Span(0, 1, "V")],
    ]
    predicted = [
        [Span(0, 1, "A0"), Span(1, 2, "V"), Span(2, 3, "A1"), Span(4, 5, "LOC")],  # a wrong end, a wrong role
        [Span(0, 1, "A1"), Span(1, 2, "V"), Span(3, 4, "R-A1")],  # half of A1 is not A1
        [Span(1, 2, "A1")],  # and the V that is missing is not missed
    ]
    roles = score_arguments(predicted, gold)
    total = overall(roles.values())
    assert total == (2, 6, 5)  # correct: A0, R-A1
    assert total.scores() == pytest.approx({"f1": 400 / 11, "precision": 200 / 6, "recall": 40.0})
    assert roles == {"A0": (1, 1, 1), "A1": (0, 3, 2), "LOC": (0, 1, 0), "R-A1": (1, 1, 1), "TMP": (0, 0, 1)}
    assert overall(score_arguments(gold, gold).values()).scores()["f1"] == pytest.approx(100.0)
    assert score_arguments([[]], [[Span(0, 1, "V")]]) == {}  # V does not count
    assert overall([]).scores() == {"f1": 0.0, "precision": 0.0, "recall": 0.0}


def test_metrics_and_the_table_by_role():
    examples = SemanticRoles.read(FIXTURE)
    task = SemanticRoles(SrlSettings(), SemanticRoles.labels_of(examples))
    gold = [example.tags for example in examples]
    assert task.metrics(gold, examples) == {"f1": 100.0, "precision": 100.0, "recall": 100.0}
    none = [["O"] * len(example.tokens) for example in examples]
    rows = {row["label"]: row for row in task.by_label([gold[0], *none[1:]], examples)}
    assert "V" not in rows
    assert "C-ARG1" not in rows
    assert rows["ARG2"] == {"label": "ARG2", "f1": 100.0, "precision": 100.0, "recall": 100.0, "count": 1}
    assert rows["ARG1"]["count"] == 8  # and one C-ARG1, which is a piece


# The task


def test_a_role_that_training_has_not_seen(tmp_path):
    examples = SemanticRoles.read(FIXTURE)
    task = SemanticRoles(SrlSettings(), SemanticRoles.labels_of(examples))
    strange = read(tmp_path, columns("We go home", "(ARG0*) (V*) (ARG9*)"))
    with pytest.raises(ValueError, match=r"x\.conll:3: role 'ARG9' is not among those of training: ARG0, "):
        task.check(strange)
    features = task.collate(strange)
    assert features["tags"][0, 2] == IGNORED
    assert features["predicate"].tolist() == [[0, 1, 0]]
    assert task.metrics([["B-ARG0", "B-V", "O"]], strange)["recall"] == pytest.approx(50.0)


def test_a_line_of_a_user_has_its_predicate_in_brackets():
    example = SemanticRoles.example("He [gave up] smoking .", str.split, "line 1")
    assert example.tokens == ["He", "gave", "up", "smoking", "."]
    assert example.predicate == (1, 3)
    assert example.spans is None
    task = SemanticRoles(SrlSettings(), {"roles": ["V"]})
    assert set(task.collate([example])) == {"predicate"}
    for wrong in ("He gave it .", "[He] [gave] it .", "He [] it", "He [ ] it", "", "He ]gave["):
        with pytest.raises(ValueError, match=r"line 2: expected one predicate in square brackets"):
            SemanticRoles.example(wrong, str.split, "line 2")


def test_a_prediction_is_shown_in_brackets():
    example = SemanticRoles.example("He [gave] her a book .", str.split, "line 1")
    tags = ["B-ARG0", "B-V", "B-ARG2", "B-ARG1", "I-ARG1", "O"]
    assert SemanticRoles.show(example, tags) == "[ARG0 He] [V gave] [ARG2 her] [ARG1 a book] ."
    assert SemanticRoles.show(example, ["O"] * 6) == "He gave her a book ."


def test_recipes_are_there():
    settings, train = SemanticRoles.recipes["paper"]
    assert (settings.layers, settings.cells, settings.indicator, settings.dropout) == (8, 300, 100, 0.1)
    assert (train.optimizer, train.learning_rate, train.examples) == ("adadelta", 1.0, 80)
    assert isinstance(SemanticRoles.recipes["laptop"][1], TrainConfig)


@pytest.mark.parametrize("wrong", [{"cells": 0}, {"layers": 0}, {"indicator": 0}, {"dropout": -0.1}])
def test_settings_that_cannot_be_are_refused(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))}: expected"):
        SrlSettings(**wrong)
