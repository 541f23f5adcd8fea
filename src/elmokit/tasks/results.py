"""What a run that is finished leaves: its results as a table, and the curve of its epochs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elmokit.tasks.layer_cache import LayerCache
from elmokit.tasks.model import TaskModel
from elmokit.tasks.progress import Epoch
from elmokit.tasks.task import Task


def results_table(
    model: TaskModel, best: Epoch, epochs: Sequence[Epoch], dev: Sequence[Any], cache: LayerCache | None
) -> dict[str, Any]:
    """model    the best epoch's."""
    predictions = model.predict(dev, cache)
    return {
        "task": model.task.name,
        "metric": model.task.metric,
        "best": best._asdict(),
        "score": best.scores[model.task.metric],
        "epochs": [epoch._asdict() for epoch in epochs],
        "seconds": sum(epoch.seconds for epoch in epochs),
        "parameters": sum(p.numel() for p in model.network.parameters() if p.requires_grad),
        "mix": model.network.inputs.shares(),
        "by_label": model.task.by_label(predictions, dev),
        "ceilings": model.task.ceilings(model, dev, cache),
    }


def draw_curve(epochs: Sequence[Epoch], task: Task[Any], path: Path) -> None:
    """Loss and score by epoch; without matplotlib (extra `train`) there is none."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return
    figure = Figure(figsize=(7, 4), layout="constrained")
    left = figure.subplots()
    right = left.twinx()
    numbers = [epoch.epoch for epoch in epochs]
    left.plot(numbers, [epoch.loss for epoch in epochs], color="#D55E00", marker="s", label="training loss")
    scores = [epoch.scores[task.metric] for epoch in epochs]
    right.plot(numbers, scores, color="#0072B2", marker="o", label=f"dev {task.metric}")
    left.set(xlabel="epoch", ylabel="training loss")
    right.set_ylabel(f"dev {task.metric} (%)")
    lines = [*left.get_lines(), *right.get_lines()]
    left.legend(lines, [str(line.get_label()) for line in lines], frameon=False, loc="center right")
    left.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
