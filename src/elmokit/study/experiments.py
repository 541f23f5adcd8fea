"""The paper's experiments with tasks: which variants each compares, on which tasks, and what it is shown as."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from elmokit.errors import UserError
from elmokit.show.exhibit import Exhibit
from elmokit.study.data import StudyData
from elmokit.study.runs import Measured
from elmokit.study.samples import epochs_exhibit, samples_exhibit
from elmokit.study.tables import placement_exhibit, tasks_exhibit, weighting_exhibit, weights_exhibit
from elmokit.study.variants import BASELINE, ELMO, PLACEMENT, WEIGHTING, Variant, sample_variants

THREE = ("squad", "entailment", "srl")  # the paper's choice for Tables 2 and 3
Shares = Sequence[float]
SHARES = (0.001, 0.01, 0.1, 1.0)  # of the training examples, where none are chosen
RECIPE = "laptop"


@dataclass(frozen=True)
class Experiment:
    variants: Callable[[Shares], tuple[Variant, ...]]
    exhibits: Callable[[Sequence[Measured], StudyData, Shares], list[Exhibit]]
    tasks: tuple[str, ...] | None  # by default; None is all
    seeds: int

    def usual(self, tasks: Sequence[str]) -> list[str]:
        """Of the tasks that there are the paper's choice; all of them, where it has none of these."""
        return [task for task in tasks if self.tasks is None or task in self.tasks] or list(tasks)


EXPERIMENTS = {
    "tasks": Experiment(
        lambda shares: (BASELINE, ELMO),
        lambda results, data, shares: [tasks_exhibit(results, data), weights_exhibit(results)],
        None,
        3,
    ),
    "weighting": Experiment(
        lambda shares: WEIGHTING,
        lambda results, data, shares: [weighting_exhibit(results, data)],
        THREE,
        1,
    ),
    "placement": Experiment(
        lambda shares: PLACEMENT,
        lambda results, data, shares: [
            placement_exhibit(results, data),
            weights_exhibit(results, "placement-weights"),
        ],
        THREE,
        1,
    ),
    "samples": Experiment(
        sample_variants,
        lambda results, data, shares: [samples_exhibit(results, data, shares), epochs_exhibit(results, data)],
        ("ner", "srl"),
        1,
    ),
}


def check_shares(shares: Shares) -> tuple[float, ...]:
    """In their order, each once: more than 0 and at most 1."""
    found = tuple(sorted(set(shares)))
    if not found or not 0 < found[0] <= found[-1] <= 1:
        raise UserError(f"shares: each is more than 0 and at most 1, found {list(shares)}")
    return found


def read_shares(text: str) -> tuple[float, ...]:
    """ "0.01,0.1,1" -> numbers"""
    try:
        shares = [float(share) for share in text.split(",")]
    except ValueError:
        raise UserError(f"shares: expected numbers such as 0.01,0.1,1, found {text!r}") from None
    return check_shares(shares)
