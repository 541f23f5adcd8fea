"""How training goes, on disk: metrics.jsonl always; TensorBoard events and a curve with the extra `train`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any

FILE, EVENTS, CURVE = "metrics.jsonl", "tensorboard", "curve.png"
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
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    trained = [row for row in rows if "loss" in row]
    axes.plot([row["tokens"] / 1e6 for row in trained], [row["loss"] for row in trained], color="#0072B2", lw=1)
    axes.set_xlabel("tokens seen (millions)")
    axes.set_ylabel("training loss (nats)", color="#0072B2")
    measured = [row for row in rows if "perplexity" in row]
    if measured:
        right = axes.twinx()
        styles = {
            "perplexity": ("-o", "both"),
            "perplexity_forward": ("--", "forward"),
            "perplexity_backward": (":", "backward"),
        }
        for name, (style, label) in styles.items():
            points = [(row["tokens"] / 1e6, row[name]) for row in measured]
            right.plot(*zip(*points), style, color="#D55E00", label=label, markersize=3, lw=1.2)
        right.set_yscale("log")
        right.set_ylabel("held-out perplexity (full softmax)", color="#D55E00")
        right.legend(frameon=False)
    axes.grid(alpha=0.3)
    path = folder / CURVE
    figure.savefig(path, dpi=120)
    return path


def _event_writer(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder))
