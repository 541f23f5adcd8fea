"""Tasks with and without ELMo: those of the paper, of other packages, and your own by module:Class."""

from __future__ import annotations

import importlib
import os
import sys
from importlib import metadata
from typing import TYPE_CHECKING, Any

from elmokit.config import suggest
from elmokit.errors import UserError

if TYPE_CHECKING:
    from elmokit.tasks.task import Task

TASKS: dict[str, str | type[Task[Any]]] = {  # "module:Class", or the class itself
    "sentiment": "elmokit.tasks.sentiment.task:Sentiment",
    "entailment": "elmokit.tasks.entailment.task:Entailment",
    "ner": "elmokit.tasks.ner.task:NamedEntities",
    "srl": "elmokit.tasks.srl.task:SemanticRoles",
    "pos": "elmokit.tasks.pos.task:PartsOfSpeech",
    "squad": "elmokit.tasks.squad.task:QuestionAnswering",
    "coref": "elmokit.tasks.coref.task:Coreference",
}


GROUP = "elmokit.tasks"  # the entry points by which other packages bring tasks along


def known_tasks() -> dict[str, str | type[Task[Any]]]:
    """By name: ours, then those of installed packages; a package cannot replace one of ours."""
    return {point.name: point.value for point in metadata.entry_points(group=GROUP)} | TASKS


def task_class(task: str | type[Task[Any]]) -> type[Task[Any]]:
    """A name, `package.module:Class` (the current folder is looked in, too), or the class itself."""
    if not isinstance(task, str):
        return _checked(task, repr(task))
    if ":" in task:
        return _imported(task)
    known = known_tasks()
    if task not in known:
        own = "one of your own is package.module:Class"
        raise UserError(f"unknown task {task!r} ({own}): {suggest(task, known)}")
    entry = known[task]
    return _imported(entry) if isinstance(entry, str) else entry


def _imported(reference: str) -> type[Task[Any]]:
    name, _, attribute = reference.partition(":")
    if (here := os.getcwd()) not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)  # the command is a script: its own folder is on the path, not the user's
    try:
        module = importlib.import_module(name)
    except Exception as error:  # whatever the user's own module raises
        raise UserError(f"task {reference}: cannot be imported: {type(error).__name__}: {error}") from error
    if not hasattr(module, attribute):
        raise UserError(f"task {reference}: {module.__file__} has no {attribute!r}")
    return _checked(getattr(module, attribute), reference)


def _checked(found: Any, what: str) -> type[Task[Any]]:
    from elmokit.tasks.task import Task

    if not (isinstance(found, type) and issubclass(found, Task)):
        raise UserError(f"task {what}: expected a subclass of elmokit.tasks.task.Task, found {found!r}")
    return found


def task_of_folder(name: str, reference: str | None, given: str | type[Task[Any]] | None) -> type[Task[Any]]:
    """The class of a saved task. A file is not believed about which code to run: that of an own task is given."""
    if given is None and name not in known_tasks():
        yours = f"--task {reference}" if reference else "--task package.module:Class"
        raise UserError(
            f"it was trained as the task {name!r}, which is not installed here: give its class "
            f"({yours}, in Python task=). Its code will be run"
        )
    kind = task_class(name if given is None else given)
    if kind.name != name:
        raise UserError(f"it was trained as the task {name!r}, and the class that was given is {kind.name!r}")
    return kind
