"""Tasks with and without ELMo: a task is one file and one line here."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from elmokit.config import suggest

if TYPE_CHECKING:
    from elmokit.tasks.base import Task

TASKS: dict[str, str | type[Task[Any]]] = {  # "module:Class", or the class itself
    "sentiment": "elmokit.tasks.sentiment:Sentiment",
    "entailment": "elmokit.tasks.entailment:Entailment",
    "ner": "elmokit.tasks.ner:NamedEntities",
    "srl": "elmokit.tasks.srl:SemanticRoles",
    "pos": "elmokit.tasks.pos:PartsOfSpeech",
    "squad": "elmokit.tasks.squad:QuestionAnswering",
    "coref": "elmokit.tasks.coref:Coreference",
}


def task_class(name: str) -> type[Task[Any]]:
    if name not in TASKS:
        raise ValueError(f"unknown task {name!r}: {suggest(name, TASKS)}")
    entry = TASKS[name]
    if not isinstance(entry, str):
        return entry
    module, _, attribute = entry.partition(":")
    found: type[Task[Any]] = getattr(importlib.import_module(module), attribute)
    return found
