"""Text -> sentences -> tokens. Tokenisers are chosen by name; a later one is one line in TOKENISERS."""

from __future__ import annotations

import importlib
import re
import unicodedata
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

from elmokit.config import suggest
from elmokit.text.characters import LONE_SURROGATE

Span = tuple[int, int]  # [start, end) in characters of the text as it was given
Normalisation = Literal["NFC", "NFKC", "none"]

TOKENISERS = {
    "whitespace": "elmokit.text.tokens:WhitespaceTokeniser",
    "words": "elmokit.text.tokens:WordsTokeniser",
    "korean": "elmokit.text.korean:KoreanTokeniser",
}


@dataclass(frozen=True)
class TokeniserConfig:
    name: str = "words"
    normalise: Normalisation = "NFC"


class Tokeniser(ABC):
    """Finds spans in the text as given; normalises each token on its own, so offsets stay true."""

    name: ClassVar[str]

    def __init__(self, normalise: Normalisation = "NFC") -> None:
        self.normalise = normalise

    @abstractmethod
    def spans(self, text: str) -> list[Span]:
        """The tokens of one sentence, in order."""

    def sentence_spans(self, text: str) -> list[Span]:
        """The sentences of a paragraph, in order, without the white space around them."""
        from elmokit.text.sentences import sentence_spans

        return sentence_spans(text)

    def tokens(self, text: str) -> list[str]:
        return self.clean([text[start:end] for start, end in self.spans(text)])

    def sentences(self, text: str) -> list[str]:
        return [text[start:end] for start, end in self.sentence_spans(text)]

    def clean(self, tokens: list[str]) -> list[str]:
        """Tokens that somebody else made, normalised as this tokeniser's own are."""
        return [clean_token(token, self.normalise) for token in tokens]

    @property
    def config(self) -> TokeniserConfig:
        return TokeniserConfig(self.name, self.normalise)


class WhitespaceTokeniser(Tokeniser):
    """The text is tokenised already: tokens are what stands between white space, as str.split() has it."""

    name = "whitespace"

    def spans(self, text: str) -> list[Span]:
        # str.split() also splits at \x1c-\x1f, which \s matches as well for str patterns.
        return [match.span() for match in re.finditer(r"\S+", text)]


class WordsTokeniser(Tokeniser):
    """Unicode rules close to the Penn Treebank's, on which the published models were trained."""

    name = "words"

    def spans(self, text: str) -> list[Span]:
        from elmokit.text.words import word_spans

        return word_spans(text)


def clean_token(token: str, normalise: Normalisation) -> str:
    """Normalise; half of a surrogate pair is no character and becomes U+FFFD. "none" changes nothing at all."""
    if normalise == "none" or token.isascii():
        return token
    return unicodedata.normalize(normalise, LONE_SURROGATE.sub("\ufffd", token))


def make_tokeniser(config: TokeniserConfig | str) -> Tokeniser:
    if isinstance(config, str):
        config = TokeniserConfig(config)
    if config.name not in TOKENISERS:
        raise ValueError(f"unknown tokeniser {config.name!r}: {suggest(config.name, TOKENISERS)}")
    module, _, name = TOKENISERS[config.name].partition(":")
    tokeniser: Tokeniser = getattr(importlib.import_module(module), name)(config.normalise)
    return tokeniser
