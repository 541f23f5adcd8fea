"""The playground: the page at /, its files, and what its rooms ask for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.resources import files
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel

from elmokit.serve.answers import answered, dumped
from elmokit.serve.direct import DirectRoute
from elmokit.serve.limits import Refused
from elmokit.serve.play.playground import Playground
from elmokit.serve.play.rehearsal import rehearsal
from elmokit.serve.play.rooms import ROOMS
from elmokit.serve.service import FACTS, Service

KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
SECURE = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def play_router(service: Service) -> APIRouter:
    router = APIRouter(route_class=DirectRoute, include_in_schema=False)
    folder = files("elmokit.serve.play") / "page"
    pages = {
        f"/play/{name}": name
        for name in (
            *(file.name for file in folder.iterdir() if file.is_file()),
            *(f"rooms/{file.name}" for file in (folder / "rooms").iterdir()),
        )
    }
    for path, name in pages.items():
        content, kind = (folder / name).read_bytes(), KINDS[name.rpartition(".")[2]]
        router.add_api_route(path, partial(_file, content, kind), response_class=Response)
    router.add_api_route("/", _entrance(service, (folder / "index.html").read_bytes()), response_class=Response)
    for room in ROOMS:
        module = import_module(f"elmokit.serve.play.rooms.{room}")
        endpoint = _endpoint(service, room, module.Request, module.answer)
        router.add_api_route(f"/play/{room}", endpoint, methods=["POST"])
    return router


def _entrance(service: Service, page: bytes) -> Callable[..., Any]:
    under_way: set[asyncio.Task[None]] = set()  # asyncio itself forgets them

    async def rehearse() -> None:
        """Call by call: what the visitor asks meanwhile comes between."""
        for call in rehearsal(service.playground):
            with suppress(Exception):  # whoever asks for it is told
                await service.batcher.call("rehearsal", 1, call).future

    async def entrance() -> Response:
        if not service.playground.rehearsed:
            service.playground.rehearsed = True
            under_way.add(asyncio.get_running_loop().create_task(rehearse()))
        return await _file(page, KINDS["html"])

    return entrance


async def _file(content: bytes, kind: str) -> Response:
    return Response(content, media_type=f"{kind}; charset=utf-8", headers=SECURE)


def _endpoint(
    service: Service,
    room: str,
    model: type[BaseModel],
    answer: Callable[[Playground, Any], dict[str, Any]],
) -> Callable[..., Any]:
    async def endpoint(body: BaseModel, request: Request) -> Response:
        size = sum(len(value.split()) for _, value in body if isinstance(value, str))
        if size > service.limits.tokens:
            raise Refused(422, "input_too_long", f"at most {service.limits.tokens:,} words (--max-tokens)")
        request.scope[FACTS].update(tokens=size)
        call = service.batcher.call(f"play {room}", size, partial(answer, service.playground, body))
        return answered(request, dumped(await service.result(request, call)))

    endpoint.__annotations__ = {"body": model, "request": Request, "return": Response}
    return endpoint
