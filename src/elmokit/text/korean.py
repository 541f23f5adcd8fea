"""The `korean` tokenizer: morphemes by Kiwi (the extra `ko`), for Korean's particles and endings.

먹었습니다 becomes 먹 었 습니다, which other words share with it. Tokens are stretches of the text as given, so
morphemes that share a syllable stay together: 했 is 하 and 었. What is not Korean is cut as by `words`.
"""

from __future__ import annotations

import os
import threading
import warnings
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Any

import regex

from elmokit.errors import UserError
from elmokit.text.characters import LONE_SURROGATE
from elmokit.text.jamo import DECOMPOSED, compose
from elmokit.text.sentences import paragraph_sentences, paragraph_spans, trimmed_spans
from elmokit.text.tokens import Span, Tokenizer
from elmokit.text.words import word_spans

_HANGUL = regex.compile(r"\p{Hangul}")
# Kiwi keeps 大韓民國 together, a word of Korean; for `words` each character would be one.
_KOREAN = regex.compile(r"[\p{Hangul}\p{Han}]")
_NOT_WHITE = regex.compile(r"[^\s\x1C-\x1F]++")
_CLINGING = regex.compile(r"[\p{M}\p{Cf}\p{Emoji_Modifier}]*+")

_CLOSED = frozenset(")]}\"'’”»›」』）］】》〉—–-")
_OPENING_BRACKET = regex.compile(r"\s*+[(\[{（［]")
_OPENING = regex.compile(r"\s*+[(\[{（［\"'‘“「『《〈]")
_VERB_END = regex.compile(r"[다요까죠][.!?]\Z")
_PAIRS = (("“", "”"), ("‘", "’"), ("「", "」"), ("『", "』"), ("(", ")"), ("[", "]"))
_LOOK_BACK = 1000
_BLOCK = 4096


class KoreanTokenizer(Tokenizer):
    """Kiwi is loaded with the first Korean text, once per process; the tokenizer itself holds nothing of it."""

    name = "korean"

    def spans(self, text: str) -> list[Span]:
        if not _HANGUL.search(text):
            return word_spans(text)
        korean = _korean_spans(text)
        # Blanks in the place of Korean keep the offsets, and `words` sees where a text ends and where it goes on.
        blanked, last = [], 0
        for start, end in korean:
            blanked += [text[last:start], " " * (end - start)]
            last = end
        return sorted(korean + word_spans("".join([*blanked, text[last:]])))

    def sentence_spans(self, text: str) -> list[Span]:
        spans = []
        for start, stop in paragraph_spans(text):
            sentences = paragraph_sentences(text, start, stop)
            if _HANGUL.search(text, start, stop):
                sentences = trimmed_spans(text, _cuts(text, sentences, start, stop), stop)
            spans += sentences
        return spans


def _korean_spans(text: str) -> list[Span]:
    """Kiwi's morphemes with Korean in them, those that share characters as one, with what clings to them."""
    composed, offsets = _composed(text)
    merged: list[Span] = []
    morphemes = ((at, morpheme) for at, block in _blocks(composed) for morpheme in _kiwi().tokenize(block))
    for at, morpheme in morphemes:
        start, end = offsets[at + morpheme.start], offsets[at + morpheme.end]
        if merged and start < merged[-1][1]:
            start, end = merged[-1][0], max(end, merged.pop()[1])
        if start < end:
            merged.append((start, end))
    spans: list[Span] = []
    last = 0
    for start, end in merged:
        start = max(start, last)  # what clung to the one before is taken
        if _KOREAN.search(text, start, end):
            last = _CLINGING.match(text, end).end()
            spans += [part.span() for part in _NOT_WHITE.finditer(text, start, last)]
    return spans


def _cuts(text: str, sentences: list[Span], start: int, stop: int) -> list[int]:
    """Where sentences begin, by Kiwi, which knows 먹었음 그래서 for two sentences, and by rules.

    Kiwi also cuts inside words (학생.|노동자), around quotations and brackets (‘대수’|라는), and misses cuts
    before symbols: there, and where no Korean is, the rules decide.
    """
    composed, offsets = _composed(text[start:stop])
    ends = [
        start + offsets[first + sentence.end]
        for first, block in _blocks(composed)
        for sentence in _kiwi().split_into_sents(block, return_sub_sents=False)
        if sentence.end < len(block)
    ]
    known = set(ends)
    cuts = [start]
    for first, last in sentences:
        inside = ends[bisect_right(ends, first) : bisect_left(ends, last)]
        korean = _HANGUL.search(text, first, last)
        if korean:
            cuts += [cut for cut in inside if _may_cut(text, cut)]
        if last < stop and (last in known or not korean or _begins_anew(text, cuts[-1], last)):
            cuts.append(last)
    return cuts


def _may_cut(text: str, cut: int) -> bool:
    return text[cut].isspace() and text[cut - 1] not in _CLOSED and not _OPENING_BRACKET.match(text, cut)


def _begins_anew(text: str, start: int, cut: int) -> bool:
    """Whether a verb ends or a quotation begins at `cut`, and not within one that is open since `start`."""
    if not (_OPENING.match(text, cut) or _VERB_END.search(compose(text[max(start, cut - 4) : cut]))):
        return False
    start = max(start, cut - _LOOK_BACK)
    balanced = all(text.count(left, start, cut) == text.count(right, start, cut) for left, right in _PAIRS)
    return balanced and text.count('"', start, cut) % 2 == 0


def _composed(text: str) -> tuple[str, list[int] | range]:
    """The text as Kiwi can read it, and where each of its characters, and its end, is in the text as given."""
    text = LONE_SURROGATE.sub("\ufffd", text)
    if not DECOMPOSED.search(text):
        return text, range(len(text) + 1)
    pieces: list[str] = []
    offsets: list[int] = []
    last = 0
    for syllable in DECOMPOSED.finditer(text):
        pieces += [text[last : syllable.start()], compose(syllable[0])]
        offsets += [*range(last, syllable.start()), syllable.start()]
        last = syllable.end()
    return "".join([*pieces, text[last:]]), [*offsets, *range(last, len(text) + 1)]


def _blocks(text: str) -> Iterator[tuple[int, str]]:
    """The text in stretches that end with a space if they can: Kiwi takes quadratic time over open quotes."""
    start = 0
    while len(text) - start > _BLOCK:
        stop = text.rfind(" ", start, start + _BLOCK) + 1 or start + _BLOCK
        yield start, text[start:stop]
        start = stop
    yield start, text[start:]


_lock = threading.Lock()
_loaded: list[Any] = []


def _kiwi() -> Any:
    """The one Kiwi of this process. It has no threads of its own, so a forked process may keep using it."""
    with _lock:
        if not _loaded:
            try:
                from kiwipiepy import Kiwi
            except ImportError:
                raise UserError("the tokenizer korean needs kiwipiepy: pip install 'elmokit[ko]'") from None
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # 0 once meant all cores
                _loaded.append(Kiwi(num_workers=0))
        return _loaded[0]


if hasattr(os, "register_at_fork"):  # another thread may be loading when a process forks
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)
