"""Bars on standard error: how far the work is. One whose work failed does not stay above the error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from elmokit.progress import OnProgress, Progress

if TYPE_CHECKING:
    import rich.progress


@contextmanager
def live_bar(*columns: rich.progress.ProgressColumn, disable: bool = False) -> Iterator[rich.progress.Progress]:
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(*columns, console=Console(stderr=True), disable=disable) as bar:
        try:
            yield bar
        except BaseException:
            bar.live.transient = True
            raise


@contextmanager
def progress() -> Iterator[OnProgress]:
    """The stage, a bar, how many of how many, the time left."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with live_bar(*columns) as bar:
        task = bar.add_task("reading", total=None)

        def on_progress(now: Progress) -> None:
            if bar.tasks[0].description != now.stage:
                bar.reset(task, description=now.stage, total=now.total)  # a stage has a pace of its own
            bar.update(task, completed=now.done, total=now.total)

        yield on_progress
