"""What every request passes, whatever it asks for: a key, a body that arrives in time and is not too large; what
became of it is counted and logged."""

from __future__ import annotations

import hmac
import logging
import random
import re
import time
from collections.abc import Mapping
from typing import Any

import anyio
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from elmokit.errors import UserError
from elmokit.serve.direct import DirectRoute, Handler
from elmokit.serve.errors import invalid_value, refusal
from elmokit.serve.limits import Gone, Limits, Refused, too_large
from elmokit.serve.logs import log, log_error
from elmokit.serve.metrics import Metrics
from elmokit.serve.service import FACTS

OPEN = {"/healthz", "/health", "/readyz"}  # for probes, which have no key
REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
LINGER = 8  # a body that is too large is read so far beyond the limit: who sends on does not hear the answer
GONE = 499  # as nginx logs it


class Gate:
    """Pure ASGI, for what passes with every request must cost little."""

    def __init__(
        self,
        app: ASGIApp,
        limits: Limits,
        metrics: Metrics,
        api_keys: tuple[str, ...],
        direct: Mapping[str, tuple[DirectRoute, Handler]],
    ) -> None:
        self._app, self._limits, self._metrics, self._direct = app, limits, metrics, direct
        self._keys = [key.encode() for key in api_keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin = time.perf_counter()
        headers = dict(scope["headers"])
        own = headers.get(b"x-request-id", b"")
        request_id = own.decode() if REQUEST_ID.fullmatch(own) else f"{random.getrandbits(128):032x}"
        facts: dict[str, Any] = {}
        scope[FACTS] = facts
        status = 0

        async def send_on(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
            await send(message)

        async def refuse(refused: Refused) -> None:
            response = refusal(scope["path"], refused)
            response.headers["Connection"] = "close"  # the rest of its body is not read
            await response(scope, receive, send_on)

        try:
            try:
                if not _open(scope):
                    self._check_key(headers)
                body = _handed_on(await self._body(headers, receive), receive)
                if scope["method"] == "POST" and scope["path"] in self._direct:
                    scope["route"], handle = self._direct[scope["path"]]
                    await (await _answer(handle, Request(scope, body)))(scope, body, send_on)
                else:
                    await self._app(scope, body, send_on)
            except Refused as refused:
                await refuse(refused)
        except Gone:
            status = status or GONE
            self._metrics.gone.inc()
        except Exception as error:
            log_error("bug", error, request_id=request_id)
            if not status:
                await refuse(Refused(500, "internal", f"an error of the server's; its log has it by {request_id}"))
        finally:
            seconds = time.perf_counter() - begin
            route = getattr(scope.get("route"), "path", "other")
            self._metrics.requests.labels(route, status).inc()
            self._metrics.request_seconds.observe(seconds)
            level = logging.INFO if route not in OPEN and route != "/metrics" else logging.DEBUG
            log(
                "request",
                level,
                request_id=request_id,
                method=scope["method"],
                path=route,
                status=status,
                ms=round(1000 * seconds, 2),
                **facts,
            )

    def _check_key(self, headers: dict[bytes, bytes]) -> None:
        if not self._keys:
            return
        kind, _, key = headers.get(b"authorization", b"").partition(b" ")
        # All are compared, each in constant time: how long it takes tells nothing.
        known = sum(hmac.compare_digest(key.strip(), own) for own in self._keys)
        if kind.lower() != b"bearer" or not known:
            raise Refused(401, "invalid_api_key", "expected one of the server's keys: Authorization: Bearer KEY")

    async def _body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        limit = self._limits.body
        if b"transfer-encoding" not in headers and headers.get(b"content-length", b"0") == b"0":
            return b""
        try:
            with anyio.fail_after(self._limits.read):
                body = await _read(receive, limit)
        except TimeoutError:
            raise Refused(
                408,
                "body_timeout",
                f"the body did not arrive within {self._limits.read:g} seconds (--read-timeout)",
            ) from None
        if body is None:
            raise too_large(self._limits)
        return body


def _open(scope: Scope) -> bool:
    """The playground's files hold nothing of anybody's; what they ask for needs a key."""
    path: str = scope["path"]
    return path in OPEN or (scope["method"] == "GET" and (path == "/" or path.startswith("/play/")))


async def _answer(handle: Handler, request: Request) -> Response:
    try:
        return await handle(request)
    except Refused as refused:
        return refusal(request.scope["path"], refused)
    except UserError as error:
        return refusal(request.scope["path"], invalid_value(error))


async def _read(receive: Receive, most: int) -> bytes | None:
    """All of a body; None where that is more than `most`. What is too much is not kept."""
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone
        part = message.get("body", b"")
        size += len(part)
        if size <= most:
            parts.append(part)
        elif size > LINGER * most:
            return None
        else:
            parts.clear()
        if not message.get("more_body", False):
            return b"".join(parts) if size <= most else None


def _handed_on(body: bytes, receive: Receive) -> Receive:
    """The body in one piece; after it, what comes then: that the client has left."""
    given = False

    async def hand_on() -> Message:
        nonlocal given
        if not given:
            given = True
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return hand_on
