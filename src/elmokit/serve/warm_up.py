"""Once, before the first request: what libraries load and reserve at first use is in place by then.

So the first client waits no longer than others, and the memory that a server has when it begins to listen is about
what it will need.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain

import numpy as np

from elmokit.errors import UserError
from elmokit.pretrain.perplexity import fill, score
from elmokit.serve.logs import log_error
from elmokit.serve.offer import Offer

WELL = ["He", "sat", "on", "the", "bank", "."]
GAP = ["He", "sat", "___", "."]
TEXT = "He [sat] on the bank ."  # with a predicate, for tasks that want one


def bound_libraries() -> None:
    """Before the first computation, in a process that shall run for months.

    oneDNN keeps a program for each of the last 1,024 shapes that it has met, and requests come in all shapes.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")


def warm_up(offer: Offer, besides: Iterable[Callable[[], object]] = ()) -> None:
    """One call of each kind, in the thread that will compute. What fails here fails for whoever asks for it."""
    for call in chain(_calls(offer), besides):
        try:
            call()
        except UserError:
            pass  # a task that wants texts of another form
        except Exception as error:
            log_error("warm_up", error)


def _calls(offer: Offer) -> Iterator[Callable[[], object]]:
    for elmo in offer.models.values():
        yield partial(elmo.embed_batch, [WELL] * 8)
        if elmo.predicts:
            yield partial(fill, elmo, GAP)
            yield partial(list, score(elmo, [WELL]))
    for index in offer.indexes.values():
        vector = np.ones(index.facts.width, dtype=np.float32)
        yield partial(index.nearest, vector, index.facts.which_layers[0], 1)
    for task in offer.tasks.values():
        yield partial(task.annotate, [TEXT])
