"""What may be given as sentences: text or tokens, in a list, an array or a column; what is neither is named."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from elmokit.errors import UserError

Sentence = str | Sequence[str]  # text, or its tokens
Result = TypeVar("Result")
SHOWN = 60  # characters of what was found instead


def checked_sentences(sentences: Iterable[Sentence]) -> Iterable[Sentence]:
    """The same, if they can be sentences; a list, an array or a column is looked through at once."""
    if isinstance(sentences, str):
        raise UserError("expected a list of sentences, found one string: put it in a list")
    if isinstance(sentences, Mapping):
        raise UserError("expected a list of sentences, found a dict: give its values, list(texts.values())")
    if hasattr(sentences, "columns"):
        raise UserError('expected a list of sentences, found a table: give one of its columns, table["review"]')
    if not isinstance(sentences, Iterable):
        raise UserError(f"expected a list of sentences, found {_shown(sentences)}")
    if hasattr(sentences, "__len__") and hasattr(sentences, "__getitem__"):
        for _ in by_number(check_sentence, sentences):
            pass
    return sentences


def by_number(take: Callable[[Any], Result], sentences: Iterable[Any]) -> Iterator[Result]:
    """What is made of each sentence; one that cannot be taken is named by its place, 0 the first."""
    for number, sentence in enumerate(sentences):
        try:
            yield take(sentence)
        except UserError as error:
            raise UserError(f"sentence {number}: {error}") from None


def check_sentence(sentence: object) -> None:
    if isinstance(sentence, str):
        return
    if isinstance(sentence, (bytes, Mapping)) or not isinstance(sentence, Iterable):
        raise UserError(f"expected text or a list of tokens, found {_shown(sentence)}{_remedy(sentence)}")
    if not hasattr(sentence, "__len__"):
        raise UserError(f"expected text or a list of tokens, found {_shown(sentence)}: make a list of it")
    for place, token in enumerate(sentence):
        if not isinstance(token, str):
            raise UserError(f"expected tokens that are text, found {_shown(token)} as token {place}")


def _remedy(found: object) -> str:
    if isinstance(found, bytes):
        return ": decode it"
    if found is None or str(found) in ("nan", "<NA>", "NaT"):  # pandas' and NumPy's ways to say that there is none
        return ": a missing value; leave it out, or put '' in its place"
    return ""


def _shown(found: object) -> str:
    text = repr(found)
    return f"{text if len(text) <= SHOWN else text[:SHOWN] + '...'} ({type(found).__name__})"
