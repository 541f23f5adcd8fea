"""Tokens -> rows of character ids, as a mapper spells them.

The only owner of the ids of BOS, EOS, BOW, EOW and PAD. A token becomes one row of C integers. The published
numbering (bytes 0..255, specials 256..260) is shifted by one in a row, so that a row of zeros is a padded token;
`spell` shows a token without the shift.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import UserError

BOS, EOS, BOW, EOW, PAD = 256, 257, 258, 259, 260
MASK_SHIFT = 1
MOST_CHARACTERS = 1000  # of a token: every token of a batch takes as many ids
BYTE_CHARACTERS = PAD + 1 + MASK_SHIFT  # 262 ids at run time

# Half of a UTF-16 pair: no character, so UTF-8 has no bytes for it.
LONE_SURROGATE = re.compile("[\ud800-\udfff]")

Row = NDArray[np.int64]


class TokenMapper(Protocol):
    """What turns tokens into rows of ids. What the columns mean is between a mapper and its token encoder."""

    @property
    def width(self) -> int:
        """W, the integers of one token."""

    @property
    def table_sizes(self) -> tuple[int, int]:
        """How many character ids and word ids there are, the 0 of padding among them; 0 for none."""

    @property
    def begin(self) -> Row:
        """The row of <S>, the beginning of a sentence."""

    @property
    def end(self) -> Row:
        """The row of </S>, the end of a sentence."""

    def fill(self, row: Row, token: str) -> None:
        """Write a token's ids into `row`, W zeros."""

    def to_dict(self) -> dict[str, Any]:
        """What `make_mapper` makes the same mapper from; JSON-ready."""


class Speller(ABC):
    """A mapper whose row is a token's characters between BOW and EOW, then PAD."""

    max_characters_per_token: int

    def __post_init__(self) -> None:
        check_room(self.max_characters_per_token)

    @property
    def width(self) -> int:
        return self.max_characters_per_token

    @property
    def begin(self) -> Row:
        return self._special(BOS)

    @property
    def end(self) -> Row:
        return self._special(EOS)

    def spell(self, token: str) -> list[int]:
        """The ids without the shift: spell("밥") in bytes is [BOW, 235, 176, 165, EOW, PAD, PAD, ...]."""
        row = np.zeros(self.width, dtype=np.int64)
        self.fill(row, token)
        return [int(i) for i in row - MASK_SHIFT]

    @abstractmethod
    def fill(self, row: Row, token: str) -> None:
        """As TokenMapper's."""

    def _special(self, character: int) -> Row:
        row = np.zeros(self.width, dtype=np.int64)
        write_word(row, np.array([character]))
        return row


@dataclass(frozen=True)
class ByteMapper(Speller):
    """UTF-8 bytes between BOW and EOW, then PAD: ELMo's own spelling of a token.

    `published` is bit-exact with bilm-tf and AllenNLP: long tokens are cut between bytes, even inside a
    character, half surrogates are dropped, and the tokens <S> and </S> stand for the sentence's ends.
    Otherwise no character is ever cut in half and every token is spelled as what it is.
    """

    kind: Literal["bytes"] = "bytes"
    max_characters_per_token: int = 50
    published: bool = False

    @property
    def table_sizes(self) -> tuple[int, int]:
        return BYTE_CHARACTERS, 0

    def fill(self, row: Row, token: str) -> None:
        if self.published and token in ("<S>", "</S>"):
            row[:] = self.begin if token == "<S>" else self.end
            return
        if not self.published and not token.isascii():
            token = LONE_SURROGATE.sub("\ufffd", token)
        spelled = token.encode("utf-8", "ignore")
        room = self.max_characters_per_token - 2
        if len(spelled) > room:
            cut = room
            while not self.published and cut > 0 and spelled[cut] & 0xC0 == 0x80:
                cut -= 1  # spelled[cut] continues a character: leave that character out whole
            spelled = spelled[:cut]
        write_word(row, np.frombuffer(spelled, dtype=np.uint8))

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "max_characters_per_token": self.max_characters_per_token,
            "published": self.published,
        }


class LexiconMapper:
    """ELMoForManyLangs: characters and words looked up in lists that came with the model.

    A row holds the character ids, where the model has a character lexicon, and then the word id, where it
    has a word lexicon. Upstream reads <eow> where it means <bow> and the reverse; its models were trained
    like that, so the swap is part of the spelling.
    """

    kind: Literal["lexicon"] = "lexicon"

    def __init__(
        self,
        characters: Mapping[str, int] | None,
        words: Mapping[str, int] | None,
        max_characters_per_token: int = 50,
    ) -> None:
        if characters is None and words is None:
            raise UserError("a lexicon mapper needs a character lexicon, a word lexicon or both; found neither")
        for lexicon, name, needed in (
            (characters, "character", ("<bos>", "<eos>", "<bow>", "<eow>", "<oov>", "<pad>")),
            (words, "word", ("<bos>", "<eos>", "<oov>", "<pad>")),
        ):
            absent = [entry for entry in needed if lexicon is not None and entry not in lexicon]
            if absent:
                raise UserError(f"the {name} lexicon has no entry {', '.join(absent)}")
        check_room(max_characters_per_token)
        self.characters = None if characters is None else dict(characters)
        self.words = None if words is None else dict(words)
        self.max_characters_per_token = max_characters_per_token

    @property
    def table_sizes(self) -> tuple[int, int]:
        characters, words = (
            max(lexicon.values()) + 2 if lexicon else 0 for lexicon in (self.characters, self.words)
        )
        return characters, words

    @property
    def width(self) -> int:
        return (self.max_characters_per_token if self.characters else 0) + (1 if self.words else 0)

    @property
    def begin(self) -> Row:
        return self._boundary("<bos>")

    @property
    def end(self) -> Row:
        return self._boundary("<eos>")

    def fill(self, row: Row, token: str) -> None:
        if token in ("<bos>", "<eos>"):
            row[:] = self._boundary(token)
            return
        token = token[: self.max_characters_per_token - 2]
        if self.characters:
            unknown = self.characters["<oov>"]
            self._spell(row, [self.characters.get(character, unknown) for character in token])
        self._look_up(row, token)

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "max_characters_per_token": self.max_characters_per_token,
            "characters": self.characters,
            "words": self.words,
        }

    def _boundary(self, name: str) -> Row:
        row = np.zeros(self.width, dtype=np.int64)
        if self.characters:
            self._spell(row, [self.characters[name]])
        self._look_up(row, name)
        return row

    def _spell(self, row: Row, inside: list[int]) -> None:
        assert self.characters is not None
        spelled = [self.characters["<eow>"], *inside, self.characters["<bow>"]]
        row[: self.max_characters_per_token] = self.characters["<pad>"]
        row[: len(spelled)] = spelled
        row[: self.max_characters_per_token] += MASK_SHIFT

    def _look_up(self, row: Row, token: str) -> None:
        if self.words:
            row[-1] = self.words.get(token, self.words["<oov>"]) + MASK_SHIFT


def write_word(row: Row, inside: NDArray[Any]) -> None:
    """What stands between BOW and EOW, without the shift, into a row; PAD fills the rest."""
    row[:] = PAD + MASK_SHIFT
    row[0] = BOW + MASK_SHIFT
    np.add(inside, MASK_SHIFT, out=row[1 : 1 + len(inside)], dtype=row.dtype)
    row[1 + len(inside)] = EOW + MASK_SHIFT


def check_room(max_characters_per_token: int) -> None:
    if not 3 <= max_characters_per_token <= MOST_CHARACTERS:
        expected = "3 or more" if max_characters_per_token < 3 else f"{MOST_CHARACTERS} at most"
        raise UserError(
            f"max_characters_per_token counts BOW and EOW: expected {expected}, found {max_characters_per_token}"
        )
