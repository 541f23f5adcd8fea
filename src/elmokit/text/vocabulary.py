"""Lists of words: those that a language model predicts, those that a word encoder has vectors for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from elmokit.atomic import write_file
from elmokit.config import build, shown
from elmokit.errors import UserError
from elmokit.regular import read_regular
from elmokit.text.characters import ByteMapper, LexiconMapper, Row, TokenMapper
from elmokit.text.jamo import JamoMapper

BEGIN, END, UNKNOWN = "<S>", "</S>", "<UNK>"
SPECIALS = (BEGIN, END, UNKNOWN)
MOST_BYTES = 1 << 30  # of a list of words
MOST_IDS = 1 << 31  # of a lexicon


class Vocabulary:
    """Words by id: <S>, </S>, <UNK>, then the rest, most frequent first (sampled softmax counts on that)."""

    def __init__(self, words: Iterable[str]) -> None:
        words = list(words)
        self.words = [*SPECIALS, *(word for word in words if word not in SPECIALS)]
        self._ids = {word: i for i, word in enumerate(self.words)}
        if len(self._ids) != len(self.words):
            seen: set[str] = set()
            twice = next(word for word in self.words if word in seen or seen.add(word))  # type: ignore[func-returns-value]
            raise UserError(f"a vocabulary lists each word once; {twice!r} occurs again")

    @classmethod
    def from_counts(
        cls,
        counts: Mapping[str, int] | Iterable[tuple[str, int]],
        *,
        size: int | None = None,
        min_count: int = 1,
    ) -> Vocabulary:
        """The words that occur `min_count` times or more, most frequent first, equally frequent ones by name.

        size   of the vocabulary at most, with <S>, </S> and <UNK>.
        """
        if size is not None and size <= len(SPECIALS):
            raise UserError(
                f"size counts {', '.join(SPECIALS)}: expected {len(SPECIALS) + 1} or more, found {size}"
            )
        pairs = counts.items() if isinstance(counts, Mapping) else counts
        kept = [(-count, word) for word, count in pairs if count >= min_count and word not in SPECIALS]
        if not kept:
            raise UserError(f"no words for a vocabulary: none occurs {min_count} times or more")
        kept.sort()
        return cls(word for _, word in (kept if size is None else kept[: size - len(SPECIALS)]))

    def __len__(self) -> int:
        return len(self.words)

    def __iter__(self) -> Iterator[str]:
        return iter(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._ids

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.words == other.words

    def __hash__(self) -> int:
        return hash(tuple(self.words))

    def id(self, word: str) -> int:
        return self._ids.get(word, self._ids[UNKNOWN])

    def save(self, path: Path) -> None:
        """One word per line, as bilm-tf's vocabulary files."""
        broken = next((word for word in self.words if "\n" in word or not word), None)
        if broken is not None:
            raise UserError(f"a vocabulary file holds one word per line; cannot hold {broken!r}")
        write_file(path, "".join(word + "\n" for word in self.words).encode("utf-8"))

    @classmethod
    def load(cls, path: Path) -> Vocabulary:
        try:
            text = read_regular(path, MOST_BYTES).decode("utf-8")
        except UnicodeDecodeError as error:
            line = error.object[: error.start].count(b"\n") + 1
            raise UserError(f"{path}: expected UTF-8, found {error.reason} on line {line}") from None
        # split("\n"), not splitlines(): a word may hold U+2028 and other exotic line ends
        words = [line.rstrip("\r") for line in text.split("\n")]
        if words and not words[-1]:
            words.pop()
        empty = next((i for i, word in enumerate(words, start=1) if not word), None)
        if empty is not None:
            raise UserError(f"{path}: expected one word per line, found an empty line {empty}")
        return cls(words)


class WordMapper:
    """Tokens -> row numbers in a table of word vectors: 0 padding, then <S>, </S>, <UNK> and the words.

    A token without a vector is tried in lower case (GloVe 6B has no capitals), then it is <UNK>.
    """

    kind: Literal["words"] = "words"
    width = 1

    def __init__(self, words: Iterable[str]) -> None:
        self.vocabulary = Vocabulary(words)

    @property
    def table_sizes(self) -> tuple[int, int]:
        return 0, len(self.vocabulary) + 1

    @property
    def begin(self) -> Row:
        return np.array([self.vocabulary.id(BEGIN) + 1], dtype=np.int64)

    @property
    def end(self) -> Row:
        return np.array([self.vocabulary.id(END) + 1], dtype=np.int64)

    def fill(self, row: Row, token: str) -> None:
        row[0] = 1 + self.vocabulary.id(token if token in self.vocabulary else token.lower())

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "words": self.vocabulary.words}


def make_mapper(table: dict[str, Any]) -> TokenMapper:
    """The mapper that `to_dict` described."""
    kinds = [each.kind for each in (ByteMapper, JamoMapper, LexiconMapper, WordMapper)]
    kind = table.get("kind")
    if kind not in kinds:
        raise UserError(f"unknown mapper kind {shown(kind)}: expected one of {', '.join(kinds)}")
    if kind == "bytes":
        return build(ByteMapper, table, "mapper")
    if kind == "jamo":
        return build(JamoMapper, table, "mapper")
    settings = {name: value for name, value in table.items() if name != "kind"}
    try:
        if kind == "words":
            return WordMapper(_words(**settings))
        room = build(ByteMapper, {"max_characters_per_token": settings.pop("max_characters_per_token", 50)}).width
        return LexiconMapper(**_lexicons(**settings), max_characters_per_token=room)
    except TypeError as error:
        raise UserError(f"mapper of kind {kind!r}: {error}") from None


def _words(words: Any) -> list[str]:
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise UserError(f"mapper.words: expected a list of words, found {shown(words)}")
    return words


def _lexicons(characters: Any, words: Any) -> dict[str, dict[str, int] | None]:
    for name, lexicon in (("characters", characters), ("words", words)):
        if lexicon is not None and not (
            isinstance(lexicon, dict) and all(type(i) is int and 0 <= i < MOST_IDS for i in lexicon.values())
        ):
            raise UserError(f"mapper.{name}: expected a table of ids, found {shown(lexicon)}")
    return {"characters": characters, "words": words}
