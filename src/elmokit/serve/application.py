"""The service as one ASGI application: endpoints, errors, the gate before them, and the batcher's life."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from fastapi import FastAPI, Security
from fastapi.security import HTTPBearer
from starlette.middleware.cors import CORSMiddleware

from elmokit import __version__
from elmokit.serve.batcher import Batcher
from elmokit.serve.direct import direct_handlers
from elmokit.serve.errors import add_handlers
from elmokit.serve.gate import Gate
from elmokit.serve.limits import Limits
from elmokit.serve.metrics import Metrics
from elmokit.serve.offer import Offer
from elmokit.serve.play.playground import Playground
from elmokit.serve.play.rehearsal import rehearsal
from elmokit.serve.routes.embeddings import embeddings_router
from elmokit.serve.routes.play import play_router
from elmokit.serve.routes.status import status_router
from elmokit.serve.routes.tasks import tasks_router
from elmokit.serve.routes.words import words_router
from elmokit.serve.service import Service
from elmokit.serve.warm_up import warm_up

EXPOSED = ["Retry-After", "X-Request-Id", "X-Truncated"]  # headers that a page may read
ROUTERS = (embeddings_router, words_router, tasks_router, status_router, play_router)
ABOUT = (
    "Contextual word vectors by ELMo: of texts, and of every token in every layer. Vectors are identical to those "
    "that `elmokit.Elmo` gives, whatever else is asked for at the same time."
)


def make_application(
    offer: Offer, limits: Limits, api_keys: tuple[str, ...], cors_origins: tuple[str, ...], play: bool = False
) -> FastAPI:
    metrics = Metrics()
    service = Service(offer, limits, metrics, Batcher(offer.models, limits, metrics), Playground(offer))
    besides = tuple(rehearsal(service.playground)) if play else ()
    service.playground.rehearsed = play

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await service.batcher.start(before=partial(warm_up, offer, besides))
        yield
        await service.batcher.stop()

    app = FastAPI(
        title="elmokit",
        version=__version__,
        description=ABOUT,
        lifespan=lifespan,
        docs_url=None,  # FastAPI's pages load scripts from elsewhere
        redoc_url=None,
        dependencies=[Security(HTTPBearer(auto_error=False))] if api_keys else None,
    )
    routers = [router(service) for router in ROUTERS]
    for router in routers:
        app.include_router(router)
    add_handlers(app)
    app.add_middleware(Gate, limits=limits, metrics=metrics, api_keys=api_keys, direct=direct_handlers(routers))
    if cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(cors_origins),
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=EXPOSED,
        )
    _describe_layers(app, offer)
    app.state.service = service
    return app


def _describe_layers(app: FastAPI, offer: Offer) -> None:
    """Where all models have as many layers, the OpenAPI document says which numbers there are; of indexes, too."""
    schemas = app.openapi()["components"]["schemas"]

    def choices(name: str) -> Any:
        return schemas[name]["properties"]["layers"]["anyOf"]

    counts = {elmo.layers for elmo in offer.models.values()}
    if len(counts) == 1:
        [count] = counts
        for choice in (*choices("TokensRequest"), *choices("EmbeddingsRequest")):
            if choice.get("type") == "integer":
                choice.update(minimum=-count, maximum=count - 1)
            if choice.get("type") == "array":
                choice.update(minItems=count, maxItems=count)
    kept = {index.facts.which_layers for index in offer.indexes.values()}
    if len(kept) == 1:
        for choice in choices("NeighboursRequest"):
            if choice.get("type") == "array":
                choice["items"]["enum"] = sorted(*kept)
