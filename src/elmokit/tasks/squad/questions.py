"""Questions about a text whose answers are spans of it: SQuAD's file, tokens, long contexts.

SQuAD 1.1 (Rajpurkar et al. 2016) marks an answer by its characters; a network finds tokens. An answer becomes the
fewest tokens that cover it, and tokens become the characters that they stand for in the text as it was given.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from elmokit.errors import UserError
from elmokit.tasks import json_fields
from elmokit.tasks.json_fields import field
from elmokit.text.corpus import LineReader
from elmokit.text.tokens import Span, Tokenizer, clean_token, make_tokenizer


class Text:
    """A text, its tokens and their characters. It is cut into tokens when these are first asked for: most of a
    file's texts are never looked at where only some of its questions are trained on."""

    def __init__(self, text: str, tokenizer: Tokenizer) -> None:
        self.text = text
        self._tokenizer = tokenizer
        self._cut: tuple[list[Span], list[str]] | None = None
        self._parts: dict[Span, Text] = {}

    @classmethod
    def cut_by(cls, text: str, tokenize: Callable[[str], list[str]], where: str) -> Text:
        """As somebody else's function cuts it: that gives tokens alone, so their places are looked for."""
        made = cls(text, make_tokenizer("whitespace"))
        tokens = tokenize(text)
        made._cut = find_tokens(text, tokens, where), tokens
        return made

    @property
    def spans(self) -> list[Span]:
        return self._tokenized()[0]

    @property
    def tokens(self) -> list[str]:
        return self._tokenized()[1]

    def part(self, first: int, last: int) -> Text:
        """The same text, of which only tokens first to last - 1 are seen; identical parts are one object."""
        if (first, last) not in self._parts:
            made = Text(self.text, self._tokenizer)
            made._cut = self.spans[first:last], self.tokens[first:last]
            self._parts[first, last] = made
        return self._parts[first, last]

    def covering(self, start: int, end: int) -> Span:
        """[first, last) of the tokens that cover characters start to end - 1; those that touch nothing are out."""
        first = bisect_right(self.spans, start, key=lambda span: span[1])
        last = bisect_left(self.spans, end, key=lambda span: span[0])
        return first, last

    def _tokenized(self) -> tuple[list[Span], list[str]]:
        if self._cut is None:
            spans = self._tokenizer.spans(self.text)
            self._cut = spans, self._tokenizer.clean([self.text[start:end] for start, end in spans])
        return self._cut


class Answer(NamedTuple):
    text: str
    start: int  # its first character in the context


@dataclass(frozen=True)
class Question:
    context: Text
    question: Text
    answers: tuple[Answer, ...]  # as several people gave them; none where they are not known
    where: str
    id: str = ""  # in its file

    def tokens_of_answer(self) -> Span | None:
        """[first, last) in the context, of the first answer: what is trained on."""
        if not self.answers:
            return None
        text, start = self.answers[0]
        return self.context.covering(start, start + len(text))


def find_tokens(text: str, tokens: Sequence[str], where: str) -> list[Span]:
    """Where tokens stand in their text. They cover it but for white space; each may have been normalized."""
    spans, at = [], 0
    for token in tokens:
        while at < len(text) and text[at].isspace():
            at += 1
        ends = (at + len(token), *range(at + 1, min(len(text), at + 8 * len(token)) + 1))
        end = next((end for end in ends if token in (text[at:end], clean_token(text[at:end], "NFC"))), None)
        if end is None:
            raise UserError(f"{where}: expected the token {token!r} in the text, found {text[at : at + 40]!r}")
        spans.append((at, end))
        at = end
    return spans


# The file


def read_questions(path: Path) -> list[Question]:
    """The questions of a file of SQuAD 1.1, in order; identical contexts are one object."""
    with LineReader(path) as reader:
        content = "\n".join(line.text for line in reader)
    if not content.strip():
        raise UserError(f"{path}: expected SQuAD's JSON, found nothing: the file is empty")
    questions = list(_questions(json_fields.parse(content, str(path)), path))
    if not questions:
        raise UserError(f"{path}: expected questions, found none: the file is empty but for its frame")
    return questions


def _questions(table: Any, path: Path) -> Iterator[Question]:
    tokenizer = make_tokenizer("words")
    contexts: dict[str, Text] = {}
    names: set[str] = set()
    for i, article in enumerate(field(table, "data", list, str(path)), start=1):
        for j, paragraph in enumerate(field(article, "paragraphs", list, f"{path}, article {i}"), start=1):
            where = f"{path}, article {i}, paragraph {j}"
            text = field(paragraph, "context", str, where)
            context = contexts.setdefault(text, Text(text, tokenizer))
            for k, entry in enumerate(field(paragraph, "qas", list, where), start=1):
                name = field(entry, "id", str, f"{where}, question {k}")
                where_asked = f"{path}, question {name!r}"
                if name in names:
                    raise UserError(
                        f"{where_asked}: expected an id of its own, for answers go by it; found it twice"
                    )
                names.add(name)
                question = field(entry, "question", str, where_asked)
                given = field(entry, "answers", list, where_asked)
                if not given:
                    raise UserError(
                        f"{where_asked}: expected an answer, found none: questions that have none (SQuAD 2.0) "
                        f"are not read"
                    )
                answers = tuple(dict.fromkeys(_answer(answer, text, where_asked) for answer in given))
                yield Question(context, Text(question, tokenizer), answers, f"{path.name}:{name}", name)


def _answer(table: Any, context: str, where: str) -> Answer:
    text = field(table, "text", str, where)
    start = field(table, "answer_start", int, where)
    found = context[start : start + len(text)] if start >= 0 else ""
    if found != text:
        raise UserError(f"{where}: expected the answer {text!r} at character {start}, found {found!r}")
    if not text.strip():
        raise UserError(f"{where}: expected an answer with a word, found {text!r}")
    return Answer(text, start)


# Long contexts


class Cut(NamedTuple):
    """What is left of questions whose contexts are cut."""

    questions: list[Question]
    shortened: int  # of these, how many see a part of their context
    left_out: list[str]  # `where` of those whose answer is longer than any part


def cut_contexts(questions: Sequence[Question], longest: int) -> Cut:
    """Parts of at most `longest` tokens with the whole answer in them.

    Parts begin at every half of `longest`, so that the questions about a context share few of them.
    """
    kept, shortened, left_out = [], 0, []
    half = max(1, longest // 2)
    for question in questions:
        count = len(question.context.tokens)
        first, last = question.tokens_of_answer() or (0, 0)
        if count <= longest:
            kept.append(question)
        elif last - first > longest:
            left_out.append(question.where)
        else:
            begin = -(-max(0, last - longest) // half) * half  # the first that has the answer's end
            begin = min(begin, first, count - longest)
            kept.append(replace(question, context=question.context.part(begin, begin + longest)))
            shortened += 1
    return Cut(kept, shortened, left_out)
