"""CoNLL-2012's coreference column -> documents with clusters, and back.

The last column of a token holds the mentions that begin and end there, by their cluster's number:

    Ada (1)    and -    her (2|(1)    sister 2)    slept -

A mention is [start, end): document tokens from 0, the end behind the last.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from elmokit.errors import UserError
from elmokit.tasks.task import located
from elmokit.text import conll
from elmokit.text.conll import CONLL2012_SPEAKER, END, plain_words, read_conll2012

NOTHING = "-"
CELL = re.compile(r"(?P<begins>\()?(?P<cluster>\d+)(?P<ends>\))?")

Mention = tuple[int, int]
Clusters = Sequence[Sequence[Sequence[int]]]  # of [start, end): tuples, or lists as JSON has them


@dataclass(frozen=True)
class Document:
    sentences: list[list[str]]
    clusters: list[list[Mention]] | None  # sorted, by their first mention; None where they are not known
    speakers: list[str] | None  # one per token, "-" where it has none; None where no token has one
    where: str
    header: str = "#begin document (document); part 000"
    columns: list[list[str]] | None = None  # a token's, but for the last; None where there was no file of columns

    @property
    def tokens(self) -> list[str]:
        return [token for sentence in self.sentences for token in sentence]

    def excerpt(self, first: int, last: int) -> Document:
        """Sentences first to last - 1, and what of the clusters lies in them."""
        begin = sum(map(len, self.sentences[:first]))
        end = begin + sum(map(len, self.sentences[first:last]))
        inside = [
            [(start - begin, stop - begin) for start, stop in cluster if begin <= start and stop <= end]
            for cluster in self.clusters or ()
        ]
        return replace(
            self,
            sentences=self.sentences[first:last],
            clusters=None if self.clusters is None else [cluster for cluster in inside if cluster],
            speakers=None if self.speakers is None else self.speakers[begin:end],
            columns=None if self.columns is None else self.columns[begin:end],
        )


# Reading


def read_documents(path: Path) -> list[Document]:
    return [_document(path, document) for document in read_conll2012(path)]


def _document(path: Path, document: conll.Document) -> Document:
    header, sentences = document
    assert header is not None
    by_number: dict[str, list[Mention]] = defaultdict(list)
    position = 0
    for sentence in sentences:
        for cluster, start, end in _mentions(path, sentence):
            by_number[cluster].append((position + start, position + end))
        position += len(sentence)
    rows = [row for sentence in sentences for row in sentence]
    speakers = [row.fields[CONLL2012_SPEAKER] for row in rows]
    return Document(
        [plain_words(sentence) for sentence in sentences],
        joined(by_number.values()),
        speakers if any(speaker != NOTHING for speaker in speakers) else None,
        located(path, header.number),
        header.text.rstrip(),
        [row.fields[:-1] for row in rows],
    )


def _mentions(path: Path, sentence: conll.Sentence) -> list[tuple[str, int, int]]:
    """Cluster, start and end; where two mentions of one cluster are open, the later one ends first."""
    found = []
    opened: dict[str, list[int]] = defaultdict(list)
    for number, (line, fields) in enumerate(sentence):
        for cell in fields[-1].split("|") if fields[-1] != NOTHING else ():
            matched = CELL.fullmatch(cell)
            if matched is None or not (matched["begins"] or matched["ends"]):
                raise UserError(
                    f"{path}, line {line}: coreference: expected -, or (1, 1) and (1) with | between, "
                    f"found {fields[-1]!r}"
                )
            cluster = matched["cluster"]
            if matched["begins"]:
                opened[cluster].append(number)
            if matched["ends"]:
                if not opened[cluster]:
                    raise UserError(
                        f"{path}, line {line}: coreference: expected an open mention of cluster {cluster} where "
                        f"one ends, found {fields[-1]!r}"
                    )
                found.append((cluster, opened[cluster].pop(), number + 1))
    for cluster, starts in opened.items():
        if starts:
            raise UserError(
                f"{path}, line {sentence[starts[-1]].line}: coreference: expected a mention of cluster {cluster} "
                f"to end in its sentence, found no '{cluster})' up to line {sentence[-1].line}"
            )
    return found


def joined(clusters: Iterable[Iterable[Mention]]) -> list[list[Mention]]:
    """Sorted; clusters that share a span are one: OntoNotes has a few spans with two numbers."""
    merged: list[set[Mention]] = []
    for cluster in map(set, clusters):
        apart = [other for other in merged if not other & cluster]
        merged = [*apart, cluster.union(*(other for other in merged if other & cluster))]
    return sorted(sorted(cluster) for cluster in merged)


# Writing


def coreference_column(document: Document, clusters: Clusters) -> list[str]:
    """A cell per token of the document; clusters are numbered from 0, in their order."""
    begins: dict[int, list[tuple[int, int]]] = defaultdict(list)  # token -> ends and cluster
    ends: dict[int, list[tuple[int, int]]] = defaultdict(list)  # the last token -> starts and cluster
    whole: dict[int, list[int]] = defaultdict(list)  # token -> clusters
    length = len(document.tokens)
    for number, cluster in enumerate(clusters):
        for start, end in cluster:
            if not 0 <= start < end <= length:
                raise UserError(
                    f"{document.where}: expected mentions within {length} tokens, found [{start}, {end})"
                )
            if any(start < other < end < behind for other, behind in cluster):
                raise UserError(
                    f"{document.where}: [{start}, {end}) and another mention of its cluster cross: the column "
                    f"cannot say so"
                )
            if end == start + 1:
                whole[start].append(number)
            else:
                begins[start].append((end, number))
                ends[end - 1].append((start, number))
    return [
        "|".join(
            [
                *(f"({number}" for _, number in sorted(begins[token], key=lambda pair: (-pair[0], pair[1]))),
                *(f"({number})" for number in sorted(whole[token])),
                *(f"{number})" for _, number in sorted(ends[token], key=lambda pair: (-pair[0], pair[1]))),
            ]
        )
        or NOTHING
        for token in range(length)
    ]


def conll_text(document: Document, clusters: Clusters) -> str:
    """The document as the reference scorer and `read_documents` read it: but for the clusters what its file had,
    for the scorer asks for the same header; - or * where there was none."""
    columns = document.columns
    if columns is None:
        speakers = iter(document.speakers or [NOTHING] * len(document.tokens))
        columns = [
            ["document", "0", str(number), token, "XX", "*", NOTHING, NOTHING, NOTHING, next(speakers), "*"]
            for sentence in document.sentences
            for number, token in enumerate(sentence)
        ]
    rows = iter(zip(columns, coreference_column(document, clusters)))
    lines = [document.header]
    for sentence in document.sentences:
        lines += ["\t".join([*before, cell]) for before, cell in itertools.islice(rows, len(sentence))]
        lines.append("")
    return "\n".join([*lines, END, ""])
