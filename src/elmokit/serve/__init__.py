"""Contextual vectors over HTTP: `app` makes the service, `elmo serve` runs it, `client.py` speaks to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastapi import FastAPI

    from elmokit.embed.embedder import Elmo
    from elmokit.serve.limits import Limits
    from elmokit.tasks.model import TaskModel


def app(
    models: Mapping[str, Elmo] | Sequence[str | Path] = ("en-small",),
    *,
    tasks: Mapping[str, TaskModel | str | Path] | None = None,
    indexes: Sequence[str | Path] = (),
    limits: Limits | None = None,
    api_keys: Sequence[str] = (),
    cors_origins: Sequence[str] = (),
    play: bool = False,
    **options: Any,
) -> FastAPI:
    """The service as an ASGI application, for any server of such: `elmo serve` runs it by uvicorn.

        import elmokit.serve
        application = elmokit.serve.app(models=["en-small", "my=runs/my-elmo"])

    models        by name: open ones, or what `Elmo.from_pretrained` opens, perhaps as "name=source". The first
                  answers requests that name none.
    tasks         trained tasks by name, open or by their folders: POST /v1/tasks/NAME.
    indexes       folders that `elmo index build` made with one of the models: POST /v1/neighbours.
    limits        how much is taken at once: `elmokit.serve.limits.Limits`.
    api_keys      requests must have one of them (Authorization: Bearer KEY); none: everybody may ask.
    cors_origins  pages of these origins may ask from a browser.
    play          what the playground compares a reader's sentences with is read before the first one comes.
    options       weights=, batch_tokens= and other options of `Elmo`, for the models that are opened here.
    """
    from elmokit.serve.extra import check_extra

    check_extra()
    from elmokit.serve.application import make_application
    from elmokit.serve.limits import Limits
    from elmokit.serve.offer import Offer

    offer = Offer.opened(models, tasks or {}, indexes, options)
    return make_application(offer, limits or Limits(), tuple(api_keys), tuple(cors_origins), play)
