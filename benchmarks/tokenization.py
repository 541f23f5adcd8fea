"""How well do the rule tokenizer and the sentence splitter agree with hand-made treebanks?

    python benchmarks/tokenization.py [--data FOLDER]

Scores `word_spans` and `sentence_spans` against the development parts of UD English EWT and UD Korean
Kaist, beside the simplest baselines one might write, in one run. The rules were tuned on the training parts;
nobody looked at the errors made here.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from elmokit.text.sentences import sentence_spans
from elmokit.text.words import word_spans

Span = tuple[int, int]
Splitter = Callable[[str], list[Span]]

TREEBANKS = {"English EWT": "en-dev.conllu", "Korean Kaist": "ko-dev.conllu"}
DEFAULT_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


class Sentence(NamedTuple):
    text: str
    tokens: list[Span]
    opens_paragraph: bool


class Score(NamedTuple):
    correct: int
    predicted: int
    gold: int

    @property
    def precision(self) -> float:
        return self.correct / max(self.predicted, 1)

    @property
    def recall(self) -> float:
        return self.correct / max(self.gold, 1)

    @property
    def f1(self) -> float:
        return 2 * self.correct / max(self.predicted + self.gold, 1)


def read_conllu(path: Path) -> Iterator[Sentence]:
    for block in path.read_text(encoding="utf-8").strip().split("\n\n"):
        lines = block.split("\n")
        comments = [line for line in lines if line.startswith("#")]
        rows = [line.split("\t")[:2] for line in lines if not line.startswith("#")]
        text = next(line.removeprefix("# text = ") for line in comments if line.startswith("# text = "))
        opens = any(line.startswith(("# newdoc", "# newpar")) for line in comments)
        yield Sentence(text, _token_spans(text, rows), opens)


def _token_spans(text: str, rows: list[list[str]]) -> list[Span]:
    """Where the treebank's words lie in the text.

    A line `1-2 don't` announces that words 1 and 2 are written as one. Where the words spell exactly what
    is written (do + n't) they count as two tokens, as UD counts them. Where they do not (Spanish `del` =
    de + el) no offset inside the writing belongs to either, and the written form counts as one token.
    """
    words = {number: form for number, form in rows if number.isdigit()}
    written: list[str] = []
    inside = 0  # words up to this number are already written, by a `1-2` line
    for number, form in rows:
        if "-" in number:
            first, inside = (int(part) for part in number.split("-"))
            parts = [words[str(n)] for n in range(first, inside + 1)]
            written += parts if "".join(parts) == form else [form]
        elif number.isdigit() and int(number) > inside:  # `8.1` is an empty node: never written
            written.append(form)
    spans: list[Span] = []
    position = 0
    for form in written:
        start = text.index(form, position)
        position = start + len(form)
        spans.append((start, position))
    return spans


def paragraphs(sentences: list[Sentence]) -> Iterator[list[str]]:
    paragraph: list[str] = []
    for sentence in sentences:
        if sentence.opens_paragraph and paragraph:
            yield paragraph
            paragraph = []
        paragraph.append(sentence.text)
    yield paragraph


def score_tokens(sentences: list[Sentence], split: Splitter) -> Score:
    correct = predicted = gold = 0
    for sentence in sentences:
        found = split(sentence.text)
        correct += len(set(found) & set(sentence.tokens))
        predicted += len(found)
        gold += len(sentence.tokens)
    return Score(correct, predicted, gold)


def score_sentences(sentences: list[Sentence], split: Splitter) -> Score:
    """Only boundaries inside a paragraph count: its last one is given to everybody."""
    correct = predicted = gold = 0
    for paragraph in paragraphs(sentences):
        ends: set[int] = set()
        position = 0
        for text in paragraph[:-1]:
            position += len(text)
            ends.add(position)
            position += 1  # the space that joins
        found = {end for _, end in split(" ".join(paragraph))[:-1]}
        correct += len(found & ends)
        predicted += len(found)
        gold += len(ends)
    return Score(correct, predicted, gold)


def baseline_words(text: str) -> list[Span]:
    return [match.span() for match in re.finditer(r"\w+|[^\w\s]", text)]


def baseline_sentences(text: str) -> list[Span]:
    ends = [match.start() + 1 for match in re.finditer(r"[.!?]\s", text)] + [len(text)]
    starts = [0] + [end + 1 for end in ends[:-1]]
    return [span for span in zip(starts, ends, strict=True) if text[slice(*span)].strip()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA, help="folder that holds pos/*.conllu")
    folder: Path = parser.parse_args().data / "pos"
    missing = [name for name in TREEBANKS.values() if not (folder / name).is_file()]
    if missing:
        sys.exit(f"No {' or '.join(missing)} in {folder}. Pass --data FOLDER, where FOLDER/pos holds them.")

    runs: list[tuple[str, Callable[[list[Sentence], Splitter], Score], dict[str, Splitter]]] = [
        ("tokens", score_tokens, {r"\w+|[^\w\s]": baseline_words, "word_spans": word_spans}),
        ("sentences", score_sentences, {r"[.!?]\s": baseline_sentences, "sentence_spans": sentence_spans}),
    ]
    print(f"{'treebank':<14}{'unit':<11}{'method':<16}{'P':>7}{'R':>7}{'F1':>7}{'gold':>8}")
    for treebank, name in TREEBANKS.items():
        sentences = list(read_conllu(folder / name))
        for unit, measure, methods in runs:
            for method, split in methods.items():
                score = measure(sentences, split)
                figures = "".join(f"{100 * x:7.2f}" for x in (score.precision, score.recall, score.f1))
                print(f"{treebank:<14}{unit:<11}{method:<16}{figures}{score.gold:8}")


if __name__ == "__main__":
    main()
