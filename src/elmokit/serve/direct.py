"""Endpoints that take a JSON body and nothing else: without FastAPI's injection and, in the gate, its routing.

FastAPI describes them. Both together take more than half of the time that a request costs beside its computation.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import orjson
from fastapi import APIRouter
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from elmokit.serve.errors import invalid
from elmokit.serve.limits import Refused

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class DirectRoute(APIRoute):
    """Of `async def endpoint(body: Model, request: Request, **path parameters) -> Response`."""

    def get_route_handler(self) -> Handler:
        if self.body_field is None:
            return super().get_route_handler()
        model = self.body_field.field_info.annotation
        assert isinstance(model, type)
        assert issubclass(model, BaseModel)
        endpoint = self.endpoint

        async def handle(request: Request) -> Response:
            body = parsed(model, request.headers.get("content-type", ""), await request.body())
            response: Response = await endpoint(body=body, request=request, **request.path_params)
            return response

        return handle


def direct_handlers(routers: Iterable[APIRouter]) -> dict[str, tuple[DirectRoute, Handler]]:
    """By path, those that are posted to and have no parameters in their path."""
    return {
        route.path: (route, route.get_route_handler())
        for router in routers
        for route in router.routes
        if isinstance(route, DirectRoute) and route.methods == {"POST"} and not route.param_convertors
    }


def parsed(model: type[BaseModel], media_type: str, body: bytes) -> BaseModel:
    kind = media_type.partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        raise Refused(415, "media_type", "expected JSON: send the header Content-Type: application/json")
    try:
        return model.model_validate(orjson.loads(body))
    except orjson.JSONDecodeError as error:
        raise Refused(422, "invalid_json", f"the body is not JSON: {str(error)[:100]}") from None
    except ValidationError as error:
        raise invalid(error.errors(include_input=False, include_url=False)) from None
