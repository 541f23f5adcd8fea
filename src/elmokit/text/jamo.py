"""Tokens -> ids of Korean letters: a syllable by its initial, vowel and final, the rest in bytes.

한 is one character, three UTF-8 bytes that mean nothing one by one, and the three letters ㅎㅏㄴ. With letters a
filter of the character CNN sees the ending ㄴ다 of 간다 and 온다, which no byte shows. The ids of the letters
follow those of bytes and specials: 19 initials, 21 vowels, 27 finals.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np

from elmokit.text.characters import (
    BOS,
    BOW,
    BYTE_CHARACTERS,
    EOW,
    LONE_SURROGATE,
    PAD,
    Row,
    Speller,
    write_word,
)

# Letters as they stand alone (U+3131..3163) in the order of the conjoining ones (U+1100, U+1161, U+11A8).
_INITIALS = "ㄱㄲㄴㄷㄸㄹㅁㅂㅃㅅㅆㅇㅈㅉㅊㅋㅌㅍㅎ"
_VOWELS = "ㅏㅐㅑㅒㅓㅔㅕㅖㅗㅘㅙㅚㅛㅜㅝㅞㅟㅠㅡㅢㅣ"
_FINALS = "ㄱㄲㄳㄴㄵㄶㄷㄹㄺㄻㄼㄽㄾㄿㅀㅁㅂㅄㅅㅆㅇㅈㅊㅋㅌㅍㅎ"
INITIAL = PAD + 1
VOWEL = INITIAL + len(_INITIALS)
FINAL = VOWEL + len(_VOWELS)
JAMO_CHARACTERS = BYTE_CHARACTERS + len(_INITIALS) + len(_VOWELS) + len(_FINALS)  # 329 ids at run time

_FIRST_SYLLABLE = 0xAC00
_CONJOINING = {INITIAL: 0x1100, VOWEL: 0x1161, FINAL: 0x11A8}
# A syllable that is not composed, or only in part: 하 + ᆫ
DECOMPOSED = re.compile("[\u1100-\u1112][\u1161-\u1175][\u11a8-\u11c2]?|[가-힣][\u11a8-\u11c2]")


def compose(text: str) -> str:
    """Korean syllables composed (NFC), all else as it is."""
    if text.isascii():
        return text
    return DECOMPOSED.sub(lambda match: unicodedata.normalize("NFC", match[0]), text)


def standing_alone(i: int) -> str:
    """The letter of an id from INITIAL on, as people see it: ㄴ, whether it begins or ends a syllable."""
    return (_INITIALS + _VOWELS + _FINALS)[i - INITIAL]


@dataclass(frozen=True)
class JamoMapper(Speller):
    """Korean letters between BOW and EOW, and the UTF-8 bytes of everything else, then PAD.

    Composed and decomposed syllables are spelled alike. A letter that stands alone (ㅋㅋ, ㅠㅠ) is an initial, a
    vowel or, where it can be neither (ㄳ), a final. Of a long token whole syllables and characters are kept.
    """

    kind: Literal["jamo"] = "jamo"
    max_characters_per_token: int = 50

    @property
    def table_sizes(self) -> tuple[int, int]:
        return JAMO_CHARACTERS, 0

    @staticmethod
    def unspell(ids: Iterable[int]) -> str:
        """The token that `spell` spelled, its syllables composed: ㅎㅏ comes back as 하."""
        return _unspell([i for i in ids if i not in (BOW, EOW, PAD)])

    def fill(self, row: Row, token: str) -> None:
        # Half of a pair is read as U+FFFD, as the byte mapper reads it.
        token = compose(LONE_SURROGATE.sub("\ufffd", token))
        table, room = _spelling(), self.max_characters_per_token - 2
        inside: list[int] = []
        for character in token[:room]:
            ids = table.get(character) or character.encode()
            if len(inside) + len(ids) > room:
                break
            inside += ids
        write_word(row, np.array(inside, dtype=np.int64))

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "max_characters_per_token": self.max_characters_per_token}


@cache
def _spelling() -> dict[str, tuple[int, ...]]:
    """The ids of every modern syllable and letter, composed, conjoining or standing alone."""
    table: dict[str, tuple[int, ...]] = {}
    for first, letters in ((FINAL, _FINALS), (VOWEL, _VOWELS), (INITIAL, _INITIALS)):  # an initial if it can be
        for i, letter in enumerate(letters):
            table[letter] = table[chr(_CONJOINING[first] + i)] = (first + i,)
    finals = [(), *((FINAL + i,) for i in range(len(_FINALS)))]
    heads = [(i, v) for i in range(INITIAL, VOWEL) for v in range(VOWEL, FINAL)]
    syllables: list[tuple[int, ...]] = [(*head, *final) for head in heads for final in finals]
    return table | {chr(_FIRST_SYLLABLE + n): ids for n, ids in enumerate(syllables)}


def _unspell(ids: list[int]) -> str:
    pieces: list[bytes] = []
    previous = 0
    for i, following in zip(ids, [*ids[1:], 0]):
        if i < BOS:
            pieces.append(bytes([i]))
        elif i >= INITIAL:
            pieces.append(_letter(i, previous, following).encode())
        previous = i
    return compose(b"".join(pieces).decode("utf-8", "replace"))


def _letter(i: int, previous: int, following: int) -> str:
    """Conjoining within a syllable, or where a final is no cluster: alone it would be read as an initial."""
    if i < VOWEL:
        return chr(_CONJOINING[INITIAL] + i - INITIAL) if VOWEL <= following < FINAL else _INITIALS[i - INITIAL]
    if i < FINAL:
        return chr(_CONJOINING[VOWEL] + i - VOWEL) if INITIAL <= previous < VOWEL else _VOWELS[i - VOWEL]
    alone = _FINALS[i - FINAL] not in _INITIALS and not VOWEL <= previous < FINAL
    return _FINALS[i - FINAL] if alone else chr(_CONJOINING[FINAL] + i - FINAL)
