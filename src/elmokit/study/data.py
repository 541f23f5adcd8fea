"""Which files of a folder the experiments use: its own study.toml, or the layout of the data pack."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from elmokit.analysis.probes.pairs import bundled
from elmokit.config import build, read_toml, suggest
from elmokit.data import STUDIES
from elmokit.errors import UserError
from elmokit.tasks import known_tasks

OWN = "study.toml"
PACKS = {path.stem: path for path in sorted(STUDIES.glob("*.toml"))}


@dataclass(frozen=True)
class TaskData:
    train: str
    dev: str
    title: str = ""
    limit: int | None = None  # training examples; all by default
    paper: float | None = None  # the paper's relative error reduction, per cent
    settings: tuple[str, ...] = ()  # KEY=VALUE on top of the recipe


@dataclass(frozen=True)
class TagData:
    train: str
    dev: str
    column: str = "upos"


@dataclass(frozen=True)
class SenseData:
    train: str
    tests: tuple[str, ...]
    index: str | None = None  # WordNet's index.sense


@dataclass(frozen=True)
class StudyData:
    """Paths as they are opened: the folder's own in front of those that the table names."""

    tasks: dict[str, Any] = field(default_factory=dict)  # name -> TaskData
    vectors: str | None = None  # static word vectors: the baseline's x_k
    corpus: str | None = None  # plain text, for nearest contexts
    queries: tuple[str, ...] = ()  # sentences with a [marked] word, whose nearest contexts are looked for
    words: tuple[str, ...] = ()  # whose occurrences are drawn, of the sense-tagged corpus or else the text
    pairs: str | None = None  # words in two senses each, as `elmo probe pairs` reads; en, ko: the bundled ones
    tags: TagData | None = None
    senses: SenseData | None = None

    def task(self, name: str) -> TaskData:
        if name not in self.tasks:
            raise UserError(f"the data has no task {name!r}: {suggest(name, self.tasks)}")
        found: TaskData = self.tasks[name]
        return found

    def choose(self, names: list[str] | None) -> list[str]:
        """These tasks, each once, or all whose files are there."""
        if names:
            for name in names:
                absent = missing(self.task(name).train, self.task(name).dev)
                if absent:
                    raise UserError(f"{name}: there is no file {absent[0]}")
            return list(dict.fromkeys(names))
        return [n for n in self.tasks if not missing(self.tasks[n].train, self.tasks[n].dev)]

    def title(self, name: str) -> str:
        """As people see a task; one that only a folder of runs knows has its name alone."""
        return self.task(name).title or name if name in self.tasks else name

    def paper(self, name: str) -> float | None:
        return self.task(name).paper if name in self.tasks else None

    def facts(self, name: str) -> dict[str, Any]:
        """What a task's runs are made of: files by name and size, for data may move; none that is not there."""
        task = self.task(name)
        files = {"training file": task.train, "dev file": task.dev, "vectors": self.vectors}
        known = {kind: path and _described(path) for kind, path in files.items() if not missing(path)}
        return {**known, "limit": task.limit, "settings": list(task.settings)}


def open_data(folder: str | Path, layout: str | None = None) -> StudyData:
    """
    layout  a file like study.toml in place of the folder's own, or en or ko: the data pack's. By default the
            folder's own, else en.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"{folder} is no folder: --data expects one with {OWN}, or laid out as the guide says")
    path = PACKS.get(layout, Path(layout)) if layout else folder / OWN
    if layout is None and not path.is_file():
        path = PACKS["en"]
    if not path.is_file():
        raise UserError(f"layout: expected {' or '.join(PACKS)} or a file, found {layout!r}")
    table = read_toml(path)
    tasks = table.pop("tasks", {})
    if not isinstance(tasks, dict):
        raise UserError(f"{path}: expected tables [tasks.NAME], found tasks = {tasks!r}")
    for name in tasks:
        if name not in known_tasks():
            raise UserError(f"{path}: unknown task {name!r}: {suggest(name, known_tasks())}")

    def here(name: str) -> str:
        return str(folder / name)

    try:
        data = build(StudyData, table)
        read = {name: build(TaskData, entry, f"tasks.{name}") for name, entry in tasks.items()}
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    tags, senses = data.tags, data.senses
    return replace(
        data,
        tasks={name: replace(t, train=here(t.train), dev=here(t.dev)) for name, t in read.items()},
        vectors=data.vectors and here(data.vectors),
        corpus=data.corpus and here(data.corpus),
        pairs=data.pairs and (data.pairs if bundled(data.pairs) else here(data.pairs)),
        tags=tags and replace(tags, train=here(tags.train), dev=here(tags.dev)),
        senses=senses
        and replace(
            senses,
            train=here(senses.train),
            tests=tuple(map(here, senses.tests)),
            index=senses.index and here(senses.index),
        ),
    )


def _described(path: str) -> str:
    return f"{Path(path).name} of {Path(path).stat().st_size} bytes"


def missing(*paths: str | None) -> list[str]:
    """Of the files that are asked for, those that are not there; one that was not named is missed by nobody."""
    return [path for path in paths if path is not None and not Path(path).is_file()]
