"""How far a piece of work has come: one event and one callback for all that takes its time.

Work that knows more of itself has an event of its own, made from this one: a callback that shows stage and
fraction serves everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import ProgressColumn

Item = TypeVar("Item")
P = TypeVar("P", bound="Progress")


@dataclass(frozen=True)
class Progress:
    stage: str  # "embedding", "fitting"
    done: float = 0.0
    total: float = 0.0  # 0: not known, or nothing to count

    @classmethod
    def at(cls: type[P], stage: str, fraction: float | None, **more: Any) -> P:
        """Where there is a share of the whole, and no count."""
        return cls(stage, fraction or 0.0, 0.0 if fraction is None else 1.0, **more)

    @property
    def fraction(self) -> float | None:
        return self.done / self.total if self.total else None


OnProgress = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """The callback of a caller who has none."""


def watched(items: Iterable[Item], total: int, stage: str, on_progress: OnProgress) -> Iterator[Item]:
    """The items, each reported when whoever takes them asks for the next."""
    on_progress(Progress(stage, 0, total))
    for done, item in enumerate(items, start=1):
        yield item
        on_progress(Progress(stage, done, total))


@contextmanager
def terminal_bar() -> Iterator[OnProgress]:
    """On standard error, for as long as the block lasts: the stage, a bar, how many of how many, the time left."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with live_bar(*columns) as bar:
        task = bar.add_task("reading", total=None)

        def on_progress(now: Progress) -> None:
            if bar.tasks[0].description != now.stage:
                bar.reset(task, description=now.stage, total=now.total)  # a stage has a pace of its own
            bar.update(task, completed=now.done, total=now.total)

        yield on_progress


@contextmanager
def live_bar(*columns: ProgressColumn, disable: bool = False) -> Iterator[Bar]:
    """On standard error. One whose work failed does not stay above the error."""
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(*columns, console=Console(stderr=True), disable=disable) as bar:
        try:
            yield bar
        except BaseException:
            bar.live.transient = True
            raise
