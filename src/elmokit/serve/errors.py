"""Errors as answers: OpenAI's shape, or text-embeddings-inference's where its clients ask. No trace leaves."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from elmokit.errors import UserError, clipped
from elmokit.serve.answers import dumped
from elmokit.serve.limits import Refused
from elmokit.serve.schemas import PATTERNS, ErrorAnswer, TeiError

TEI_PATHS = ("/embed", "/embed_all")
RETRY = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}}
WHY: dict[int, str] = {
    400: "Not HTTP that can be read.",
    401: "No key, or not one of the server's (--api-key).",
    404: "No model, task or index of that name.",
    408: "The body did not arrive in time (--read-timeout).",
    413: "The body is too large (--max-body).",
    415: "The body is not said to be JSON.",
    422: "The request is not as described, or over a limit (--max-inputs, --max-tokens).",
    429: "The queue is full (--queue, --max-wait): Retry-After says when to try again.",
    503: "Not ready, or no answer in time (--timeout).",
}
NOT_READY = {"model": ErrorAnswer, "description": WHY[503]}


def _documented(model: type) -> dict[int | str, dict[str, Any]]:
    return {
        status: {"model": model, "description": why, **({"headers": RETRY} if status == 429 else {})}
        for status, why in WHY.items()
    }


ERRORS, TEI_ERRORS = _documented(ErrorAnswer), _documented(TeiError)


def refusal(path: str, refused: Refused) -> Response:
    if path in TEI_PATHS:
        kind = (
            "validation"
            if refused.status in (413, 415, 422)
            else "overloaded"
            if refused.status == 429
            else "backend"
        )
        content: dict[str, Any] = {"error": refused.message, "error_type": kind}
    else:
        fault = {"message": refused.message, "type": refused.kind, "param": refused.param, "code": refused.code}
        content = {"error": fault}
    return Response(dumped(content), refused.status, refused.headers, "application/json")


def invalid_value(error: UserError) -> Refused:
    return Refused(422, "invalid_value", clipped(error, 500))


def add_handlers(app: FastAPI) -> None:
    @app.exception_handler(Refused)
    async def _refused(request: Request, error: Refused) -> Response:
        return refusal(request.url.path, error)

    @app.exception_handler(UserError)
    async def _user_error(request: Request, error: UserError) -> Response:
        return refusal(request.url.path, invalid_value(error))

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> Response:
        known = "; GET /openapi.json lists what there is" if error.status_code == 404 else ""
        code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "http_error")
        response = refusal(
            request.url.path, Refused(error.status_code, code, f"{request.method}: {error.detail}{known}")
        )
        response.headers.update(error.headers or {})
        return response


def invalid(errors: Any) -> Refused:
    """The first of pydantic's errors, where it is and what was expected; never what was sent."""
    first = max(errors, key=lambda error: error["type"] == "value_error")  # a reason of ours says most
    place = [str(part) for part in first["loc"] if part != "body"]
    where = clipped(".".join(place) or "body", 100)
    pattern = first.get("ctx", {}).get("pattern")
    message = PATTERNS.get(pattern) or first["msg"].removeprefix("Value error, ")
    return Refused(422, "invalid_value", f"{where}: {message}", param=clipped(place[0], 100) if place else None)
