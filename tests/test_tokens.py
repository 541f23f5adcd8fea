from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.text.tokens import TOKENIZERS, TokenizerConfig, make_tokenizer


def test_whitespace_tokens_are_those_of_str_split():
    text = "He sat\ton  the\u3000bank\x1c.\n"
    assert make_tokenizer("whitespace").tokens(text) == text.split()


@given(st.text())
def test_whitespace_agrees_with_str_split_on_any_text(text):
    tokenizer = make_tokenizer(TokenizerConfig("whitespace", "none"))
    assert tokenizer.tokens(text) == text.split()


def test_tokens_are_composed_by_default_and_offsets_are_those_of_the_text_as_given():
    decomposed = unicodedata.normalize("NFD", "밥을 먹는 café")
    tokenizer = make_tokenizer("words")
    assert tokenizer.tokens(decomposed) == ["밥을", "먹는", "café"]
    start, end = tokenizer.spans(decomposed)[2]
    assert decomposed[start:end] == unicodedata.normalize("NFD", "café")


def test_normalization_can_be_left_out_or_be_stronger():
    assert make_tokenizer(TokenizerConfig("whitespace", "none")).tokens("e\u0301") == ["e\u0301"]
    assert make_tokenizer(TokenizerConfig("whitespace", "NFKC")).tokens("ﬁ") == ["fi"]


def test_half_a_surrogate_pair_becomes_the_replacement_character():
    assert make_tokenizer("whitespace").tokens("a\ud800b \udc00") == ["a\ufffdb", "\ufffd"]


def test_given_tokens_are_kept_one_for_one_even_when_blank():
    assert make_tokenizer("words").clean(["", " ", "don't", "e\u0301"]) == ["", " ", "don't", "é"]


def test_sentences_come_without_the_white_space_around_them():
    assert make_tokenizer("words").sentences(" It rained. We stayed.\n") == ["It rained.", "We stayed."]


def test_an_unknown_name_is_answered_with_a_suggestion():
    with pytest.raises(ValueError, match="did you mean 'words'"):
        make_tokenizer("word")


@pytest.mark.parametrize("name", TOKENIZERS)
def test_every_tokenizer_describes_itself(name):
    tokenizer = make_tokenizer(TokenizerConfig(name, "NFKC"))
    assert tokenizer.config == TokenizerConfig(name, "NFKC")
    assert tokenizer.tokens("") == []
