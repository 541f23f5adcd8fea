"""In a task: what trained models predict for the sentence, those with ELMo beside those without."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field

from elmokit.embed.arrays import as_half
from elmokit.embed.embedder import Elmo
from elmokit.errors import UserError
from elmokit.serve.play.bundled_tasks import BundledTask, bundled_pairs, bundled_tasks
from elmokit.serve.play.gallery import language_of
from elmokit.serve.play.playground import Playground
from elmokit.serve.play.rooms.start import Sentences
from elmokit.sources.bundled import bundled_names
from elmokit.tasks.layer_cache import LayerCache
from elmokit.tasks.model import TaskModel
from elmokit.tasks.nn.classifier import Classifier
from elmokit.tasks.spans import spans_of
from elmokit.tasks.task import BETWEEN
from elmokit.text.tokens import make_tokenizer

# Fifteen lines that put ELMo into a model: shown to be copied, and run by tests/test_play_task.py.
CODE = """\
import torch
from torch import nn
from elmokit import Elmo

elmo = Elmo.from_pretrained("en-small")

class Tagger(nn.Module):
    def __init__(self, words, tags):
        super().__init__()
        self.words = nn.Embedding(words, 100)  # x_k
        self.elmo = elmo.layer()  # learns s_j and gamma; the biLM is frozen
        self.rnn = nn.LSTM(100 + elmo.width, 100, bidirectional=True, batch_first=True)
        self.out = nn.Linear(200, tags)

    def forward(self, words, sentences):
        (elmo_k,), mask, _ = self.elmo(elmo.ids(sentences))
        x = torch.cat([self.words(words), elmo_k], dim=-1)  # [x_k ; ELMo_k]
        return self.out(self.rnn(x)[0])
"""


class Request(Sentences):
    wa: int = Field(ge=-1, le=10_000)
    wb: int = Field(ge=-1, le=10_000)
    side: Literal["a", "b"] = "a"


def questions(a: str, b: str, wa: int, wb: int) -> list[dict[str, Any]]:
    """What the page asks, by either sentence: for an export."""
    return [{"a": a, "b": b, "wa": wa, "wb": wb, "side": side} for side in ("a", "b")]


def answer(playground: Playground, request: Request) -> dict[str, Any]:
    text, other = (request.a, request.b) if request.side == "a" else (request.b, request.a)
    if not make_tokenizer("words").tokens(text):
        which = {"a": "first", "b": "second"}[request.side]
        raise UserError(f"expected a {which} sentence for the tasks to read, found none")
    name, elmo = playground.model_for(text)
    at = request.wa if request.side == "a" else request.wb
    given = playground.offer.tasks
    if given:
        cards = [
            {
                "name": task,
                "pair": None,
                **_facts(model),
                **_of_run(model),
                **_shown(model, _line(model, text, other, at)),
            }
            for task, model in given.items()
        ]
    else:
        bundled = bundled_tasks(elmo)
        once = _read_once(elmo, text) if bundled else None
        cards = [
            {
                "name": None,
                "pair": task.pair,
                **_facts(task.model),
                **_of_bundle(task),
                **_shown(task.model, text, once),
            }
            for task in bundled
        ]
    known = name if name in bundled_names() else "en-small"
    return {
        "side": request.side,
        "model": name,
        "language": language_of(text),
        "given": bool(given),
        "tasks": cards,
        "bundled_for": [pair["model"] for pair in bundled_pairs()],
        "code": CODE.replace("en-small", known),
    }


def _facts(model: TaskModel) -> dict[str, Any]:
    mixes = model.network.inputs.shares()
    return {"task": model.task.name, "elmo": model.elmo is not None, "mix": mixes.get("input")}


def _of_run(model: TaskModel) -> dict[str, Any]:
    """Its score on dev, where its run is beside it."""
    results = model.results or {}
    return {"metric": model.task.metric, "score": results.get("score")}


def _of_bundle(task: BundledTask) -> dict[str, Any]:
    return {"metric": task.metric, "score": task.score}


def _line(model: TaskModel, text: str, other: str, at: int) -> str:
    """The sentence as the task reads it: with its predicate, or with the other sentence where it wants two."""
    if model.task.name == "srl":
        spans = make_tokenizer("words").spans(text)
        if 0 <= at < len(spans):  # else the task says what it expects
            start, end = spans[at]
            return f"{text[:start]}[{text[start:end]}]{text[end:]}"
    if model.task.name in ("entailment", "squad"):
        return f"{text} {BETWEEN} {other}"
    return text


def _read_once(elmo: Elmo, text: str) -> LayerCache:
    """The layers of the sentence, for all tasks that share a biLM: in memory what is on disk in training."""
    tokens = make_tokenizer("words").tokens(text)  # as TaskModel.examples cuts it
    (layers,) = elmo.embed([tokens])
    return LayerCache(as_half(layers).swapaxes(0, 1), {tuple(tokens): (0, len(tokens))}, Path())


@torch.no_grad()
def _shown(model: TaskModel, line: str, once: LayerCache | None = None) -> dict[str, Any]:
    """The prediction, as one of: labelled spans of tokens, a label with its probabilities, text, what is wrong."""
    try:
        (example,) = model.examples([line])
    except UserError as error:
        return {"kind": "trouble", "text": str(error).removeprefix("item 1: ")}
    model.network.eval()
    batch = model.batch([example], once)
    output = model.network(batch)
    (prediction,) = model.network.decode(output, batch)
    if isinstance(model.network, Classifier):
        (table,) = model.network.probabilities(output)
        return {"kind": "label", "label": prediction, "probabilities": [[label, p] for label, p in table.items()]}
    if model.task.name in ("ner", "srl"):
        (tokens,) = model.task.sentences(example)
        spans = [{"start": start, "end": end, "type": kind} for start, end, kind in spans_of(prediction)]
        return {"kind": "spans", "tokens": tokens, "spans": spans}
    return {"kind": "text", "text": model.task.show(example, prediction)}
