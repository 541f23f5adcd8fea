"""Trained tasks: POST /v1/tasks/NAME."""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter, Request
from fastapi.responses import Response

from elmokit.serve import schemas
from elmokit.serve.answers import Encoding, answered, dumped
from elmokit.serve.direct import DirectRoute
from elmokit.serve.errors import ERRORS
from elmokit.serve.limits import Refused, check_inputs
from elmokit.serve.service import FACTS, Service


def tasks_router(service: Service) -> APIRouter:
    router = APIRouter(tags=["tasks"], route_class=DirectRoute)

    @router.post(
        "/v1/tasks/{name}",
        summary="What a trained task predicts",
        responses={**ERRORS, 200: {"model": schemas.TaskAnswer}},
    )
    async def predict(name: str, body: schemas.TaskRequest, request: Request) -> Response:
        task = service.offer.task(name)
        check_inputs(len(body.inputs), service.limits)
        # An upper bound of its tokens: what a task makes of a text is its own affair.
        sizes = [len(text.split()) if isinstance(text, str) else len(text) for text in body.inputs]
        if max(sizes, default=0) > service.limits.tokens:
            raise Refused(
                422,
                "input_too_long",
                f"at most {service.limits.tokens:,} tokens per input (--max-tokens), found {max(sizes):,}",
                param="inputs",
            )
        request.scope[FACTS].update(inputs=len(sizes), tokens=sum(sizes))
        call = service.batcher.call(f"task {name}", sum(sizes), partial(task.annotate, body.inputs))
        predictions = await service.result(request, call)
        with Encoding(service):
            return answered(request, dumped({"task": name, "predictions": predictions}))

    return router
