"""Answers to questions about a text: the span of it that answers.

The network is BiDAF with self attention. Files are SQuAD 1.1's JSON (.xz and .gz too); the scores are those of its
evaluate-v1.1.py. `questions.py` says how texts become tokens, and back.

Recipe laptop: meant for 6,000 questions of SQuAD's 87,599 (`--limit 6000`), four epochs. An epoch takes about one
minute of one core, one and a half with 512 numbers of ELMo per token at the input, two and a half at both places,
already cached; to measure on 5,665 questions takes half of that.
Recipe paper: all questions. From memory of Clark and Gardner 2017 and Peters et al. 2018 (appendix): GRUs of 90
cells per direction, linear layers of 180, dropout 0.2, Adadelta with rate 1.0, 45 questions per batch, answers of
at most 17 tokens; ELMo at both places, its weights unregularized (`--place both --lambda 0`). The number of epochs
and the length of contexts (all but a few are whole) are ours.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from elmokit.errors import UserError
from elmokit.tasks.inputs import TokenInputs
from elmokit.tasks.squad.answers import score_answers
from elmokit.tasks.squad.network import BidafNetwork, BidafSettings
from elmokit.tasks.squad.questions import Question, Text, cut_contexts, read_questions
from elmokit.tasks.task import Labels, Task, TrainConfig, split_in_two


class QuestionAnswering(Task[Question]):
    name = "squad"
    summary = "answers in a text (SQuAD 1.1): BiDAF with self attention (Clark and Gardner 2017)"
    files = "SQuAD's JSON"
    texts = 2
    metric = "f1"
    settings_class = BidafSettings
    recipes: ClassVar = {
        "laptop": (
            BidafSettings(),
            TrainConfig(
                epochs=4, patience=2, examples=32, batch_tokens=6000, learning_rate=2e-3, decay=0.5, average=0.999
            ),
        ),
        "paper": (
            BidafSettings(cells=90, longest=800),
            TrainConfig(
                epochs=25,
                patience=5,
                examples=45,
                batch_tokens=36_000,
                optimizer="adadelta",
                learning_rate=1.0,
                average=0.999,
            ),
        ),
    }

    @classmethod
    def read(cls, path: Path) -> list[Question]:
        return read_questions(path)

    @classmethod
    def labels_of(cls, examples: Sequence[Question]) -> Labels:
        return {}

    def training_examples(self, examples: Sequence[Question]) -> list[Question]:
        """Long contexts are cut to a part with the answer in it; a warning counts what is lost."""
        questions, shortened, left_out = cut_contexts(examples, self.settings.longest)
        if shortened or left_out:
            lost = (
                f"; {len(left_out):,} are left out, their answers being longer: {left_out[0]}" if left_out else ""
            )
            warnings.warn(
                f"{shortened:,} of {len(examples):,} questions are trained on {self.settings.longest} tokens of a "
                f"context that is longer (--set longest=N){lost}",
                stacklevel=2,
            )
        return questions

    def check(self, examples: Sequence[Question]) -> None:
        for example in examples:
            if not example.answers:
                raise UserError(f"{example.where}: expected an answer, found none")

    @staticmethod
    def sentences(example: Question) -> list[list[str]]:
        return [example.context.tokens, example.question.tokens]

    def collate(self, examples: Sequence[Question]) -> dict[str, Tensor]:
        """start, end [B]: the answer's first and last token, where it is known."""
        answers = [example.tokens_of_answer() for example in examples]
        known = [answer for answer in answers if answer is not None]
        if len(known) < len(answers):
            return {}
        first, last = torch.tensor([start for start, _ in known]), torch.tensor([end - 1 for _, end in known])
        return {"start": first, "end": last}

    def network(self, inputs: TokenInputs) -> BidafNetwork:
        return BidafNetwork(inputs, self.settings)

    def metrics(self, predictions: Sequence[dict[str, Any]], examples: Sequence[Question]) -> dict[str, float]:
        return score_answers([prediction["text"] for prediction in predictions], examples)

    def predictions_text(self, predictions: Sequence[dict[str, Any]], examples: Sequence[Question]) -> str:
        """An answer by each question's id, as evaluate-v1.1.py reads them."""
        answers = {e.id: prediction["text"] for e, prediction in zip(examples, predictions, strict=True)}
        return json.dumps(answers, ensure_ascii=False, indent=1) + "\n"

    @classmethod
    def example(cls, text: str, tokenize: Callable[[str], list[str]], where: str) -> Question:
        # Characters of the answer are counted from the line's beginning.
        context, question = split_in_two(text, "a context and a question", where)
        return cls.ask(context.rstrip(), question.strip(), tokenize, where)

    @classmethod
    def row_example(
        cls, texts: Sequence[str], label: str | None, tokenize: Callable[[str], list[str]], where: str
    ) -> Question:
        return cls.ask(texts[0], texts[1], tokenize, where)

    @classmethod
    def ask(cls, context: str, question: str, tokenize: Callable[[str], list[str]], where: str) -> Question:
        """A question that nobody has answered yet."""
        texts = [Text.cut_by(part, tokenize, where) for part in (context, question)]
        return Question(texts[0], texts[1], (), where)

    @staticmethod
    def show(example: Question, prediction: dict[str, Any]) -> str:
        """The question, and the context with the answer in [brackets]."""
        text, start, end = example.context.text, prediction["start"], prediction["end"]
        marked = f"{text[:start]}[{text[start:end]}]{text[end:]}" if start < end else text
        return f"{example.question.text}\n{marked}"
