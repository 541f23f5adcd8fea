"""Is a sentence a question? A task of one's own: docs/guides/new-task.md."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from elmokit import UserError
from elmokit.tasks.classification import LabelTask
from elmokit.tasks.nn.bilstm import BiLSTM
from elmokit.tasks.nn.classifier import Classifier
from elmokit.tasks.task import TrainConfig, located
from elmokit.text.corpus import LineReader


@dataclass(frozen=True)
class QuestionSettings:  # sizes; the recipes choose them, --set changes them
    cells: int = 16


@dataclass(frozen=True)
class Sentence:  # an example knows where it was read, for messages
    tokens: list[str]
    label: str | None
    where: str


class QuestionNetwork(Classifier):
    def __init__(self, inputs, settings, labels):
        super().__init__(inputs, labels)
        self.encoder = BiLSTM(inputs.width, settings.cells)  # inputs.width: word vector, and ELMo if it is there
        self.output = nn.Linear(self.encoder.width + inputs.output_width, len(labels))

    def forward(self, batch):  # -> scores [B, N]
        x, at_output, mask = self.inputs(batch.sentences[0])  # [B, T, width], [B, T, D] or None, [B, T]
        x = self.encoder(x, mask)
        if at_output is not None:  # --place output or both
            x = torch.cat([x, at_output], dim=-1)
        return self.output(x.sum(dim=1) / mask.sum(dim=1, keepdim=True).clamp(min=1))


class Questions(LabelTask[Sentence]):
    name = "questions"
    summary = "is it a question? biLSTM and mean"
    settings_class = QuestionSettings
    recipes: ClassVar = {
        "laptop": (QuestionSettings(), TrainConfig(epochs=12, patience=12, examples=4, learning_rate=0.02))
    }

    @classmethod
    def read(cls, path):
        examples = []
        with LineReader(path) as reader:
            for line in reader:
                label, tab, text = line.text.partition("\t")
                if not tab:
                    raise UserError(f"{path}, line {line.number}: expected label TAB text, found {line.text!r}")
                examples.append(Sentence(text.split(), label, located(path, line.number)))
        return examples

    @staticmethod
    def sentences(example):  # whose vectors the network needs
        return [example.tokens]

    def network(self, inputs):
        return QuestionNetwork(inputs, self.settings, self.labels["labels"])

    @classmethod
    def example(cls, text, tokenize, where):  # a user's line, for `elmo task predict`
        return Sentence(tokenize(text), None, where)

    @staticmethod
    def show(example, prediction):
        return f"{prediction}\t{' '.join(example.tokens)}"
