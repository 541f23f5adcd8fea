"""What commands that look for contexts share: a choice of layers, and a sentence with its word in bold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from elmokit.errors import UserError

if TYPE_CHECKING:
    from elmokit.analysis.contexts.marked import MarkedSentence

AROUND = 20  # tokens that a table shows before the word, and after it


def read_layers(text: str) -> list[int] | None:
    """ "0,2" -> [0, 2]; "all" -> None"""
    if text == "all":
        return None
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise UserError(f"--layers: expected all or numbers such as 0,2, found {text!r}") from None


def highlighted(sentence: MarkedSentence) -> str:
    """The sentence in rich's markup, the word in bold and, for where there is no colour, in [brackets].

    Of a long one, only what stands around the word.
    """
    from rich.markup import escape

    before, after = sentence.tokens[: sentence.start], sentence.tokens[sentence.end :]
    if len(before) > AROUND:
        before = ["…", *before[-AROUND:]]
    if len(after) > AROUND:
        after = [*after[:AROUND], "…"]
    word = f"[bold green]{escape(f'[{sentence.word}]')}[/bold green]"
    return " ".join(part for part in (escape(" ".join(before)), word, escape(" ".join(after))) if part)
