"""`Study`: one of the paper's experiments with tasks for any model, from the choice of tasks to its tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from elmokit.config import suggest
from elmokit.embed.embedder import Elmo
from elmokit.errors import UserError
from elmokit.show.exhibit import Exhibit
from elmokit.study.data import open_data
from elmokit.study.experiments import EXPERIMENTS, RECIPE, SHARES, check_shares
from elmokit.study.markdown import check_page, put_into_page
from elmokit.study.runs import Measured, Trial
from elmokit.study.sweep import Sweep


class Study:
    """Made, it is checked, and its folder is claimed; nothing has run. `run` begins, and begins again where it was
    stopped: what is done, also by another study of the same folder, is not done again.

    what       tasks, weighting, placement or samples.
    model      a name or folder, as `Elmo.from_pretrained` takes it: every run opens it for itself.
    data       a folder with a study.toml, or laid out as the data pack is.
    out        the folder of the runs; studies of one model share it.
    layout     which files are for what: a file like study.toml, or en or ko of the data pack.
    tasks      by default the paper's choice of those whose files are there, or all where it has none of these.
    seeds      runs of each variant: by default 3 of tasks, else 1.
    shares     samples: of the training data.
    settings   KEY=VALUE on top of the recipe, for every run.
    cache      where the biLM's layers are kept.
    page       a Markdown page, which gets the tables, each between its two marks.
    """

    def __init__(
        self,
        what: str,
        model: str | Path,
        *,
        data: str | Path,
        out: str | Path,
        layout: str | None = None,
        tasks: Sequence[str] | None = None,
        seeds: int | None = None,
        shares: Sequence[float] = SHARES,
        recipe: str = RECIPE,
        settings: Sequence[str] = (),
        cache: str | Path | None = None,
        page: str | Path | None = None,
    ) -> None:
        if what not in EXPERIMENTS:
            raise UserError(f"unknown study {what!r}: {suggest(what, EXPERIMENTS)}")
        self.experiment = EXPERIMENTS[what]
        self.data, self.shares = open_data(data, layout), check_shares(shares)
        self.page = None if page is None else Path(page)
        if self.page is not None:
            check_page(self.page, [e.name for e in self.experiment.exhibits([], self.data, self.shares)])
        self.notes: list[str] = []  # what a user should know: of the choice of tasks, of tables without a place
        self.failed: list[Trial] = []
        self.sweep = Sweep(
            Path(out),
            self.data,
            self._choose(tasks),
            self.experiment.variants(self.shares),
            model=str(model),
            digest=Elmo.from_pretrained(model).digest,
            seeds=self.experiment.seeds if seeds is None else seeds,
            recipe=recipe,
            settings=settings,
            cache=None if cache is None else Path(cache),
        )

    @property
    def trials(self) -> list[Trial]:
        return self.sweep.trials

    @property
    def stopped(self) -> bool:
        return self.sweep.stopped

    def run(
        self,
        jobs: int | None = None,
        on_trial: Callable[[Trial, Measured | None], None] = lambda trial, measured: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> list[Exhibit]:
        """Run what is not done; the tables and figures of all that is done, though runs failed (see `failed`).

        jobs       runs at a time, one thread each; by default the number of cores.
        on_trial   told of every run that ends: what it came to, or None where it failed.
        stop       asked again and again; where it says so, the runs at hand end, and keep the epochs they have.
        """
        self.failed = self.sweep.run(jobs or os.cpu_count() or 1, on_trial, stop)
        exhibits = self.exhibits()
        if self.page is not None and exhibits:
            for name in put_into_page(self.page, exhibits):
                self.notes.append(f"{self.page} has no line <!-- {name} -->: its table is left out")
        return exhibits

    def exhibits(self) -> list[Exhibit]:
        """Of all that is done; one without rows is left out."""
        made = self.experiment.exhibits(self.sweep.results(), self.data, self.shares)
        return [exhibit for exhibit in made if exhibit.rows]

    def _choose(self, tasks: Sequence[str] | None) -> list[str]:
        if tasks is not None:
            return self.data.choose(list(tasks))
        chosen, usual = self.experiment.usual(self.data.choose(None)), self.experiment.tasks
        if usual is not None and chosen and not set(chosen) & set(usual):
            self.notes.append(
                f"the data has none of {', '.join(usual)}: taking {', '.join(chosen)}; --tasks chooses"
            )
        return chosen
