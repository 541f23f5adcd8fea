"""Runs of a sweep -> the paper's tables and figures as exhibits. Scores are per cent on dev."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from elmokit.show.exhibit import Cell, Exhibit, pattern_note
from elmokit.show.figures import COLOURS, INK, MARKERS, legend_below, panels, plain
from elmokit.study.data import StudyData
from elmokit.study.runs import Measured
from elmokit.study.variants import BASELINE, ELMO

Scores = dict[str, dict[str, list[Measured]]]  # task -> variant -> seeds
WEIGHTINGS = {  # a variant's name, and what people see
    "baseline": "baseline",
    "last": "the last layer only",
    "lambda-1": "all layers, lambda 1",
    "elmo": "all layers, lambda 0.001",
}
PLACES = {
    "baseline": "baseline",
    "elmo": "ELMo at the input",
    "both": "ELMo at both",
    "output": "ELMo at the output",
}


def grouped(results: Sequence[Measured]) -> Scores:
    found: Scores = defaultdict(lambda: defaultdict(list))
    for result in results:
        found[result.task][result.variant].append(result)
    return {task: dict(variants) for task, variants in found.items()}


def alike(*variants: Sequence[Measured]) -> list[list[Measured]]:
    """Of each only the runs of seeds that all have: what is compared has the same draws of data and weights."""
    common = set.intersection(*({result.seed for result in runs} for runs in variants))
    return [[result for result in runs if result.seed in common] for runs in variants]


def mean(results: Sequence[Measured]) -> float:
    return statistics.mean(result.score for result in results)


def deviation(results: Sequence[Measured]) -> float | None:
    """Of the sample; there is none of one run."""
    return statistics.stdev(result.score for result in results) if len(results) > 1 else None


def widest(*variants: Sequence[Measured]) -> float:
    """The largest of their deviations: a gain counts where it is more."""
    return max(deviation(runs) or 0.0 for runs in variants)


def error_reduction(before: float, after: float) -> float:
    """The share of the errors that are gone, per cent."""
    return 100 * (after - before) / (100 - before) if before < 100 else 0.0


def tasks_exhibit(results: Sequence[Measured], data: StudyData) -> Exhibit:
    """Table 1: every task with ELMo and without."""
    rows: list[tuple[Cell, ...]] = []
    ahead: list[str] = []
    behind: list[str] = []
    drawn: list[tuple[str, list[Measured], list[Measured]]] = []
    for task, variants in grouped(results).items():
        if BASELINE.name not in variants or ELMO.name not in variants:
            continue
        without, with_elmo = alike(variants[BASELINE.name], variants[ELMO.name])
        if not without:
            continue
        base, elmo = mean(without), mean(with_elmo)
        (ahead if elmo - base > widest(without, with_elmo) else behind).append(task)
        rows.append(
            (
                data.title(task),
                with_elmo[0].metric,
                base,
                deviation(without),
                elmo,
                deviation(with_elmo),
                elmo - base,
                error_reduction(base, elmo),
                data.paper(task),
                len(without),
                with_elmo[0].examples,
                statistics.mean(r.seconds for r in without) / 60,
                statistics.mean(r.seconds for r in with_elmo) / 60,
            )
        )
        drawn.append((task, without, with_elmo))
    runs = [run for _, without, with_elmo in drawn for run in (*without, *with_elmo)]
    return Exhibit(
        name="tasks",
        title="The tasks with ELMo and without",
        paper="Table 1",
        columns=(
            "task",
            "measured by",
            "baseline",
            "± baseline",
            "+ ELMo",
            "± + ELMo",
            "gain",
            "errors gone, %",
            "paper's, %",
            "seeds",
            "training examples",
            "minutes a run, baseline",
            "minutes a run, + ELMo",
        ),
        brief=("task", "baseline", "+ ELMo", "gain", "errors gone, %", "paper's, %"),
        rows=tuple(rows),
        notes=(
            "Baseline: static word vectors. + ELMo: the frozen biLM's layers mixed by learned weights, joined to "
            "them at the input. ± is the standard deviation over the seeds; a gain counts where it is more.",
            "The paper's reduction of errors is on other data, with a biLM of 94 M parameters: for scale.",
            f"{len(runs)} runs, {sum(run.seconds for run in runs) / 3600:.1f} hours of one thread in all.",
            pattern_note(
                "ELMo ahead in every task by more than the deviation",
                bool(rows) and not behind,
                f"ahead in {', '.join(ahead) or 'none'}" + (f"; not in {', '.join(behind)}" if behind else ""),
            ),
        ),
        draw=(lambda figure: _draw_gains(figure, drawn)) if drawn else None,
    )


def weighting_exhibit(results: Sequence[Measured], data: StudyData) -> Exhibit:
    """Table 2: which layers, and how freely they are weighted."""
    note = "The paper: all layers ahead of the last alone, and a small lambda mostly ahead of a large one."
    return _variants_exhibit(
        "weighting", "Which layers, and how free their weights", "Table 2", WEIGHTINGS, results, data, note
    )


def placement_exhibit(results: Sequence[Measured], data: StudyData) -> Exhibit:
    """Table 3: where ELMo enters the task's RNN."""
    note = "The paper: at both for SQuAD and SNLI, at the input for SRL."
    return _variants_exhibit("placement", "Where ELMo enters", "Table 3", PLACES, results, data, note)


def _variants_exhibit(
    name: str,
    title: str,
    paper: str,
    labels: Mapping[str, str],
    results: Sequence[Measured],
    data: StudyData,
    note: str,
) -> Exhibit:
    rows: list[tuple[Cell, ...]] = []
    best = []
    series: dict[str, dict[str, float]] = {}
    for task, found in grouped(results).items():
        present = [variant for variant in labels if variant in found]
        if len(present) < 2:
            continue
        runs = dict(zip(present, alike(*(found[variant] for variant in present))))
        seeds = len(runs[present[0]])
        if not seeds:
            continue
        means = {variant: mean(each) for variant, each in runs.items()}
        cells: list[Cell] = []
        for variant in labels:
            cells += [means.get(variant), deviation(runs.get(variant, ()))]
        rows.append((data.title(task), *cells, seeds))
        best.append(f"{task}: {labels[max(means, key=means.__getitem__)]}")
        series[task] = {labels[variant]: score for variant, score in means.items()}
    columns = [column for label in labels.values() for column in (label, f"± {label}")]
    return Exhibit(
        name=name,
        title=title,
        paper=paper,
        columns=("task", *columns, "seeds"),
        rows=tuple(rows),
        notes=(f"The best here: {'; '.join(best) or 'none'}. {note}",),
        draw=(lambda figure: _draw_variants(figure, series, list(labels.values()))) if series else None,
    )


def weights_exhibit(results: Sequence[Measured], name: str = "weights") -> Exhibit:
    """Figure 2: the learned layer weights of every task and place; the mean over the seeds."""
    shares: dict[tuple[str, str], list[tuple[list[float], float]]] = defaultdict(list)
    for result in results:
        if result.variant in (ELMO.name, "both", "output"):
            for place, mix in result.mix.items():
                where = place if result.variant != "both" else f"{place} (of both)"
                shares[result.task, where].append((mix["s"], mix["gamma"]))
    depth = max((len(s) for runs in shares.values() for s, _ in runs), default=0)
    rows: list[tuple[Cell, ...]] = []
    for (task, place), runs in sorted(shares.items()):
        means = [statistics.mean(s[layer] for s, _ in runs) for layer in range(depth)]
        rows.append((task, place, *means, statistics.mean(gamma for _, gamma in runs), len(runs)))
    return Exhibit(
        name=name,
        title="The layer weights that the tasks learned",
        paper="Figure 2",
        columns=("task", "place", *(f"layer {layer}" for layer in range(depth)), "gamma", "runs"),
        rows=tuple(rows),
        notes=(
            "The s_j sum to one; they begin even. The paper: at the input the first LSTM layer is favoured, at "
            "the output the weights stay nearly even.",
        ),
        draw=(lambda figure: _draw_weights(figure, rows, depth)) if rows else None,
        digits=3,
    )


def _draw_gains(figure: Any, tasks: Sequence[tuple[str, list[Measured], list[Measured]]]) -> None:
    axes = figure.subplots()
    names, without, with_elmo = zip(*tasks)
    for number, (kind, runs) in enumerate((("baseline", without), ("+ ELMo", with_elmo))):
        places = [x + (number - 0.5) * 0.2 for x in range(len(tasks))]
        axes.errorbar(
            places,
            [mean(r) for r in runs],
            yerr=[deviation(r) or 0.0 for r in runs],
            fmt=MARKERS[number],
            color=COLOURS[number],
            markeredgecolor=INK,
            capsize=3,
            label=kind,
        )
    axes.set_xticks(range(len(tasks)), names)
    axes.set(xlabel="task", ylabel="score on dev (%)")
    plain(axes)
    legend_below(figure, axes.get_legend_handles_labels()[0])


def _draw_variants(figure: Any, series: dict[str, dict[str, float]], labels: Sequence[str]) -> None:
    drawn: dict[str, Any] = {}  # of all panels: the first may lack a variant
    for axes, (task, scores) in zip(panels(figure, len(series)), series.items()):
        for label, score in scores.items():
            number = labels.index(label)
            style = {"color": COLOURS[number], "markeredgecolor": INK, "ms": 9, "label": label}
            (drawn[label],) = axes.plot(number, score, MARKERS[number], **style)
            axes.annotate(f"{score:.1f}", (number, score), textcoords="offset points", xytext=(0, 7), ha="center")
        axes.margins(0.2)
        axes.set_xticks([])
        axes.set(xlabel=task, ylabel="score on dev (%)")
        plain(axes, grid="y")
    legend_below(figure, [drawn[label] for label in labels if label in drawn])


def _draw_weights(figure: Any, rows: Sequence[tuple[Cell, ...]], depth: int) -> None:
    figure.set_size_inches(6.4, 1.2 + 0.32 * len(rows))
    axes = figure.subplots()
    values = [[float(cell) for cell in row[2 : 2 + depth]] for row in rows]  # type: ignore[arg-type]
    most = max(2 / depth, *map(max, values))  # even weights are in the middle of the colours
    image = axes.imshow(values, cmap="cividis", vmin=0, vmax=most, aspect="auto")
    for y, line in enumerate(values):
        for x, value in enumerate(line):
            ink = "#ffffff" if value < most / 2 else "#101010"  # of the cell, whatever the page's is
            axes.text(x, y, f"{value:.2f}", ha="center", va="center", color=ink)
    axes.set_xticks(range(depth), [f"layer {layer}" for layer in range(depth)])
    axes.set_yticks(range(len(rows)), [f"{row[0]}, {row[1]}" for row in rows])
    axes.set(xlabel="layer of the biLM", ylabel="task and place")
    figure.colorbar(image, ax=axes, label="weight s_j")
