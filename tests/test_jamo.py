from __future__ import annotations

import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit import Elmo
from elmokit.pretrain.recipe import load_recipe
from elmokit.text.characters import BOS, BOW, EOS, EOW, PAD, ByteMapper
from elmokit.text.jamo import FINAL, INITIAL, VOWEL, JamoMapper
from elmokit.text.vocabulary import make_mapper

SYLLABLES = st.characters(min_codepoint=0xAC00, max_codepoint=0xD7A3)
MIXED = st.text(
    st.one_of(SYLLABLES, st.sampled_from("ㄱㅋㅠㄳ\u1100\u1161\u11a8\u11aaaé😀漢\ud800"), st.characters())
)


def inside(token: str, room: int = 48) -> list[int]:
    """What stands between BOW and EOW; checks that nothing but PAD follows."""
    ids = JamoMapper(max_characters_per_token=room + 2).spell(token)
    assert ids[0] == BOW
    end = ids.index(EOW)
    assert set(ids[end + 1 :]) <= {PAD}
    assert len(ids) == room + 2
    return ids[1:end]


def test_a_syllable_is_its_letters():
    assert inside("밥") == [INITIAL + 7, VOWEL + 0, FINAL + 16]
    assert inside("가힣") == [INITIAL, VOWEL, INITIAL + 18, VOWEL + 20, FINAL + 26]
    assert (INITIAL, FINAL + 27 + 1) == (PAD + 1, 329)
    assert JamoMapper().table_sizes == (329, 0)


def test_letters_that_stand_alone_share_the_ids():
    assert inside("ㅎㅏ") == inside("하")
    assert inside("ㅋㅋㅠ") == [INITIAL + 15, INITIAL + 15, VOWEL + 17]
    assert inside("ㄳ") == [FINAL + 2]
    assert inside("\u1112\u1161\u11ab") == inside("하\u11ab") == inside("한")


def test_everything_else_is_bytes():
    assert bytes(inside("aé漢😀\0ᄓﾡ")).decode() == "aé漢😀\0ᄓﾡ"
    assert bytes(inside("a\ud800")).decode() == "a\ufffd"
    assert inside("<S>") == list(b"<S>")


def test_rows_and_boundaries_are_those_of_the_byte_mapper():
    jamo, as_bytes = JamoMapper(), ByteMapper()
    assert (jamo.begin == as_bytes.begin).all()
    assert (jamo.end == as_bytes.end).all()
    assert (jamo.spell("")[:2], jamo.begin[1] - 1, jamo.end[1] - 1) == ([BOW, EOW], BOS, EOS)
    assert jamo.spell("river") == as_bytes.spell("river")


@given(MIXED)
def test_composed_and_decomposed_syllables_are_spelled_alike(token):
    hangul = "".join(character for character in token if not unicodedata.combining(character))
    hangul = "".join(c for c in hangul if "가" <= c <= "힣" or unicodedata.normalize("NFD", c) == c)
    assert inside(hangul) == inside(unicodedata.normalize("NFD", hangul))


@given(st.text(SYLLABLES), st.integers(1, 30))
def test_no_syllable_is_cut_and_none_is_longer_than_its_bytes(token, room):
    kept = JamoMapper.unspell(inside(token, room))
    assert token.startswith(kept)
    assert len(inside(token, 3 * len(token) + 1)) <= len(token.encode())
    if kept != token:
        assert len(inside(kept + token[len(kept)], room + 3)) > room
    decomposed = unicodedata.normalize("NFD", token)
    assert inside(decomposed, room) == inside(token, room)


@given(MIXED, st.integers(1, 30))
def test_no_character_is_cut(token, room):
    whole = inside(token, 4 * len(token) + 1)
    kept = inside(token, room)
    assert whole[: len(kept)] == kept
    bytes([i for i in kept if i < BOS]).decode()  # decodes: nothing cut


@given(MIXED)
def test_what_is_read_back_is_spelled_the_same(token):
    room = 4 * len(token) + 1
    assert inside(JamoMapper.unspell(inside(token, room)), room) == inside(token, room)


@given(st.text(st.one_of(SYLLABLES, st.characters(max_codepoint=0x10FF, exclude_categories=["Cs"]))))
def test_words_are_read_back(token):
    assert JamoMapper.unspell(inside(token, 4 * len(token) + 1)) == token


@pytest.mark.parametrize("token", ["밥" * 10_000, unicodedata.normalize("NFD", "밥" * 10_000)])
def test_a_token_of_ten_thousand_characters(token):
    assert JamoMapper.unspell(inside(token)) == "밥" * 16


def test_room_for_less_than_one_character_is_refused():
    with pytest.raises(ValueError, match="expected 3 or more, found 2"):
        JamoMapper(max_characters_per_token=2)


def test_it_comes_back_from_its_description():
    mapper = JamoMapper(max_characters_per_token=7)
    assert make_mapper(mapper.to_dict()) == mapper


def test_a_recipe_chooses_it_and_gets_its_table(tmp_path):
    recipe = load_recipe("tiny", ["mapper.kind=jamo"])
    assert recipe.mapper == JamoMapper()
    assert recipe.model.encoder.characters == 329
    assert load_recipe("tiny").model.encoder.characters == 262
    path = tmp_path / "short.toml"
    path.write_text("[mapper]\nmax_characters_per_token = 9\n")
    assert load_recipe(path).mapper == ByteMapper(max_characters_per_token=9)
    with pytest.raises(ValueError, match=r"'jamo' makes 329 ids, found 262: leave the key out"):
        load_recipe("tiny", ["mapper.kind=jamo", "model.encoder.characters=262"])
    with pytest.raises(ValueError, match=r"'mapper\.kind': expected one of 'bytes', 'jamo'"):
        load_recipe("tiny", ["mapper.kind=letters"])


def test_a_model_that_reads_letters_is_saved_and_loaded(tmp_path):
    path = tmp_path / "jamo.toml"
    path.write_text(
        '[mapper]\nkind = "jamo"\n[tokenizer]\nname = "words"\n'
        '[model.encoder]\nkind = "characters"\nembedding = 4\nfilters = [[1, 8], [2, 8], [3, 8]]\nhighway = 1\n'
        "[model.lstm]\ncells = 16\nwidth = 8\n"
    )
    sentences = ["밥을 먹었다 .", "재밌다 ㅋㅋ ㅠㅠ", "He sat by the river ."]
    elmo = Elmo.from_recipe(path)
    assert elmo.bilm.encoder.character_embedding.weight.shape[0] == 329
    elmo.save(tmp_path / "model")
    again = Elmo.from_pretrained(tmp_path / "model")
    assert again.mapper == JamoMapper()
    vectors = elmo.embed(sentences)
    for before, after in zip(vectors, again.embed(sentences)):
        np.testing.assert_array_equal(before, after)
    decomposed = elmo.embed([unicodedata.normalize("NFD", sentences[0])])
    np.testing.assert_allclose(vectors[0], decomposed[0], atol=1e-6)
