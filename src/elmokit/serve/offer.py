"""What a server has to offer: models, trained tasks and indexes, each by its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elmokit.analysis.contexts.index import ContextIndex
from elmokit.config import suggest
from elmokit.embed.embedder import Elmo
from elmokit.errors import UserError, clipped
from elmokit.serve.limits import Refused
from elmokit.tasks.model import TaskModel


@dataclass(frozen=True)
class Offer:
    models: dict[str, Elmo]
    tasks: dict[str, TaskModel] = field(default_factory=dict)
    indexes: dict[str, ContextIndex] = field(default_factory=dict)  # by the name of the model that they are of

    @classmethod
    def opened(
        cls,
        models: Mapping[str, Elmo] | Sequence[str | Path],
        tasks: Mapping[str, TaskModel | str | Path],
        indexes: Sequence[str | Path],
        options: Mapping[str, Any],
    ) -> Offer:
        if isinstance(models, Mapping):
            opened = dict(models)
        else:
            opened = {}
            for name, source in map(named, [models] if isinstance(models, (str, Path)) else models):
                if name in opened:
                    raise UserError(f"two models are called {name}: give one another name, other={source}")
                opened[name] = Elmo.from_pretrained(source, **options)
        if not opened:
            raise UserError("expected a model to serve, found none")
        for name, elmo in opened.items():
            if elmo.state_name == "carry":
                raise UserError(
                    f'{name}: state="carry" would mix the texts of those who ask: expected zero or warm'
                )
        own = {name: task if isinstance(task, TaskModel) else TaskModel.load(task) for name, task in tasks.items()}
        return cls(opened, own, dict(_index(folder, opened) for folder in indexes))

    @property
    def first(self) -> str:
        return next(iter(self.models))

    def model(self, name: str | None) -> tuple[str, Elmo]:
        name = self.first if name is None else name
        if name not in self.models:
            raise Refused(
                404,
                "model_not_found",
                f"no model is called {clipped(name)!r}: {_known(name, self.models)}",
                param="model",
            )
        return name, self.models[name]

    def task(self, name: str) -> TaskModel:
        if name not in self.tasks:
            known = (
                _known(name, self.tasks) if self.tasks else "give trained ones at the start, --task NAME=FOLDER"
            )
            raise Refused(404, "task_not_found", f"no task is called {clipped(name)!r}: {known}")
        return self.tasks[name]

    def index(self, name: str | None) -> tuple[str, Elmo, ContextIndex]:
        """Of a model; where none is named, the first that has one."""
        name, elmo = self.model(next(iter(self.indexes), None) if name is None else name)
        if name not in self.indexes:
            raise Refused(404, "index_not_found", f"no index of {name} is served: give one at the start, --index")
        return name, elmo, self.indexes[name]


def named(source: str | Path) -> tuple[str, str]:
    """ "name=folder", a bundled name or a hub's as they are; a folder by its last part."""
    name, equals, rest = str(source).partition("=")
    if equals and name and rest and "/" not in name:
        return name, rest
    path = Path(source)
    if path.is_dir():
        path = path.resolve()
        return (path.parent.name if path.name == "model" else path.name), str(source)
    return str(source), str(source)


def _index(folder: str | Path, models: Mapping[str, Elmo]) -> tuple[str, ContextIndex]:
    index = ContextIndex.open(folder)
    for name, elmo in models.items():
        if index.facts.model == elmo.digest:
            index.check(elmo)
            return name, index
    raise UserError(
        f"{folder} was built with a model that is not served (its digest is {index.facts.model[:12]}): "
        f"serve that one too, or build an index with one of {', '.join(models)}"
    )


def _known(name: str, names: Mapping[str, object]) -> str:
    return suggest(name[:100], names)
