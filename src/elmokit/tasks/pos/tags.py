"""CoNLL-U -> sentences with the part of speech (UPOS) of every word."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from elmokit.errors import UserError
from elmokit.tasks.task import located
from elmokit.text.conll import CONLLU_FORM, CONLLU_UPOS, read_conllu


@dataclass(frozen=True)
class TaggedSentence:
    tokens: list[str]
    tags: list[str] | None
    where: str


def read_tags(path: Path) -> list[TaggedSentence]:
    examples = []
    for words in read_conllu(path):
        for line, fields in words:
            if not fields[CONLLU_FORM] or fields[CONLLU_UPOS] in ("", "_"):
                raise UserError(f"{path}, line {line}: expected a word and its UPOS, found an empty field")
        tokens, tags = ([word.fields[column] for word in words] for column in (CONLLU_FORM, CONLLU_UPOS))
        examples.append(TaggedSentence(tokens, tags, located(path, words[0].line)))
    return examples
