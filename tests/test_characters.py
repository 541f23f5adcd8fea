from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.text.characters import BOS, BOW, EOS, EOW, PAD, ByteMapper, LexiconMapper
from elmokit.text.vocabulary import WordMapper, make_mapper


def inside(ids: list[int]) -> list[int]:
    """What stands between BOW and EOW; checks that nothing but PAD follows."""
    assert ids[0] == BOW
    end = ids.index(EOW)
    assert set(ids[end + 1 :]) <= {PAD}
    return ids[1:end]


def test_rice_is_spelled_as_published():
    assert ByteMapper().spell("밥") == [258, 235, 176, 165, 259] + [260] * 45


def test_sentence_boundaries_are_those_of_the_published_files():
    mapper = ByteMapper()
    assert list(mapper.begin - 1) == [258, 256, 259] + [260] * 47
    assert list(mapper.end - 1) == [258, 257, 259] + [260] * 47
    assert (BOS, EOS) == (256, 257)


def test_a_row_is_shifted_so_that_zero_is_left_for_padding():
    row = np.zeros(50, dtype=np.int64)
    ByteMapper().fill(row, "\0")  # the NUL byte itself is id 0 before the shift
    assert list(row[:4]) == [259, 1, 260, 261]
    assert (row > 0).all()


@pytest.mark.parametrize(
    ("token", "room", "kept"),
    [
        ("밥밥밥", 7, "밥밥"),  # 9 bytes into 7: the third syllable would be cut
        ("밥밥밥", 9, "밥밥밥"),
        ("aé", 2, "a"),
        ("😀", 3, ""),
        ("abcdef", 3, "abc"),
        ("", 5, ""),
        (" ", 5, " "),
    ],
)
def test_no_character_is_cut_in_half(token, room, kept):
    ids = ByteMapper(max_characters_per_token=room + 2).spell(token)
    assert bytes(inside(ids)).decode() == kept
    assert len(ids) == room + 2


def test_the_published_way_cuts_between_bytes():
    ids = ByteMapper(max_characters_per_token=9, published=True).spell("밥밥밥")
    assert inside(ids) == list("밥밥밥".encode()[:7])


def test_the_published_way_reads_boundary_tokens_and_drops_half_surrogates():
    published, ours = ByteMapper(published=True), ByteMapper()
    assert published.spell("<S>")[1] == BOS
    assert published.spell("</S>")[1] == EOS
    assert bytes(inside(published.spell("a\ud800b"))) == b"ab"
    assert bytes(inside(ours.spell("<S>"))) == b"<S>"
    assert bytes(inside(ours.spell("a\ud800b"))).decode() == "a\ufffdb"


def test_a_token_of_ten_thousand_characters():
    assert bytes(inside(ByteMapper().spell("x" * 10_000))) == b"x" * 48
    assert bytes(inside(ByteMapper().spell("밥" * 10_000))).decode() == "밥" * 16


@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(3, 60))
def test_what_is_spelled_is_the_longest_prefix_that_fits(token, width):
    kept = bytes(inside(ByteMapper(max_characters_per_token=width).spell(token))).decode()  # decodes: nothing cut
    assert token.startswith(kept)
    if kept != token:
        assert len((kept + token[len(kept)]).encode()) > width - 2


def test_room_for_less_than_one_character_is_refused():
    with pytest.raises(ValueError, match="expected 3 or more, found 2"):
        ByteMapper(max_characters_per_token=2)


LEXICON = {c: i for i, c in enumerate(["<bos>", "<eos>", "<bow>", "<eow>", "<oov>", "<pad>", "a", "밥"])}
WORDS = {"<bos>": 0, "<eos>": 1, "<oov>": 2, "<pad>": 3, "a밥": 4}


def test_lexicon_ids_with_the_upstream_swap_and_the_word_last():
    mapper = LexiconMapper(LEXICON, WORDS, max_characters_per_token=6)
    row = np.zeros(mapper.width, dtype=np.int64)
    mapper.fill(row, "a밥z")
    eow, bow, oov, pad = 3, 2, 4, 5
    assert list(row - 1) == [eow, 6, 7, oov, bow, pad, WORDS["<oov>"]]
    mapper.fill(row, "a밥")
    assert row[-1] - 1 == WORDS["a밥"]
    assert list(mapper.begin - 1) == [eow, 0, bow, pad, pad, pad, 0]


def test_a_lexicon_without_its_special_entries_is_refused():
    with pytest.raises(ValueError, match="no entry <oov>"):
        LexiconMapper({k: v for k, v in LEXICON.items() if k != "<oov>"}, None)
    with pytest.raises(ValueError, match="found neither"):
        LexiconMapper(None, None)


def test_word_ids_fall_back_to_lower_case_and_then_to_unknown():
    mapper = WordMapper(["the", "Bank"])

    def look_up(token):
        row = np.zeros(1, dtype=np.int64)
        mapper.fill(row, token)
        return int(row[0])

    assert [int(mapper.begin[0]), int(mapper.end[0])] == [1, 2]
    assert look_up("the") == look_up("The") == 4
    assert look_up("Bank") == 5
    assert look_up("bank") == look_up("밥") == 3  # unknown


@pytest.mark.parametrize(
    "mapper",
    [ByteMapper(max_characters_per_token=7, published=True), LexiconMapper(LEXICON, WORDS, 9), WordMapper(["a"])],
)
def test_a_mapper_comes_back_from_its_description(mapper):
    again = make_mapper(mapper.to_dict())
    assert again.to_dict() == mapper.to_dict()
    rows = np.zeros((2, mapper.width), dtype=np.int64)
    mapper.fill(rows[0], "a밥")
    again.fill(rows[1], "a밥")
    assert (rows[0] == rows[1]).all()
    assert (again.begin == mapper.begin).all()


@pytest.mark.parametrize("table", [{}, {"kind": "letters"}, {"kind": "bytes", "width": 3}])
def test_an_unknown_mapper_is_refused(table):
    with pytest.raises(ValueError, match="mapper"):
        make_mapper(table)
