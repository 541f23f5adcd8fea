"""Words in their contexts: how near they are, what fits in a gap, how probable each is, where others stand."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import Response

from elmokit.analysis.contexts.index import ContextIndex
from elmokit.analysis.contexts.marked import MarkedSentence, Similarity, cosines, read_marked
from elmokit.analysis.contexts.neighbours import Neighbours
from elmokit.embed.embedder import Elmo
from elmokit.embed.reader import Array
from elmokit.errors import UserError
from elmokit.pretrain.perplexity import Scores, fill, score
from elmokit.serve import schemas
from elmokit.serve.answers import Encoding, answered, dumped
from elmokit.serve.direct import DirectRoute
from elmokit.serve.errors import ERRORS
from elmokit.serve.limits import Refused, cut
from elmokit.serve.service import FACTS, Service


def words_router(service: Service) -> APIRouter:
    router = APIRouter(tags=["words"], route_class=DirectRoute)
    offer = service.offer

    @router.post(
        "/v1/similar",
        summary="One [marked] word in several contexts: cosines by layer",
        responses={**ERRORS, 200: {"model": schemas.SimilarAnswer}},
    )
    async def similar(body: schemas.SimilarRequest, request: Request) -> Response:
        name, elmo = offer.model(body.model)
        marked = [_marked(service, request, elmo, sentence) for sentence in body.sentences]
        vectors = await _vectors(service, request, name, marked)
        found = Similarity(tuple(body.sentences), tuple(marked), cosines(vectors))
        return answered(request, dumped({"model": name, "pairs": found.to_list()}))

    @router.post(
        "/v1/fill",
        summary="The words that fit in a gap ___",
        responses={**ERRORS, 200: {"model": schemas.FillAnswer}},
    )
    async def fill_gap(body: schemas.FillRequest, request: Request) -> Response:
        name, elmo = offer.model(body.model)
        [tokens] = await service.tokens(request, elmo, [body.sentence])
        call = partial(fill, elmo, tokens, top=body.top, punctuation=body.punctuation)
        candidates = await service.result(request, service.batcher.call(f"fill {name}", len(tokens), call))
        rows = [candidate._asdict() for candidate in candidates]
        return answered(request, dumped({"model": name, "candidates": rows}))

    @router.post(
        "/v1/score",
        summary="The log probability of every token, in both directions",
        responses={**ERRORS, 200: {"model": schemas.ScoreAnswer}},
    )
    async def score_tokens(body: schemas.ScoreRequest, request: Request) -> Response:
        name, elmo = offer.model(body.model)
        tokens = await service.tokens(request, elmo, body.inputs)
        cost = sum(len(sentence) + 2 for sentence in tokens)
        call = service.batcher.call(f"score {name}", cost, lambda: list(score(elmo, tokens)))
        scores = await service.result(request, call)
        with Encoding(service):
            return answered(request, dumped({"model": name, "sentences": [_scored(row) for row in scores]}))

    @router.post(
        "/v1/neighbours",
        summary="The contexts of an index that are nearest to a [marked] word's",
        responses={**ERRORS, 200: {"model": schemas.NeighboursAnswer}},
    )
    async def neighbours(body: schemas.NeighboursRequest, request: Request) -> Response:
        name, elmo, index = offer.index(body.model)
        known = index.facts.which_layers
        chosen = known if body.layers is None else tuple(sorted(set(body.layers)))
        if not set(chosen) <= set(known):
            layers = ", ".join(map(str, known))
            raise Refused(422, "layers", f"expected layers that the index has: {layers}", param="layers")
        query = _marked(service, request, elmo, body.sentence)
        [own] = await _vectors(service, request, name, [query])
        call = partial(_search, index, query, own, chosen, body.top)
        found = await service.result(request, service.batcher.call(f"neighbours {name}", len(chosen), call))
        return answered(request, dumped({"model": name, **found.to_dict()}))

    return router


def _marked(service: Service, request: Request, elmo: Elmo, sentence: str) -> MarkedSentence:
    marked = read_marked(elmo, sentence)
    cut([marked.tokens], service.limits, truncate=False)
    facts = request.scope[FACTS]
    facts.update(inputs=facts.get("inputs", 0) + 1, tokens=facts.get("tokens", 0) + len(marked.tokens))
    return marked


async def _vectors(service: Service, request: Request, model: str, marked: list[MarkedSentence]) -> Array:
    """[S, L, D], as `word_vectors`."""
    arrays = await service.arrays(request, model, [sentence.tokens for sentence in marked], "all")
    return np.stack([array[:, s.start : s.end].mean(axis=1) for array, s in zip(arrays, marked)])


def _search(
    index: ContextIndex, query: MarkedSentence, own: Array, layers: tuple[int, ...], most: int
) -> Neighbours:
    try:
        contexts = tuple(tuple(index.nearest(own[layer], layer, most, without=query.tokens)) for layer in layers)
    except (UserError, OSError) as error:  # its files, not what was asked
        raise Refused(503, "index_unreadable", "the index cannot be read: ask whoever runs the server") from error
    return Neighbours(query, None, layers, contexts, index.facts.vectors)


def _scored(scores: Scores) -> dict[str, Any]:
    return {
        "tokens": [token._asdict() for token in scores],
        "forward": sum(token.forward or 0.0 for token in scores),
        "backward": sum(token.backward or 0.0 for token in scores),
    }
