"""Spans: tags and back, what may follow what, and counts as conlleval makes them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.tasks.spans import (
    Span,
    bio_may_follow,
    bio_tags,
    bioes_may_follow,
    bioes_tags,
    overall,
    score_spans,
    spans_of,
    split_tag,
    to_bio,
    to_bioes,
)

BIOES_TAGS = st.lists(st.sampled_from(bioes_tags(["loc", "per"])), max_size=8)


def valid(tags: list[str]) -> bool:
    return all(bioes_may_follow(a, b) for a, b in zip([None, *tags], [*tags, None]))


def valid_bio(tags: list[str]) -> bool:
    return all(bio_may_follow(a, b) for a, b in zip([None, *tags], [*tags, None]))


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        ("", []),
        ("O O", []),
        ("B-x I-x O", [(0, 2, "x")]),
        ("O I-x I-x O", [(1, 3, "x")]),  # I- after O begins
        ("B-x I-y O", [(0, 1, "x"), (1, 2, "y")]),  # another type inside
        ("I-x I-y I-y", [(0, 1, "x"), (1, 3, "y")]),
        ("B-x B-x I-x", [(0, 1, "x"), (1, 3, "x")]),  # B after B
        ("I-x B-x", [(0, 1, "x"), (1, 2, "x")]),  # IOB1
        ("B-x I-x E-x S-x", [(0, 3, "x"), (3, 4, "x")]),
        ("B-x L-x U-y O", [(0, 2, "x"), (2, 3, "y")]),  # BILOU
        ("E-x I-x E-x", [(0, 1, "x"), (1, 3, "x")]),
        ("S-x I-x", [(0, 1, "x"), (1, 2, "x")]),
        ("B-x S-x E-y", [(0, 1, "x"), (1, 2, "x"), (2, 3, "y")]),
        ("B-creative-work I-creative-work", [(0, 2, "creative-work")]),
    ],
)
def test_spans_of_tags(tags, spans):
    assert spans_of(tags.split()) == spans


@given(BIOES_TAGS)
def test_there_and_back(tags):
    spans = spans_of(tags)
    assert spans_of(to_bio(spans, len(tags))) == spans
    assert spans_of(to_bioes(spans, len(tags))) == spans
    assert valid(to_bioes(spans, len(tags)))
    assert (to_bioes(spans, len(tags)) == tags) == valid(tags)


@pytest.mark.parametrize("spans", [[(0, 2, "x"), (1, 3, "y")], [(2, 4, "x")], [(1, 1, "x")]])
def test_spans_that_no_tags_can_say_are_refused(spans):
    with pytest.raises(ValueError, match=r"expected (a span within 3|spans that do not overlap)"):
        to_bioes([Span(*span) for span in spans], 3)


@pytest.mark.parametrize("tag", ["", "B", "B-", "o", "Q-x", "O-x", "x", "-x"])
def test_what_is_no_tag_is_refused(tag):
    with pytest.raises(ValueError, match="expected O, or B-"):
        split_tag(tag)


def test_what_may_follow():
    yes = "None>O None>B-x None>S-x O>B-x B-x>I-x B-x>E-x I-x>I-x I-x>E-x E-x>O E-x>S-y S-x>S-x E-x>None O>None"
    no = "None>I-x None>E-x O>I-x O>E-x B-x>O B-x>B-x B-x>S-x B-x>I-y I-x>E-y E-x>E-x S-x>I-x B-x>None I-x>None"
    for pairs, expected in ((yes, True), (no, False)):
        for pair in pairs.split():
            before, after = (None if tag == "None" else tag for tag in pair.split(">"))
            assert bioes_may_follow(before, after) is expected, pair


def conlleval(gold: list[list[str]], predicted: list[list[str]]) -> tuple[int, int, int]:
    """Correct, predicted and gold, as the Perl script goes about it: one pass over both columns, asking at each
    token what ends and begins."""

    def ends(before, kind_before, tag, kind):
        return before + tag in ("BB", "BO", "IB", "IO") or (before != "O" and kind_before != kind)

    def begins(before, kind_before, tag, kind):
        return before + tag in ("BB", "IB", "OB", "OI") or (tag != "O" and kind_before != kind)

    correct = of_predicted = of_gold = 0
    both = False  # both are within a chunk that began at the same token, of one type
    columns = [[tag for sentence in side for tag in [*sentence, "O"]] for side in (gold, predicted)]
    last = ("O", "", "O", "")
    for g, p in zip(*columns):
        now = (*split_tag(g), *split_tag(p))
        gold_ends, predicted_ends = ends(*last[:2], *now[:2]), ends(*last[2:], *now[2:])
        if both and gold_ends and predicted_ends and last[1] == last[3]:
            correct, both = correct + 1, False
        elif both and (gold_ends != predicted_ends or now[1] != now[3]):
            both = False
        gold_begins, predicted_begins = begins(*last[:2], *now[:2]), begins(*last[2:], *now[2:])
        if gold_begins and predicted_begins and now[1] == now[3]:
            both = True
        of_gold, of_predicted, last = of_gold + gold_begins, of_predicted + predicted_begins, now
    return correct, of_predicted, of_gold


@settings(max_examples=300)
@given(st.lists(st.lists(st.tuples(*[st.sampled_from("O B-x I-x B-y I-y".split())] * 2), max_size=7), max_size=3))
def test_spans_are_counted_as_conlleval_counts(pairs):
    gold, predicted = ([[pair[side] for pair in sentence] for sentence in pairs] for side in (0, 1))
    score = overall(score_spans(map(spans_of, predicted), map(spans_of, gold)).values())
    assert (score.correct, score.predicted, score.gold) == conlleval(gold, predicted)


@pytest.mark.parametrize(
    ("gold", "predicted", "counts"),
    [
        ("B-x I-x O B-y", "B-x I-x O B-y", (2, 2, 2)),
        ("B-x I-x O", "O I-x O", (0, 1, 1)),  # the end is right, the start is not
        ("B-x I-x O", "I-x I-x O", (1, 1, 1)),  # I- after nothing begins
        ("B-x I-x I-x", "B-x I-y I-x", (0, 3, 1)),  # another type inside: three spans
        ("B-x I-x", "B-x B-x", (0, 2, 1)),
        ("B-x B-x", "B-x I-x", (0, 1, 2)),
        ("O O", "O O", (0, 0, 0)),
        ("O O", "B-x O", (0, 1, 0)),
    ],
)
def test_counts_by_hand(gold, predicted, counts):
    score = overall(score_spans([spans_of(predicted.split())], [spans_of(gold.split())]).values())
    assert (score.correct, score.predicted, score.gold) == counts
    assert conlleval([gold.split()], [predicted.split()]) == counts


def test_bio_tags_and_what_may_follow():
    assert bio_tags(["A", "C-A"]) == ["O", "B-A", "I-A", "B-C-A", "I-C-A"]
    assert valid_bio(["B-A", "I-A", "B-C-A", "I-C-A", "O", "B-A", "B-A"])
    for wrong in (["I-A"], ["O", "I-A"], ["B-C-A", "I-A"], ["B-A", "I-A", "I-C-A"]):
        assert not valid_bio(wrong)


@given(st.lists(st.sampled_from(bio_tags(["x", "y"])), max_size=8))
def test_valid_bio_tags_are_those_that_spans_have(tags):
    assert valid_bio(tags) == (to_bio(spans_of(tags), len(tags)) == tags)


def test_types_that_nobody_has_have_a_row_where_they_are_asked_for():
    assert score_spans([[Span(0, 1, "b")]], [[]], ["c", "a"]) == {"a": (0, 0, 0), "b": (0, 1, 0), "c": (0, 0, 0)}
