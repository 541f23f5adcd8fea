"""Where one word occurs: in plain text, in a file of word pairs, in a sense-tagged corpus."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from elmokit.analysis.contexts.marked import MarkedSentence, read_marked
from elmokit.analysis.probes.pairs import read_pairs
from elmokit.analysis.probes.sense_corpus import SenseCorpus, sense_in_words
from elmokit.analysis.sample import sample
from elmokit.config import suggest
from elmokit.embed.embedder import Elmo
from elmokit.errors import UserError
from elmokit.text.corpus import LineReader

LIMIT = 200


class Occurrence(NamedTuple):
    tokens: list[str]
    start: int  # the word is tokens[start:end]
    end: int
    sense: str | None = None  # in words; None where it is not known
    key: str | None = None  # that of WordNet, in a tagged corpus

    @property
    def marked(self) -> MarkedSentence:
        return MarkedSentence(self.tokens, self.start, self.end)

    @property
    def form(self) -> str:
        return self.marked.word

    @property
    def sentence(self) -> str:
        return self.marked.marked


def occurrences_in_text(
    elmo: Elmo,
    path: str | Path,
    word: str,
    *,
    forms: Collection[str] = (),
    limit: int = LIMIT,
    split: bool | None = None,
) -> list[Occurrence]:
    """The first `limit` sentences with a token that is the word, or one of `forms`, in any case; senses unknown.

    split   lines are paragraphs, to be split into sentences; by default unless white space parts the tokens.
    """
    all_forms = {_folded(form) for form in (word, *forms)}
    splits = elmo.tokenizer.name != "whitespace" if split is None else split

    def found() -> Iterator[Occurrence]:
        with LineReader(path) as lines:
            for line in lines:
                text = _folded(line.text)
                if not any(form in text for form in all_forms):
                    continue
                for sentence in elmo.tokenizer.sentences(line.text) if splits else [line.text]:
                    tokens = elmo.tokens(sentence)
                    place = next((i for i, token in enumerate(tokens) if _folded(token) in all_forms), None)
                    if place is not None:
                        yield Occurrence(tokens, place, place + 1)

    return list(islice(found(), limit))


def occurrences_in_pairs(elmo: Elmo, path: str | Path, word: str) -> list[Occurrence]:
    """All contexts of a word in a file of pairs, with their glosses as senses."""
    pairs = read_pairs(path)
    entries = [pair for pair in pairs if _folded(pair.word) == _folded(word)]
    if not entries:
        raise UserError(f"{path}: no entry for the word {word!r}: {suggest(word, {pair.word for pair in pairs})}")
    return [
        Occurrence(*read_marked(elmo, context), gloss)
        for pair in entries
        for gloss, contexts in zip(pair.glosses, pair.contexts)
        for context in contexts
    ]


def occurrences_in_tagged(
    corpus: SenseCorpus, lemma: str, *, limit: int | None = LIMIT, seed: int = 0
) -> list[Occurrence]:
    """A lemma's instances with their first gold sense; no more than `limit`, chosen by the seed."""
    lemma = lemma.lower().replace(" ", "_")
    instances = [
        Occurrence(sentence.tokens, i.start, i.end, sense_in_words(key), key)
        for sentence in corpus.sentences
        for i in sentence.instances
        if i.lemma == lemma
        for key in corpus.keys[i.id][:1]
    ]
    if not instances:
        lemmas = {instance.lemma for sentence in corpus.sentences for instance in sentence.instances}
        near = suggest(lemma, lemmas)
        hint = near if near.startswith("did") else "give the word as a dictionary has it"
        raise UserError(f"{corpus.name}: no instance of the lemma {lemma!r}: {hint}")
    return sample(instances, limit, seed)


def _folded(text: str) -> str:
    return unicodedata.normalize("NFC", text).casefold()
