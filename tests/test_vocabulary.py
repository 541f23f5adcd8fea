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
    with pytest.raises(ValueError, match="one word a line"):
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
