"""What is served, and whether it is well."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from elmokit import __version__
from elmokit.serve import schemas
from elmokit.serve.answers import dumped
from elmokit.serve.batcher import answer
from elmokit.serve.errors import NOT_READY
from elmokit.serve.limits import Refused
from elmokit.serve.service import Service
from elmokit.serve.warm_up import WELL

PATIENCE = 10.0  # seconds


def status_router(service: Service) -> APIRouter:
    router = APIRouter(tags=["status"])
    offer, limits = service.offer, service.limits
    facts = dumped({"object": "list", "data": [_facts(service, name) for name in offer.models]})
    first = offer.models[offer.first]
    info = dumped(
        {
            "model_id": offer.first,
            "model_sha": first.digest,
            "model_dtype": first.weights,
            "model_type": {"embedding": {"pooling": "mean"}},
            "max_concurrent_requests": limits.connections,
            "max_input_length": limits.tokens,
            "max_batch_tokens": first.batch_tokens,
            "max_client_batch_size": limits.inputs,
            "auto_truncate": False,
            "version": __version__,
            "tasks": [{"name": name, "task": model.task.name} for name, model in offer.tasks.items()],
        }
    )
    expected = {name: elmo.embed_batch([WELL])[0].tobytes() for name, elmo in offer.models.items()}

    @router.get("/v1/models", summary="The models", responses={200: {"model": schemas.ModelsAnswer}})
    async def models() -> Response:
        return Response(facts, media_type="application/json")

    @router.get(
        "/info", summary="The service, as text-embeddings-inference's", responses={200: {"model": schemas.Info}}
    )
    async def tell() -> Response:
        return Response(info, media_type="application/json")

    @router.get("/healthz", summary="The process answers", responses={200: {"model": schemas.Status}})
    @router.get("/health", include_in_schema=False)
    async def health() -> Response:
        return Response(b'{"status":"ok"}', media_type="application/json")

    @router.get(
        "/readyz",
        summary="Every model reads a sentence and gives the vectors that it gave at the start",
        responses={200: {"model": schemas.Status}, 503: NOT_READY},
    )
    async def ready(request: Request) -> Response:
        for name in offer.models:
            job = service.batcher.embed(name, [WELL], "all", first=True)
            try:
                [array] = await asyncio.wait_for(answer(service.batcher, job, limits, request.receive), PATIENCE)
            except (asyncio.TimeoutError, Exception) as error:
                raise Refused(503, "not_ready", f"{name} does not answer", retry_after=1) from error
            if array.tobytes() != expected[name]:
                raise Refused(503, "not_ready", f"{name} does not give the vectors that it gave at the start")
        return Response(b'{"status":"ready"}', media_type="application/json")

    @router.get(
        "/metrics",
        summary="Prometheus' format",
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
        response_class=Response,
    )
    async def metrics() -> Response:
        return Response(service.metrics.page(), media_type="text/plain; version=0.0.4")

    return router


def _facts(service: Service, name: str) -> dict[str, Any]:
    elmo = service.offer.models[name]
    return {
        "id": name,
        "object": "model",
        "created": 0,
        "owned_by": "elmokit",
        "digest": elmo.digest,
        "layers": elmo.layers,
        "width": elmo.width,
        "tokenizer": asdict(elmo.tokenizer.config),
        "weights": elmo.weights,
        "state": elmo.state_name,
        "batch_tokens": elmo.batch_tokens,
        "predicts": elmo.predicts,
        "index": name in service.offer.indexes,
    }
