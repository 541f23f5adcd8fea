"""A sense-tagged corpus about banks."""

from __future__ import annotations

import lzma
from pathlib import Path

import numpy as np

from elmokit.text.tokens import make_tokenizer


class Neighbours:
    """A model of two layers: layer 0 is the token's own vector, layer 1 that of the token before it."""

    layers, width = 2, 16
    tokenizer = make_tokenizer("whitespace")

    def tokens(self, sentence):
        return self.tokenizer.tokens(sentence) if isinstance(sentence, str) else list(sentence)

    def _vector(self, token):
        return np.random.default_rng(list(token.encode())).normal(size=self.width)

    def stream(self, sentences, layers="all", pooling=None):
        for sentence in map(self.tokens, sentences):
            own = [self._vector(token) for token in ["<S>", *sentence]]
            array = np.array([own[1:], own[:-1]], dtype=np.float32).reshape(2, -1, self.width)
            yield array if pooling is None else (array.mean(axis=1) if len(sentence) else array.sum(axis=1))

    def embed(self, sentences):
        return list(self.stream(sentences))


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


RIVER, MONEY, FALL = "bank%1:17:01::", "bank%1:14:00::", "fall%2:38:00::"


def corpus(folder: Path, name: str, sentences: list[list[tuple[str, ...]]], suffix: str = "") -> Path:
    """A token is (text,) or (text, lemma, pos, key, ...)."""
    lines, keys = ['<?xml version="1.0" encoding="UTF-8" ?>', '<corpus lang="en">', '<text id="d0">'], []
    for s, sentence in enumerate(sentences):
        lines.append(f'<sentence id="s{s}">')
        for t, (text, *rest) in enumerate(sentence):
            if rest:
                lemma, pos, *senses = rest
                lines.append(f'<instance id="s{s}.t{t}" lemma="{lemma}" pos="{pos}">{text}</instance>')
                keys.append(" ".join([f"s{s}.t{t}", *senses]))
            else:
                lines.append(f'<wf lemma="x" pos="X">{text}</wf>')
        lines.append("</sentence>")
    lines += ["</text>", "</corpus>"]
    for kind, content in ((".data.xml", lines), (".gold.key.txt", keys)):
        raw = ("\n".join(content) + "\n").encode()
        (folder / f"{name}{kind}{suffix}").write_bytes(lzma.compress(raw) if suffix else raw)
    return folder / f"{name}.data.xml{suffix}"


def bank(before: str, *keys: str) -> list[tuple[str, ...]]:
    return [(before,), ("bank", "bank", "NOUN", *keys), (".",)]
