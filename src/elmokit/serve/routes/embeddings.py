"""Vectors of texts and of tokens: in OpenAI's shape, in text-embeddings-inference's, and in ours."""

from __future__ import annotations

from typing import Any

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import Response

from elmokit.embed.reader import Array
from elmokit.embed.similarity import unit_rows
from elmokit.serve import schemas
from elmokit.serve.answers import Encoding, answered, dumped, in_base64, list_of, safetensors_of, usage
from elmokit.serve.direct import DirectRoute
from elmokit.serve.errors import ERRORS, TEI_ERRORS
from elmokit.serve.service import FACTS, Service

BINARY = "application/octet-stream"
TRUNCATED = {
    "X-Truncated": {
        "description": "Number of inputs that were cut, where some were.",
        "schema": {"type": "integer"},
    }
}


def embeddings_router(service: Service) -> APIRouter:
    router = APIRouter(tags=["vectors"], route_class=DirectRoute)
    offer = service.offer

    @router.post(
        "/v1/embeddings",
        summary="A vector per text, as OpenAI's",
        responses={**ERRORS, 200: {"model": schemas.EmbeddingsAnswer, "headers": TRUNCATED}},
    )
    async def embeddings(body: schemas.EmbeddingsRequest, request: Request) -> Response:
        name, elmo = offer.model(body.model)
        tokens = await service.tokens(request, elmo, _list(body.input), body.truncate)
        arrays = await service.arrays(request, name, tokens, body.layers, body.pooling)
        with Encoding(service):
            rows = _matrix(arrays, elmo.width, body.normalize)
            encode = in_base64 if body.encoding_format == "base64" else _as_it_is
            data = await list_of(
                {"object": "embedding", "index": i, "embedding": encode(row)} for i, row in enumerate(rows)
            )
            about = {"model": name, "usage": usage(tokens), "truncated": _truncated(request)}
            return answered(request, b'{"object":"list","data":' + data + b"," + dumped(about)[1:])

    @router.post(
        "/embed",
        summary="A vector per text, as text-embeddings-inference's",
        responses={**TEI_ERRORS, 200: {"model": list[list[float]], "headers": TRUNCATED}},
    )
    async def embed(body: schemas.EmbedRequest, request: Request) -> Response:
        elmo = offer.models[offer.first]
        tokens = await service.tokens(request, elmo, _list(body.inputs), body.truncate)
        arrays = await service.arrays(request, offer.first, tokens, "mean", "mean")
        with Encoding(service):
            return answered(request, await list_of(_matrix(arrays, elmo.width, body.normalize)))

    @router.post(
        "/embed_all",
        summary="A vector per token, as text-embeddings-inference's",
        responses={**TEI_ERRORS, 200: {"model": list[list[list[float]]], "headers": TRUNCATED}},
    )
    async def embed_all(body: schemas.EmbedAllRequest, request: Request) -> Response:
        tokens = await service.tokens(request, offer.models[offer.first], _list(body.inputs), body.truncate)
        arrays = await service.arrays(request, offer.first, tokens, "mean")
        with Encoding(service):
            return answered(request, await list_of(arrays))

    @router.post(
        "/v1/tokens",
        summary="A vector per token of every layer: JSON or safetensors",
        responses={
            **ERRORS,
            200: {
                "model": schemas.TokensAnswer,
                "content": {BINARY: {"schema": {"type": "string", "format": "binary"}}},
                "headers": TRUNCATED,
            },
        },
    )
    async def tokens(body: schemas.TokensRequest, request: Request) -> Response:
        name, elmo = offer.model(body.model)
        tokens = await service.tokens(request, elmo, body.inputs, body.truncate)
        arrays = await service.arrays(request, name, tokens, body.layers, body.pooling, body.boundaries)
        with Encoding(service):
            arrays = [array.astype(body.dtype, copy=False) for array in arrays]
            if body.format == "safetensors":
                if not arrays:
                    arrays = [_none(elmo.layers, elmo.width, body)]
                content = safetensors_of(
                    name, elmo.digest, tokens, arrays, body.pooling is not None and bool(tokens)
                )
                return answered(request, content, BINARY)
            shown = [["<S>", *row, "</S>"] if body.boundaries else row for row in tokens]
            sentences = await list_of({"tokens": t, "vectors": array} for t, array in zip(shown, arrays))
            about = {"model": name, "usage": usage(tokens), "truncated": _truncated(request)}
            return answered(request, b'{"sentences":' + sentences + b"," + dumped(about)[1:])

    return router


def _list(inputs: str | list[str]) -> list[str]:
    return [inputs] if isinstance(inputs, str) else inputs


def _matrix(arrays: list[Array], width: int, normalize: bool) -> Array:
    matrix = np.stack(arrays) if arrays else np.empty((0, width), dtype=np.float32)
    return unit_rows(matrix) if normalize else matrix


def _none(layers: int, width: int, body: schemas.TokensRequest) -> Array:
    """What no sentence gives: no rows of the right shape."""
    every = (layers,) if body.layers == "all" else ()
    shape = (0, *every, width) if body.pooling else (*every, 0, width)
    return np.empty(shape, dtype=body.dtype)


def _as_it_is(vector: Array) -> Any:
    return vector


def _truncated(request: Request) -> int:
    return int(request.scope[FACTS]["truncated"])
