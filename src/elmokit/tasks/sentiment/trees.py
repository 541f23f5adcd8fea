"""The trees of the Stanford Sentiment Treebank, one per line: `(3 (2 It) (4 (2 's) (4 good)))`.

Every bracket is a phrase with a label of 0 to 4, and holds one word or further phrases. The plain space alone
separates: `\\/` and a no-break space occur inside of words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from elmokit.errors import UserError

SCALE = ("very negative", "negative", "neutral", "positive", "very positive")  # 0 to 4
BEGINNING = re.compile(r"\(\d")  # of a line that holds a tree
_PIECE = re.compile(r"[()]|[^ ()]+")


class Phrase(NamedTuple):
    start: int  # [start, end) in tokens
    end: int
    label: str  # of SCALE


class Tree(NamedTuple):
    tokens: list[str]
    phrases: list[Phrase]  # each after those inside of it: the last is the sentence

    @property
    def label(self) -> str:
        return self.phrases[-1].label


@dataclass
class _Open:
    """A bracket that is not closed yet."""

    at: int  # its character, from 1
    start: int  # its first token
    label: str | None = None
    leaf: bool = False  # has its word


def parse_tree(text: str) -> Tree:
    """A UserError says what is wrong, and at which character; the caller knows the file and the line."""
    tokens: list[str] = []
    phrases: list[Phrase] = []
    stack: list[_Open] = []
    for match in _PIECE.finditer(text):
        piece, at = match.group(), match.start() + 1
        if not stack and (phrases or piece != "("):
            expected = "the end of the line after the tree" if phrases else "a tree, which begins with ("
            raise UserError(f"expected {expected}, found {text[at - 1 : at + 29]!r} at character {at}")
        top = stack[-1] if stack else None
        if piece == "(":
            if top is not None and (top.label is None or top.leaf):
                expected = "a label of 0 to 4" if top.label is None else ") after the word"
                raise UserError(f"expected {expected}, found '(' at character {at}")
            stack.append(_Open(at, len(tokens)))
            continue
        assert top is not None
        if piece == ")":
            if top.label is None or top.start == len(tokens):
                expected = "a label of 0 to 4 and a word" if top.label is None else "a word after the label"
                raise UserError(f"expected {expected}, found ')' at character {at}")
            phrases.append(Phrase(top.start, len(tokens), top.label))
            stack.pop()
        elif top.label is None:
            if piece not in ("0", "1", "2", "3", "4"):
                raise UserError(f"expected a label of 0 to 4, found {piece!r} at character {at}")
            top.label = SCALE[int(piece)]
        else:
            if top.start < len(tokens):
                raise UserError(f"expected one word, or phrases in brackets, found {piece!r} at character {at}")
            tokens.append(piece)
            top.leaf = True
    if stack:
        raise UserError(
            f"expected ) at the end of the tree, found {len(stack)} open brackets, the last at character "
            f"{stack[-1].at}"
        )
    if not phrases:
        raise UserError("expected a tree, found nothing")
    return Tree(tokens, phrases)
