"""Figure 1: with how little training data, and in how few epochs, a task is learned with ELMo and without."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

from elmokit.show.exhibit import Cell, Exhibit, pattern_note
from elmokit.show.figures import COLOURS, MARKERS, legend_below, panels, plain
from elmokit.study.data import StudyData
from elmokit.study.runs import Measured
from elmokit.study.tables import alike, deviation, grouped, mean, widest
from elmokit.study.variants import BASELINE, ELMO, sample_variants

KINDS = ("baseline", "+ ELMo")
Point = tuple[float, float, float]  # how much of the data or how many epochs, the score, its deviation
Curves = dict[str, tuple[list[Point], list[Point]]]  # task -> the points of each kind


def samples_exhibit(results: Sequence[Measured], data: StudyData, shares: Sequence[float]) -> Exhibit:
    """The score by the size of the training set."""
    rows: list[tuple[Cell, ...]] = []
    below: list[str] = []
    within_deviation: list[str] = []
    curves: Curves = {}
    for task, variants in grouped(results).items():
        for share in shares:
            without, with_elmo = alike(*(variants.get(variant.name, []) for variant in sample_variants([share])))
            if not without:
                continue
            base, elmo = mean(without), mean(with_elmo)
            rows.append(
                (
                    data.title(task),
                    100 * share,
                    with_elmo[0].examples,
                    base,
                    deviation(without),
                    elmo,
                    deviation(with_elmo),
                    elmo - base,
                    len(without),
                )
            )
            where = f"{task} at {share:.1%}"
            if elmo <= base:
                below.append(where)
            elif elmo - base <= widest(without, with_elmo):
                within_deviation.append(where)
            for points, runs in zip(curves.setdefault(task, ([], [])), (without, with_elmo)):
                points.append((runs[0].examples, mean(runs), deviation(runs) or 0.0))
    return Exhibit(
        name="samples",
        title="Sample efficiency: the score by the size of the training set",
        paper="Figure 1",
        columns=("task", "share, %", "examples", "baseline", "± baseline", "+ ELMo", "± + ELMo", "gain", "seeds"),
        rows=tuple(rows),
        notes=(
            "On a share of the data a run has (1 / share) ^ (1/3) times the recipe's epochs, and all of them.",
            pattern_note(
                "ELMo above the baseline at every size",
                bool(rows) and not below,
                f"below at {', '.join(below)}" if below else f"{len(rows)} sizes",
            ),
            *([f"Above by less than the deviation: {', '.join(within_deviation)}."] if within_deviation else []),
        ),
        draw=(lambda figure: _draw(figure, curves, "training examples", _by_size)) if curves else None,
    )


def epochs_exhibit(results: Sequence[Measured], data: StudyData) -> Exhibit:
    """The score after every epoch on the whole of the training set, of the first seed that both have."""
    rows: list[tuple[Cell, ...]] = []
    found, later = [], []
    curves: Curves = {}
    for task, variants in grouped(results).items():
        runs = alike(*(variants.get(variant.name, []) for variant in (BASELINE, ELMO)))
        base, elmo = (min(each, key=lambda run: run.seed).by_epoch if each else () for each in runs)
        if not base or not elmo:
            continue
        for epoch, scores in enumerate(zip_longest(base, elmo), start=1):
            rows.append((data.title(task), epoch, *scores))
        best = base.index(max(base)) + 1
        passed = next((epoch for epoch, score in enumerate(elmo, start=1) if score > max(base)), None)
        found.append(f"{task}: {'never' if passed is None else f'epoch {passed}'}, the baseline's is {best}")
        if passed is None or passed >= best:
            later.append(task)
        curves[task] = (_points(base), _points(elmo))
    return Exhibit(
        name="samples-epochs",
        title="Sample efficiency: the score by epochs on the whole training set",
        paper="section 5.4",
        columns=("task", "epoch", *KINDS),
        rows=tuple(rows),
        notes=(
            "One run of each, of the first seed; a run ends when its patience is used up.",
            pattern_note(
                "with ELMo the baseline's best is passed in fewer epochs than the baseline needs for it",
                bool(rows) and not later,
                "; ".join(found) or "nothing is done",
            ),
        ),
        draw=(lambda figure: _draw(figure, curves, "epochs on all of it", _by_epoch)) if curves else None,
    )


def _points(by_epoch: Sequence[float]) -> list[Point]:
    return [(epoch, score, 0.0) for epoch, score in enumerate(by_epoch, start=1)]


def _draw(figure: Any, curves: Curves, unit: str, scale: Callable[[Any, Sequence[float]], None]) -> None:
    drawn = []
    for axes, (task, kinds) in zip(panels(figure, len(curves), across=2), curves.items()):
        for number, (kind, points) in enumerate(zip(KINDS, kinds)):
            style = {"color": COLOURS[number], "marker": MARKERS[number], "label": kind}
            places, scores, spreads = zip(*sorted(points))
            drawn.append(axes.errorbar(places, scores, yerr=spreads if any(spreads) else None, capsize=3, **style))
        scale(axes, places)
        axes.set(xlabel=f"{task}: {unit}", ylabel="score on dev (%)")
        plain(axes)
    legend_below(figure, drawn)


def _by_size(axes: Any, sizes: Sequence[float]) -> None:
    axes.set_xscale("log")
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.minorticks_off()


def _by_epoch(axes: Any, epochs: Sequence[float]) -> None:
    axes.xaxis.get_major_locator().set_params(integer=True)
