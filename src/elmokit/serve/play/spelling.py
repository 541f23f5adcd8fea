"""How a model spells a word, piece by piece, and how somebody might misspell it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import regex

from elmokit.text.characters import BOS, BOW, EOS, EOW, LONE_SURROGATE, LexiconMapper, Speller, TokenMapper
from elmokit.text.jamo import INITIAL, JamoMapper, compose, standing_alone

NAMES = {BOS: "BOS", EOS: "EOS", BOW: "BOW", EOW: "EOW"}
# Vowels that are taken for one another: by sound first, else by a finger on the wrong key.
CONFUSED = str.maketrans(
    "ㅏㅐㅑㅒㅓㅔㅕㅖㅗㅘㅙㅚㅛㅜㅝㅞㅟㅠㅡㅢㅣ", "ㅑㅔㅏㅖㅕㅐㅓㅒㅛㅗㅚㅙㅗㅠㅜㅙㅣㅜㅜㅣㅡ"
)

TENSE = str.maketrans("ㄱㄲㄴㄷㄸㄹㅁㅂㅃㅅㅆㅇㅈㅉㅊㅋㅌㅍㅎ", "ㄲㄱㄹㄸㄷㄴㅂㅃㅂㅆㅅㅎㅉㅈㅈㄱㄷㅂㅇ")


class Spelling(NamedTuple):
    """The ids of a word with what is around it, BOW to EOW, as the model numbers them."""

    ids: list[int]
    letters: list[str]  # what each stands for: a letter, BOW, or nothing where it is one of a character's bytes
    groups: list[tuple[str, int, int]]  # the word's characters, and which ids they take: ids[start:end]
    whole: bool  # False where the word is longer than the model reads


def spelling(mapper: TokenMapper, word: str) -> Spelling | None:
    """None for a model that looks words up instead of spelling them."""
    if isinstance(mapper, Speller):
        return _spelled(mapper, word)
    if isinstance(mapper, LexiconMapper) and mapper.characters:
        row = np.zeros(mapper.width, dtype=np.int64)
        mapper.fill(row, word)
        kept = list(word[: mapper.max_characters_per_token - 2])
        ids = [int(i) - 1 for i in row[: len(kept) + 2]]
        letters = ["BOW", *kept, "EOW"]
        return Spelling(ids, letters, [(c, i, i + 1) for i, c in enumerate(letters)], len(kept) == len(word))
    return None


def _spelled(mapper: Speller, word: str) -> Spelling:
    word = LONE_SURROGATE.sub("\ufffd", word)
    if isinstance(mapper, JamoMapper):
        word = compose(word)
    ids = mapper.spell(word)
    ids = ids[: ids.index(EOW) + 1]
    letters = [NAMES.get(i) or (standing_alone(i) if i >= INITIAL else "") for i in ids]
    groups, at, end = [("BOW", 0, 1)], 1, len(ids) - 1
    if ids[1:-1] in ([BOS], [EOS]):  # the published models' <S> and </S>
        word, groups, at = "", [*groups, (word, 1, 2)], 2
    for character in word:
        if at >= end:
            break
        count = mapper.spell(character).index(EOW) - 1
        groups.append((character, at, min(at + count, end)))
        if count == 1 and not letters[at]:
            letters[at] = character
        at += count
    whole = sum(len(text) for text, *_ in groups[1:]) >= len(word)
    return Spelling(ids, letters, [*groups, ("EOW", end, end + 1)], whole)


def slips(word: str) -> dict[str, str]:
    """Likely misspellings by their kinds, the mildest first: none that is the word itself."""
    composed = compose(word)
    for i, character in enumerate(composed):
        if "가" <= character <= "힣":
            vowel, consonant = (composed[:i] + _other(character, part) + composed[i + 1 :] for part in (1, 0))
            return {"vowel": vowel, "consonant": consonant}
    letters = regex.findall(r"\X", word)  # what people take for one: an accent goes with its letter
    half = len(letters) // 2
    found = {"doubled": [*letters[: half + 1], *letters[half:]]}
    if len(letters) > 1:
        found["missing"] = [*letters[:half], *letters[half + 1 :]]
        found["swapped"] = [*letters[: half - 1], letters[half], letters[half - 1], *letters[half + 1 :]]
    return {kind: "".join(slip) for kind, slip in found.items() if "".join(slip) != word}


def _other(syllable: str, part: int) -> str:
    """With another initial (0) or another vowel (1)."""
    mapper = JamoMapper()
    ids = mapper.spell(syllable)[1:4]
    ids[part] = mapper.spell(standing_alone(ids[part]).translate((TENSE, CONFUSED)[part]))[1]
    return mapper.unspell(ids)
