"""The paper's experiments with tasks: which variants each compares, on which tasks, and what it is shown as."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from elmokit.analysis.exhibit import Exhibit
from elmokit.atomic import write_file
from elmokit.study.data import StudyData
from elmokit.study.sweep import BASELINE, ELMO, PLACEMENT, WEIGHTING, Measured, Variant, sample_variants
from elmokit.study.tables import (
    placement_exhibit,
    samples_exhibit,
    tasks_exhibit,
    weighting_exhibit,
    weights_exhibit,
)

THREE = ("squad", "entailment", "srl")  # the paper's choice for Tables 2 and 3
Shares = Sequence[float]


@dataclass(frozen=True)
class Experiment:
    variants: Callable[[Shares], tuple[Variant, ...]]
    exhibits: Callable[[Sequence[Measured], StudyData, Shares], list[Exhibit]]
    tasks: tuple[str, ...] | None  # by default; None is all
    seeds: int


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
        lambda results, data, shares: [samples_exhibit(results, data, shares)],
        ("ner", "srl"),
        1,
    ),
}


def read_shares(text: str) -> list[float]:
    """ "0.01,0.1,1" -> numbers, each more than 0 and at most 1."""
    try:
        shares = sorted({float(share) for share in text.split(",")})
    except ValueError:
        raise ValueError(f"shares: expected numbers such as 0.01,0.1,1, found {text!r}") from None
    if not shares or not 0 < shares[0] <= shares[-1] <= 1:
        raise ValueError(f"shares: each is more than 0 and at most 1, found {text!r}")
    return shares


def put_into_page(page: Path, exhibit: Exhibit) -> None:
    """The exhibit between its two marks in a Markdown page, in place of what was there."""
    text = page.read_text(encoding="utf-8")
    begin, end = f"<!-- {exhibit.name} -->\n", f"<!-- end {exhibit.name} -->"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{page} has no place for it: expected a line {begin.strip()} and later a line {end}")
    write_file(page, f"{before}{begin}{exhibit.markdown()}{end}{after}".encode())
