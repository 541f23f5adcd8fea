"""Classes of sentences, by a linear probe on the mean of a sentence's vectors: each layer, and all side by side.

Files are TSV with a header, such as the Korean movie reviews of NSMC: id, document, label. No quoting.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from elmokit.analysis.model import Model, open_model
from elmokit.analysis.probes.linear import L2, Features, accuracies
from elmokit.analysis.sample import sample
from elmokit.config import suggest
from elmokit.embed.arrays import sentence_vectors
from elmokit.errors import UserError
from elmokit.progress import OnProgress, silent
from elmokit.show.exhibit import Exhibit, layer_name, percent
from elmokit.show.figures import draw_probe
from elmokit.text.corpus import LineReader


class Labelled(NamedTuple):
    text: str
    label: str


@dataclass(frozen=True)
class TextProbeResult:
    """Accuracies on the development set, 0 to 1."""

    by_layer: tuple[float, ...]  # the token layer first
    concatenated: float  # all layers side by side
    baseline: float  # the most frequent class of the training set, always
    classes: int
    train_examples: int
    dev_examples: int
    l2: float
    seed: int

    def exhibit(self) -> Exhibit:
        names = [*map(layer_name, range(len(self.by_layer))), "all layers side by side"]
        scores = [percent(accuracy) for accuracy in (*self.by_layer, self.concatenated)]
        baselines = {"the most frequent class": percent(self.baseline)}
        return Exhibit(
            name="text",
            title="Classes of sentences, by layer",
            columns=("representation", "accuracy (%)"),
            rows=tuple(zip([*names, *baselines], [*scores, *baselines.values()])),
            notes=(
                f"{self.classes} classes, {self.train_examples:,} examples to learn, "
                f"{self.dev_examples:,} to test",
                f"the mean of a sentence's vectors; logistic regression, L2 penalty {self.l2:g}, seed {self.seed}",
            ),
            draw=lambda figure: draw_probe(figure, names, scores, baselines),
        )

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)


def probe_text(
    model: Model,
    train: str | Path,
    dev: str | Path,
    *,
    text_column: str = "document",
    label_column: str = "label",
    l2: float = L2,
    limit: int | None = None,
    seed: int = 0,
    tokenizer: str | None = None,
    on_progress: OnProgress = silent,
) -> TextProbeResult:
    """
    train, dev   TSV files with a header, which names the two columns.
    l2           the penalty on the probe's squared weights.
    limit        use so many training examples at most, chosen by the seed. The development set is always whole.
    tokenizer    instead of the model's own, for a model given by its name.
    """
    elmo = open_model(model, tokenizer)
    learned = sample(read_labelled(train, text_column, label_column), limit, seed)
    heldout = read_labelled(dev, text_column, label_column)
    numbers = {label: i for i, label in enumerate(sorted({example.label for example in learned}))}
    if len(numbers) < 2:
        raise UserError(f"{train}: expected two different labels or more, found {sorted(numbers)}")
    labels = np.array([numbers[example.label] for example in learned])
    gold = np.array([numbers.get(example.label, -1) for example in heldout])
    train_layers = sentence_vectors(elmo, [example.text for example in learned], "embedding train", on_progress)
    dev_layers = sentence_vectors(elmo, [example.text for example in heldout], "embedding dev", on_progress)

    def features() -> Iterator[tuple[Features, Features]]:
        yield from zip(train_layers, dev_layers)
        yield np.concatenate(train_layers, axis=1), np.concatenate(dev_layers, axis=1)

    *by_layer, concatenated = accuracies(features(), elmo.layers + 1, labels, gold, len(numbers), l2, on_progress)
    usual = Counter(example.label for example in learned).most_common(1)[0][0]
    return TextProbeResult(
        by_layer=tuple(by_layer),
        concatenated=concatenated,
        baseline=sum(example.label == usual for example in heldout) / len(heldout),
        classes=len(numbers),
        train_examples=len(learned),
        dev_examples=len(heldout),
        l2=l2,
        seed=seed,
    )


def read_labelled(path: str | Path, text_column: str = "document", label_column: str = "label") -> list[Labelled]:
    """The file's examples; one whose text is empty is one."""
    examples = []
    with LineReader(path) as lines:
        header: list[str] | None = None
        for line in lines:
            fields = line.text.split("\t")
            if header is None:
                header = fields
                text, label = (_column(path, header, name) for name in (text_column, label_column))
                continue
            if line.text == "":
                continue
            if len(fields) != len(header):
                raise UserError(
                    f"{path}, line {line.number}: expected {len(header)} columns, as in the header, found "
                    f"{len(fields)}: {line.text[:60]!r}"
                )
            if not fields[label]:
                raise UserError(f"{path}, line {line.number}: expected a label, found an empty field")
            examples.append(Labelled(fields[text], fields[label]))
    if not examples:
        raise UserError(f"{path}: expected a header and labelled texts below it, found none")
    return examples


def _column(path: str | Path, header: list[str], name: str) -> int:
    if name not in header:
        raise UserError(f"{path}: no column {name!r} in its header, with tabs between: {suggest(name, header)}")
    return header.index(name)
