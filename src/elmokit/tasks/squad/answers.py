"""The official scores of answers, as SQuAD's evaluate-v1.1.py counts them."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

from elmokit.tasks.metrics import f_score, percent
from elmokit.tasks.squad.questions import Question

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = frozenset(string.punctuation)


def normalize_answer(text: str) -> str:
    """In lower case, without ASCII punctuation, English articles and white space that is too much."""
    text = "".join(character for character in text.lower() if character not in PUNCTUATION)
    return " ".join(ARTICLES.sub(" ", text).split())


def exact_match(predicted: str, gold: str) -> float:
    return float(normalize_answer(predicted) == normalize_answer(gold))


def f1_score(predicted: str, gold: str) -> float:
    """Of the words that both have, each as often as both have it."""
    ours, theirs = normalize_answer(predicted).split(), normalize_answer(gold).split()
    correct = (Counter(ours) & Counter(theirs)).total()
    return f_score(correct / len(ours), correct / len(theirs)) if correct else 0.0


def score_answers(predicted: Sequence[str], questions: Sequence[Question]) -> dict[str, float]:
    """The mean over the questions of the best over their answers, in per cent."""
    totals = {"f1": 0.0, "em": 0.0}
    for text, question in zip(predicted, questions, strict=True):
        totals["f1"] += max((f1_score(text, answer.text) for answer in question.answers), default=0.0)
        totals["em"] += max((exact_match(text, answer.text) for answer in question.answers), default=0.0)
    return {name: percent(total, len(questions)) for name, total in totals.items()}
