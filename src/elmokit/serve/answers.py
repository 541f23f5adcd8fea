"""Arrays -> the bytes of an answer: JSON, base64 or safetensors."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
import orjson
from safetensors.numpy import save
from starlette.requests import Request
from starlette.responses import Response

from elmokit.embed.reader import Array
from elmokit.serve.service import FACTS, Service

PAUSE = 1 << 20  # bytes of JSON after which others get their turn


def dumped(value: Any) -> bytes:
    """JSON; float32 by the shortest number that is read back as the same."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)
    except TypeError:  # half of a surrogate pair, which JSON may hold, stays the escape that JSON has for it
        return json.dumps(value, default=lambda array: array.tolist()).encode()


def in_base64(vector: Array) -> str:
    """float32, little-endian, as OpenAI's client reads it."""
    return base64.b64encode(vector.astype("<f4", copy=False).tobytes()).decode()


def usage(tokens: list[list[str]]) -> dict[str, int]:
    count = sum(map(len, tokens))
    return {"prompt_tokens": count, "total_tokens": count}


async def list_of(items: Iterable[Any]) -> bytes:
    """A JSON list, item by item: a large answer does not stop all others."""
    parts, since = [], 0
    for item in items:
        parts.append(dumped(item))
        since += len(parts[-1])
        if since > PAUSE:
            since = 0
            await asyncio.sleep(0)
    return b"[" + b",".join(parts) + b"]"


def safetensors_of(model: str, digest: str, tokens: list[list[str]], arrays: list[Array], pooled: bool) -> bytes:
    """`vectors`: the sentences' tokens one after the other, on the last axis but one; pooled, sentences on the
    first. `lengths`: how many token positions a sentence has."""
    if pooled:
        vectors = np.stack(arrays)
        lengths = [len(sentence) for sentence in tokens]
    else:
        vectors = np.concatenate(arrays, axis=-2)
        lengths = [array.shape[-2] for array in arrays]
    about = {"model": model, "digest": digest, "tokens": json.dumps(tokens, ensure_ascii=False)}
    return save({"vectors": np.ascontiguousarray(vectors), "lengths": np.array(lengths, dtype=np.int64)}, about)


class Encoding:
    """Within, an answer is encoded: how long that takes is measured."""

    def __init__(self, service: Service) -> None:
        self._seconds = service.metrics.encode_seconds

    def __enter__(self) -> None:
        self._begin = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self._seconds.observe(time.perf_counter() - self._begin)


def answered(request: Request, content: bytes, media_type: str = "application/json") -> Response:
    truncated = request.scope[FACTS].get("truncated")
    return Response(content, media_type=media_type, headers={"X-Truncated": str(truncated)} if truncated else None)
