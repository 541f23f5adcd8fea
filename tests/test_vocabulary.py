from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.text.vocabulary import Vocabulary


def test_specials_come_first_whether_listed_or_not():
    assert Vocabulary(["the", "of"]).words == ["<S>", "</S>", "<UNK>", "the", "of"]
    assert Vocabulary(["<S>", "</S>", "<UNK>", "the"]).words == ["<S>", "</S>", "<UNK>", "the"]


def test_an_unknown_word_has_the_id_of_unk():
    vocabulary = Vocabulary(["the"])
    assert vocabulary.id("the") == 3
    assert vocabulary.id("bank") == vocabulary.id("<UNK>") == 2
    assert "bank" not in vocabulary


def test_a_word_listed_twice_is_refused():
    with pytest.raises(ValueError, match="'of' occurs again"):
        Vocabulary(["the", "of", "a", "of"])


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r"), min_size=1), unique=True)
)
def test_save_and_load_round_trip(tmp_path_factory, words):
    path = tmp_path_factory.mktemp("vocabulary") / "vocabulary.txt"
    vocabulary = Vocabulary(words)
    vocabulary.save(path)
    assert Vocabulary.load(path) == vocabulary


@pytest.mark.parametrize("word", ["", "two\nlines"])
def test_a_word_that_a_line_cannot_hold_is_refused_and_nothing_is_written(tmp_path, word):
    with pytest.raises(ValueError, match="one word per line"):
        Vocabulary(["the", word]).save(tmp_path / "v.txt")
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_is_refused_with_its_line(tmp_path):
    path = tmp_path / "v.txt"
    path.write_bytes(b"the\nof\n\xff\n")
    with pytest.raises(ValueError, match="line 3"):
        Vocabulary.load(path)
    path.write_text("the\n\nof\n")
    with pytest.raises(ValueError, match="empty line 2"):
        Vocabulary.load(path)


def test_counts_order_the_words_and_names_break_ties():
    counts = {"b": 2, "the": 9, "a": 2, "rare": 1}
    assert Vocabulary.from_counts(counts).words[3:] == ["the", "a", "b", "rare"]
    assert Vocabulary.from_counts(reversed(counts.items())) == Vocabulary.from_counts(counts)


def test_size_counts_the_specials_and_rare_words_are_left_out():
    counts = {"b": 2, "the": 9, "a": 2, "rare": 1, "<UNK>": 100, "</S>": 5}
    assert Vocabulary.from_counts(counts, size=5).words == ["<S>", "</S>", "<UNK>", "the", "a"]
    assert Vocabulary.from_counts(counts, size=100, min_count=2).words[3:] == ["the", "a", "b"]
    assert Vocabulary.from_counts({"one": 1}).words[3:] == ["one"]


@pytest.mark.parametrize(
    ("counts", "options", "message"),
    [
        ({}, {}, "no words"),
        ({"<UNK>": 4}, {}, "no words"),
        ({"a": 4}, {"min_count": 5}, "none occurs 5 times"),
        ({"a": 4}, {"size": 3}, "expected 4 or more, found 3"),
    ],
)
def test_a_vocabulary_of_no_words_is_refused(counts, options, message):
    with pytest.raises(ValueError, match=message):
        Vocabulary.from_counts(counts, **options)


WORDS = st.text(min_size=1).filter(lambda word: word not in ("<S>", "</S>", "<UNK>"))


@given(st.dictionaries(WORDS, st.integers(1, 5), min_size=1), st.integers(4, 12))
def test_a_smaller_vocabulary_is_the_beginning_of_a_larger_one(counts, size):
    whole = Vocabulary.from_counts(counts)
    assert Vocabulary.from_counts(counts, size=size).words == whole.words[:size]
    frequencies = [counts[word] for word in whole.words[3:]]
    assert frequencies == sorted(frequencies, reverse=True)
