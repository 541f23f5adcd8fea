"""How training goes, on disk: metrics.jsonl always; TensorBoard events and a curve with the extra `train`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any

FILE, EVENTS, CURVE = "metrics.jsonl", "tensorboard", "curve.png"
BLUE, ORANGE = "#0072B2", "#D55E00"
PERPLEXITIES = {
    "perplexity": ("-o", "held-out perplexity, both directions"),
    "perplexity_forward": ("--", "forward"),
    "perplexity_backward": (":", "backward"),
}
NEED_EXTRA = "pip install 'elmokit[train]'"


class Metrics:
    """One JSON object per line. `length` is how far the file goes at a checkpoint, to resume from there."""

    def __init__(self, folder: Path, length: int = 0) -> None:
        self.path = folder / FILE
        self.path.touch()
        os.truncate(self.path, min(length, self.path.stat().st_size))  # what came after the checkpoint comes again
        self._file = self.path.open("ab")
        self._events = _event_writer(folder / EVENTS)

    def __enter__(self) -> Metrics:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        if self._events is not None:
            self._events.close()

    def write(self, **values: float) -> None:
        self._file.write((json.dumps(values) + "\n").encode())
        self._file.flush()
        if self._events is not None:
            for name in values.keys() - {"step", "tokens"}:
                self._events.add_scalar(name, values[name], int(values["tokens"]))

    @property
    def length(self) -> int:
        return self._file.tell()


def read_metrics(folder: Path) -> list[dict[str, float]]:
    with (folder / FILE).open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def draw_curve(folder: Path) -> Path | None:
    """Loss and held-out perplexity against tokens seen, as PNG; None where matplotlib is missing."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    rows = read_metrics(folder)
    figure = Figure(figsize=(8, 4.8), layout="constrained")
    loss = figure.add_subplot()
    trained = [(row["tokens"] / 1e6, row["loss"]) for row in rows if "loss" in row]
    drawn = loss.plot(*_columns(trained), color=BLUE, lw=1, label="training loss (left)")
    loss.set_xlabel("tokens seen (millions)")
    loss.set_ylabel("training loss (nats)", color=BLUE)
    loss.grid(axis="x", alpha=0.3)
    if any("perplexity" in row for row in rows):
        drawn += _draw_perplexity(loss.twinx(), [row for row in rows if "perplexity" in row])
    figure.legend(handles=drawn, loc="outside lower center", ncols=2, frameon=False)
    path = folder / CURVE
    figure.savefig(path, dpi=120)
    return path


def _draw_perplexity(axes: Any, rows: list[dict[str, float]]) -> list[Any]:
    """On a log scale with a tick at 1, 2, 5, 10 ..., written out: a fall from 900 to 300 has few powers of ten."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    drawn: list[Any] = []
    for name, (style, label) in PERPLEXITIES.items():
        points = [(row["tokens"] / 1e6, row[name]) for row in rows]
        drawn += axes.plot(*_columns(points), style, color=ORANGE, label=f"{label} (right)", markersize=3, lw=1.2)
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    subs = (1, 2, 5) if high > 4 * low else (1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9)
    axes.yaxis.set_major_locator(LogLocator(subs=subs, numticks=20))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel("held-out perplexity (full softmax)", color=ORANGE)
    axes.grid(axis="y", alpha=0.3)
    return drawn


def _columns(points: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _event_writer(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder))
