"""What every endpoint shares: the offer, the batcher, the limits; from a request's inputs to its arrays."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from elmokit.embed.embedder import Elmo
from elmokit.embed.pooling import Pooling, WhichLayers, layer_mix
from elmokit.embed.reader import Array
from elmokit.errors import UserError, clipped
from elmokit.serve.batcher import Batcher, Job, answer
from elmokit.serve.limits import Limits, Refused, check_inputs, cut
from elmokit.serve.metrics import Metrics
from elmokit.serve.offer import Offer
from elmokit.serve.play.playground import Playground

INLINE = (
    20_000  # characters that the event loop tokenizes itself: some milliseconds, in which it does nothing else
)
FACTS = "elmokit"  # of a request's scope: what is logged of it


@dataclass(frozen=True)
class Service:
    offer: Offer
    limits: Limits
    metrics: Metrics
    batcher: Batcher
    playground: Playground

    async def tokens(
        self, request: Request, elmo: Elmo, inputs: Sequence[str | Sequence[str]], truncate: bool = False
    ) -> list[list[str]]:
        """The tokens of every input, within the limits; what was cut is noted in the request's facts."""
        check_inputs(len(inputs), self.limits)

        def tokenize() -> list[list[str]]:
            return [elmo.tokens(text) for text in inputs]

        if sum(map(len, inputs)) > INLINE:
            tokens = await asyncio.get_running_loop().run_in_executor(None, tokenize)
        else:
            tokens = tokenize()
        truncated = cut(tokens, self.limits, truncate)
        if truncated:
            self.metrics.truncated.inc(truncated)
        request.scope[FACTS].update(inputs=len(tokens), tokens=sum(map(len, tokens)), truncated=truncated)
        return tokens

    async def arrays(
        self,
        request: Request,
        model: str,
        tokens: list[list[str]],
        layers: WhichLayers,
        pooling: Pooling | None = None,
        boundaries: bool = False,
    ) -> list[Array]:
        try:
            layer_mix(layers, self.offer.models[model].layers)
        except UserError as error:
            raise Refused(422, "layers", clipped(error, 300), param="layers") from None
        arrays: list[Array] = await self.result(
            request, self.batcher.embed(model, tokens, layers, pooling, boundaries)
        )
        return arrays

    async def result(self, request: Request, job: Job) -> Any:
        return await answer(self.batcher, job, self.limits, request.receive)
