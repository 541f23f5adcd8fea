"""The paper's experiments with tasks: which variants each compares, on which tasks, and what it is shown as."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from elmokit.atomic import write_file
from elmokit.errors import UserError
from elmokit.show.exhibit import Exhibit
from elmokit.study.data import StudyData
from elmokit.study.samples import epochs_exhibit, samples_exhibit
from elmokit.study.sweep import BASELINE, ELMO, PLACEMENT, WEIGHTING, Measured, Variant, sample_variants
from elmokit.study.tables import placement_exhibit, tasks_exhibit, weighting_exhibit, weights_exhibit

THREE = ("squad", "entailment", "srl")  # the paper's choice for Tables 2 and 3
Shares = Sequence[float]


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


def read_shares(text: str) -> list[float]:
    """ "0.01,0.1,1" -> numbers, each more than 0 and at most 1."""
    try:
        shares = sorted({float(share) for share in text.split(",")})
    except ValueError:
        raise UserError(f"shares: expected numbers such as 0.01,0.1,1, found {text!r}") from None
    if not shares or not 0 < shares[0] <= shares[-1] <= 1:
        raise UserError(f"shares: each is more than 0 and at most 1, found {text!r}")
    return shares


def places(page: Path, names: Sequence[str]) -> list[str]:
    """Those of the exhibits that have their two marks in a Markdown page."""
    text = page.read_text(encoding="utf-8")
    found = []
    for name in names:
        begin, end = _marks(name)
        _, begun, rest = text.partition(begin)
        if begun and end not in rest:
            raise UserError(f"{page}: after the line {begin.strip()} expected a line {end}, found none")
        if begun:
            found.append(name)
    return found


def check_page(page: Path, names: Sequence[str]) -> None:
    if not places(page, names):
        begin, end = _marks(names[0])
        raise UserError(
            f"{page} has no place for {' or '.join(names)}: expected a line {begin.strip()} and later a line {end}"
        )


def put_into_page(page: Path, exhibits: Sequence[Exhibit]) -> list[str]:
    """Each exhibit between its marks, in place of what was there; the names of those that have none."""
    wanted = places(page, [exhibit.name for exhibit in exhibits])
    text = page.read_text(encoding="utf-8")
    for exhibit in exhibits:
        if exhibit.name in wanted:
            begin, end = _marks(exhibit.name)
            before, _, rest = text.partition(begin)
            text = f"{before}{begin}{exhibit.markdown()}{end}{rest.partition(end)[2]}"
    write_file(page, text.encode())
    return [exhibit.name for exhibit in exhibits if exhibit.name not in wanted]


def _marks(name: str) -> tuple[str, str]:
    return f"<!-- {name} -->\n", f"<!-- end {name} -->"
