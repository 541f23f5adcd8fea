"""Tasks with and without ELMo: a task is one file and one line here."""

from __future__ import annotations

import importlib
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


def task_class(name: str) -> type[Task[Any]]:
    if name not in TASKS:
        raise UserError(f"unknown task {name!r}: {suggest(name, TASKS)}")
    entry = TASKS[name]
    if not isinstance(entry, str):
        return entry
    module, _, attribute = entry.partition(":")
    found: type[Task[Any]] = getattr(importlib.import_module(module), attribute)
    return found
