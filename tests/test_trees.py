"""Trees of the Stanford Sentiment Treebank: phrases as spans, and a message for every way to be wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.tasks.sentiment.trees import SCALE, Phrase, parse_tree

WORDS = st.text(st.sampled_from("aé한\u00a0\t'`\\/-,."), min_size=1, max_size=4)
LABELS = st.integers(0, 4)
# A tree is (label, word) or (label, [trees]).
TREES = st.recursive(
    st.tuples(LABELS, WORDS),
    lambda inner: st.tuples(LABELS, st.lists(inner, min_size=1, max_size=3)),
    max_leaves=12,
)


def written(tree) -> str:
    label, inside = tree
    return f"({label} {inside if isinstance(inside, str) else ' '.join(map(written, inside))})"


def walked(tree, start: int = 0) -> tuple[list[str], list[Phrase]]:
    """The same by plain recursion."""
    label, inside = tree
    if isinstance(inside, str):
        return [inside], [Phrase(start, start + 1, SCALE[label])]
    tokens, phrases = [], []
    for child in inside:
        words, found = walked(child, start + len(tokens))
        tokens += words
        phrases += found
    return tokens, [*phrases, Phrase(start, start + len(tokens), SCALE[label])]


def test_a_tree_is_its_tokens_and_phrases():
    tree = parse_tree("(3 (2 It) (4 (2 's) (4 good)))")
    assert tree.tokens == ["It", "'s", "good"]
    assert tree.label == "positive"
    assert tree.phrases == [
        (0, 1, "neutral"),
        (1, 2, "neutral"),
        (2, 3, "very positive"),
        (1, 3, "very positive"),
        (0, 3, "positive"),
    ]


@given(TREES)
def test_what_is_written_is_read(tree):
    assert parse_tree(written(tree)) == walked(tree)


def test_only_the_plain_space_separates():
    tree = parse_tree("(2 (2 either\\/or)  (2 8\u00a01\\/2) )")
    assert tree.tokens == ["either\\/or", "8\u00a01\\/2"]


def test_a_deep_tree_is_no_recursion():
    assert len(parse_tree("(2 " * 5000 + "so" + ")" * 5000).phrases) == 5000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a tree, found nothing"),
        ("It 's good", r"begins with \(, found \"It 's good\" at character 1"),
        (
            "(3 (2 It) (4 good)",
            r"expected \) at the end of the tree, found 1 open brackets, the last at character 1",
        ),
        ("(3 (2 It) (4 good", "found 2 open brackets, the last at character 11"),
        (
            "(3 (2 It)) (4 good))",
            r"expected the end of the line after the tree, found '\(4 good\)\)' at character 12",
        ),
        ("(3 (2 It)))", r"expected the end of the line after the tree, found '\)' at character 11"),
        ("(3 (2 It) ((4 good)))", r"expected a label of 0 to 4, found '\(' at character 12"),
        ("(3 (2 It) (good))", "expected a label of 0 to 4, found 'good' at character 12"),
        ("(5 (2 It))", "expected a label of 0 to 4, found '5' at character 2"),
        ("(3 (2 It) (²  good))", "expected a label of 0 to 4, found '²'"),
        ("(3 (2 It) ())", r"expected a label of 0 to 4 and a word, found '\)' at character 12"),
        ("(3 (2 It) (2))", r"expected a word after the label, found '\)' at character 13"),
        ("(3 (2 It is))", "expected one word, or phrases in brackets, found 'is' at character 10"),
        ("(3 (2 It) is)", "expected one word, or phrases in brackets, found 'is' at character 11"),
        ("(3 It (2 is))", r"expected \) after the word, found '\(' at character 7"),
    ],
)
def test_what_is_wrong_is_said(text, message):
    with pytest.raises(ValueError, match=message):
        parse_tree(text)
