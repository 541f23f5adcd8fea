"""What a report is made from: the choices, the data, the open model; and how its commands are written."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from elmokit.analysis.probes.sense_corpus import SenseCorpus, read_senses
from elmokit.embed.embedder import Elmo
from elmokit.errors import UserError
from elmokit.progress import OnProgress
from elmokit.study.data import StudyData, missing
from elmokit.study.experiments import SHARES

CONTEXTS = 200_000


@dataclass(frozen=True)
class ReportPlan:
    """Names and folders as they were given: they stand in the commands."""

    model: str
    folder: str  # of the data
    data: StudyData
    layout: str | None = None
    runs: Path | None = None  # what `elmo study` has done
    index: Path | None = None  # of contexts, in place of reading the corpus
    contexts: int = CONTEXTS  # words of the corpus that are compared, where there is no index
    limit: int | None = None  # training sentences of the probes
    shares: tuple[float, ...] = SHARES
    seed: int = 0

    @property
    def seeded(self) -> tuple[object, ...]:
        """Options of a command that chooses by the seed."""
        return ("--seed", self.seed) if self.seed else ()

    @property
    def limited(self) -> tuple[object, ...]:
        """Options of a probe that learns from some of the sentences."""
        return (*(("--limit", self.limit) if self.limit else ()), *self.seeded)

    def command(self, *parts: object) -> str:
        return "elmo " + " ".join(shlex.quote(str(part)) for part in parts)


@dataclass(frozen=True)
class Material:
    """What every section is made from."""

    plan: ReportPlan
    elmo: Elmo
    on_progress: OnProgress

    @property
    def data(self) -> StudyData:
        return self.plan.data

    @cached_property
    def sense_corpus(self) -> SenseCorpus:
        """Read once, where two sections need it."""
        assert self.data.senses is not None
        return read_senses(self.data.senses.train)

    def static_vectors(self) -> tuple[str | None, list[str]]:
        """The file of static vectors to compare with; where there is none, a note of it."""
        try:
            need("vectors", self.data.vectors)
        except UserError as error:
            return None, [f"Without static vectors: {error}."]
        return self.data.vectors, []


def need(what: str, *paths: str | None) -> None:
    """The data must name the first of these files, and those that it names must be there."""
    absent = missing(*paths)
    if not paths or paths[0] is None:
        raise UserError(f"the data names no {what}")
    if absent:
        raise UserError(f"there is no file {absent[0]}")
