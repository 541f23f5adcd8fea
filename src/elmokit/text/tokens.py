"""Text -> sentences -> tokens. Tokenizers are chosen by name; a later one is one line in TOKENIZERS."""

from __future__ import annotations

import importlib
import re
import sys
import unicodedata
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

from elmokit.config import suggest
from elmokit.errors import UserError
from elmokit.text.characters import LONE_SURROGATE

Span = tuple[int, int]  # [start, end) in characters of the text as it was given
Normalization = Literal["NFC", "NFKC", "none"]

TOKENIZERS = {
    "whitespace": "elmokit.text.tokens:WhitespaceTokenizer",
    "words": "elmokit.text.tokens:WordsTokenizer",
    "korean": "elmokit.text.korean:KoreanTokenizer",
}


@dataclass(frozen=True)
class TokenizerConfig:
    name: str = "words"
    normalize: Normalization = "NFC"


class Tokenizer(ABC):
    """Finds spans in the text as given; normalizes each token on its own, so offsets stay true."""

    name: ClassVar[str]

    def __init__(self, normalize: Normalization = "NFC") -> None:
        self.normalize = normalize

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
        """Tokens that somebody else made, normalized as this tokenizer's own are."""
        return [clean_token(token, self.normalize) for token in tokens]

    @property
    def config(self) -> TokenizerConfig:
        return TokenizerConfig(self.name, self.normalize)


class WhitespaceTokenizer(Tokenizer):
    """The text is tokenized already: tokens are what stands between white space, as str.split() has it."""

    name = "whitespace"

    def spans(self, text: str) -> list[Span]:
        # str.split() also splits at \x1c-\x1f, which \s matches as well for str patterns.
        return [match.span() for match in re.finditer(r"\S+", text)]


class WordsTokenizer(Tokenizer):
    """Unicode rules close to the Penn Treebank's, on which the published models were trained."""

    name = "words"

    def spans(self, text: str) -> list[Span]:
        from elmokit.text.words import word_spans

        return word_spans(text)


def clean_token(token: str, normalize: Normalization) -> str:
    """Normalize; half of a surrogate pair is no character and becomes U+FFFD. "none" changes nothing at all."""
    if normalize == "none" or token.isascii():
        return token
    return unicodedata.normalize(normalize, LONE_SURROGATE.sub("\ufffd", token))


def make_tokenizer(config: TokenizerConfig | str) -> Tokenizer:
    if isinstance(config, str):
        config = TokenizerConfig(config)
    if config.name not in TOKENIZERS:
        raise UserError(f"unknown tokenizer {config.name!r}: {suggest(config.name, TOKENIZERS)}")
    module, _, name = TOKENIZERS[config.name].partition(":")
    tokenizer: Tokenizer = getattr(importlib.import_module(module), name)(config.normalize)
    return tokenizer


def tokenizer_for(own: TokenizerConfig, asked: TokenizerConfig | str | None) -> Tokenizer:
    """A model's own tokenizer, or the one asked for, with a warning where that cuts text otherwise.

    No warning with "whitespace", on either side: such text is tokenized already, by whoever knows the model.
    """
    if isinstance(asked, str):
        asked = TokenizerConfig(asked, own.normalize)
    tokenizer = make_tokenizer(asked or own)
    if tokenizer.name != own.name and "whitespace" not in (tokenizer.name, own.name):
        warnings.warn(
            f"tokenizer {tokenizer.name!r}: this model was trained with {own.name!r}, and has not learned these "
            "tokens; leave the tokenizer out, or give 'whitespace' for text that is tokenized already",
            stacklevel=_frames_of_elmokit(),
        )
    return tokenizer


def _frames_of_elmokit() -> int:
    """How far up whoever called elmokit is: a warning is about their line."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("elmokit"):
        level, frame = level + 1, frame.f_back
    return level
