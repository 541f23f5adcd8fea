"""Classes of sentences, by a linear probe on the mean of a sentence's vectors: each layer, and all side by side.

Files are tables (.csv, .tsv, .jsonl); with another suffix TSV, such as the Korean movie reviews of NSMC: id,
document, label, without quoting.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from elmokit.analysis.model import Model, open_model
from elmokit.analysis.probes.linear import L2, Features, accuracies
from elmokit.analysis.sample import sample
from elmokit.embed.arrays import sentence_vectors
from elmokit.errors import UserError, listed
from elmokit.progress import OnProgress, silent
from elmokit.show.exhibit import Exhibit, layer_name, percent
from elmokit.show.figures import draw_probe
from elmokit.text.columns import Column, Columns, Format, asked_columns
from elmokit.text.corpus import open_table
from elmokit.text.corpus import table_format as format_of


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
    text_column: Column | None = None,
    label_column: Column | None = None,
    header: bool | None = None,
    table_format: Format | None = None,
    l2: float = L2,
    limit: int | None = None,
    seed: int = 0,
    tokenizer: str | None = None,
    on_progress: OnProgress = silent,
) -> TextProbeResult:
    """
    train, dev     tables: a row is an example.
    text_column    by name or number, where it is not obvious; so `label_column`.
    header         whether the first row has the names; found out where None.
    table_format   "csv", "tsv" or "jsonl"; by the file's name, else "tsv".
    l2             the penalty on the probe's squared weights.
    limit          use so many training examples at most, chosen by the seed. The development set is always whole.
    tokenizer      instead of the model's own, for a model given by its name.
    """
    elmo = open_model(model, tokenizer)
    columns = asked_columns(text_column, label_column, header, table_format)
    learned = sample(read_labelled(train, columns), limit, seed)
    heldout = read_labelled(dev, columns)
    numbers = {label: i for i, label in enumerate(sorted({example.label for example in learned}))}
    if len(numbers) < 2:
        raise UserError(
            f"{train}: expected two different labels or more, found {listed(sorted(numbers)) or 'none'}"
        )
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


def read_labelled(path: str | Path, columns: Columns | None = None) -> list[Labelled]:
    """The file's examples; one whose text is empty is one."""
    asked = replace(columns or Columns(), format=format_of(path, columns) or "tsv")
    with open_table(path, columns=asked, labelled=True) as table:
        return [Labelled(row.text, row.label) for row in table.labelled_rows() if row.label is not None]
