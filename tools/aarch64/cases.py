"""What runs on both processors: every kernel by elmokit's own calls, from the same seeds, in odd sizes.

A case makes its weights and inputs anew and returns tensors: nothing is left over from another processor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor, nn

from elmokit.model.bilm import BiLM, BiLMConfig, BiLMState
from elmokit.model.char_encoder import CharEncoder, CharEncoderConfig, Highway
from elmokit.model.kernels.cache import digests_of
from elmokit.model.kernels.dispatch import path_for
from elmokit.model.kernels.library import chosen
from elmokit.model.kernels.linear import linear, tanh_
from elmokit.model.kernels.packing import WEIGHT_FORMATS, WeightFormat
from elmokit.model.lstm import LSTMConfig

CELLS, WIDTH = 43, 37  # no multiple of a panel, nor of eight
LENGTHS = {  # of the rows of a batch
    "1 token": [1],
    "1 row": [11],
    "lengths that differ": [7, 1, 9, 9, 3, 0, 5],
    "many rows": [1 + i % 7 for i in range(70)],
}
EXACT = 1e-5
# Activations are rounded too, so where a sum differs in its last bit, one of them may be rounded the other way.
ALLOWED = {"float32": EXACT, "float16": EXACT, "bfloat16": 0.02, "int8": 0.05}


class Case(NamedTuple):
    function: str
    name: str
    run: Callable[[], list[Tensor]]
    allowed: float = EXACT  # from the same kernel elsewhere
    defined: float | None = EXACT  # from the definition, where there is one


def cases() -> Iterator[Case]:
    for weights in WEIGHT_FORMATS:
        allowed = ALLOWED[weights]
        for name, lengths in LENGTHS.items():
            run = partial(contextualized, weights, lengths)
            yield Case("elmo_forward", f"{weights}, {name}", run, allowed, allowed)
        yield Case("elmo_forward", f"{weights}, NaN and Inf", partial(broken, weights), allowed, allowed)
    for name, lengths in LENGTHS.items():
        yield Case("elmo_backward", name, partial(learned, lengths), 1e-4, 1e-4)  # gradients of tens
    for rows in (1, 5, 100):
        yield Case("elmo_linear", f"{rows} rows", partial(mapped, rows))
        yield Case("elmo_highway", f"{rows} rows", partial(carried, rows))
        yield Case("elmo_convolve", f"{rows} words", partial(encoded, rows))
        yield Case("elmo_convolve_backward", f"{rows} words", partial(encoded, rows, learn=True), 1e-4, 1e-4)
    yield Case("elmo_tanh", "NaN and Inf too", tanh, 1e-6, 1e-6)
    yield Case("elmo_digest", "0 to 300,000 bytes", digests, 0.0, None)


def laws() -> Iterator[tuple[str, bool]]:
    """A row's bits do not depend on the rows beside it, nor any on the number of threads."""
    lengths = LENGTHS["lengths that differ"]
    for weights in WEIGHT_FORMATS:
        model, x, mask = bilm(weights), *batch(lengths)
        whole = model.contextualize(x, mask).layers
        alone = [model.contextualize(x[i : i + 1], mask[i : i + 1]).layers for i in range(len(lengths))]
        yield f"elmo_forward, {weights}: a row alone", torch.equal(whole, torch.cat(alone, dim=1))
        several = partial(contextualized, weights, LENGTHS["many rows"])
        yield f"elmo_forward, {weights}: threads", same_by_threads(several)
    for function, run in (("elmo_linear", mapped), ("elmo_highway", carried), ("elmo_convolve", encoded)):
        whole, few = run(100)[0], run(5)[0]
        yield f"{function}: 5 rows of 100", torch.equal(whole[:5], few)
        yield f"{function}: threads", same_by_threads(partial(run, 100))
    yield "elmo_backward: threads", same_by_threads(partial(learned, LENGTHS["many rows"]))
    yield "elmo_convolve_backward: threads", same_by_threads(partial(encoded, 100, learn=True))
    yield "elmo_digest: threads", same_by_threads(digests)


def same_by_threads(run: Callable[[], list[Tensor]]) -> bool:
    results = []
    for threads in (1, 2, 5):
        with patch("torch.get_num_threads", lambda count=threads: count):  # the library's; torch keeps its own
            results.append(run())
    return all(torch.equal(a, b) for other in results[1:] for a, b in zip(results[0], other))


def bilm(weights: WeightFormat = "float32") -> BiLM:
    torch.manual_seed(0)
    config = LSTMConfig(layers=2, cells=CELLS, width=WIDTH, cell_clip=1.0, projection_clip=0.8)
    model = BiLM(BiLMConfig(CharEncoderConfig(filters=((1, 4),), highway=0), config))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_()
            elif chosen() == "definition":  # which knows no small weights: it is given what is left of them
                parameter.copy_(rounded(parameter, weights))
    model.weights = weights
    return model.requires_grad_(False)


def rounded(weight: Tensor, weights: WeightFormat) -> Tensor:
    if weights == "int8":
        scale = weight.abs().amax(dim=1, keepdim=True) / 127
        return (weight / scale).round() * scale
    return weight.to(getattr(torch, weights)).float()


def batch(lengths: list[int]) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(len(lengths), max(lengths), WIDTH, generator=generator)
    return x, torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)


def started(model: BiLM, rows: int) -> BiLMState:
    generator = torch.Generator().manual_seed(2)
    return BiLMState(*(torch.randn(part.shape, generator=generator) * 0.5 for part in model.zero_state(rows)))


def contextualized(weights: WeightFormat, lengths: list[int]) -> list[Tensor]:
    model, (x, mask) = bilm(weights), batch(lengths)
    out = model.contextualize(x, mask, started(model, len(lengths)))
    return [out.layers, *out.state]


def broken(weights: WeightFormat) -> list[Tensor]:
    """A row with a NaN and one with an Inf in it, and those beside them, which they must not touch."""
    model, (x, mask) = bilm(weights), batch(LENGTHS["lengths that differ"])
    x[2, 4, 5], x[3, 2, 1] = torch.nan, torch.inf
    layers = model.contextualize(x, mask).layers
    return [layers[:, [0, 1, 4, 5, 6]], layers[:, 2].isnan().any(dim=-1).float()]


def learned(lengths: list[int]) -> list[Tensor]:
    model, (x, mask) = bilm(), batch(lengths)
    model.requires_grad_(True)
    x.requires_grad_(True)
    begins = mask & (torch.arange(x.shape[1]) % 3 == 1)
    (forward, backward), after = model.run((x, x), mask, started(model, len(lengths)), begins=begins)
    loss = sum((part.sin() * part).sum() for part in (*forward, *backward, *after))
    weights = [*model.forward_lstms.parameters(), *model.backward_lstms.parameters()]
    return [part.detach() for part in forward + backward] + list(torch.autograd.grad(loss, [x, *weights]))


def mapped(rows: int) -> list[Tensor]:
    torch.manual_seed(3)
    module, x = nn.Linear(75, 131).requires_grad_(False), torch.randn(100, 75)[:rows]
    return [module(x) if chosen() == "definition" else linear(module, x)]


def carried(rows: int) -> list[Tensor]:
    torch.manual_seed(4)
    module, x = Highway(131).requires_grad_(False), torch.randn(100, 131)[:rows]
    return [module(x)]


def encoded(rows: int, learn: bool = False) -> list[Tensor]:
    torch.manual_seed(5)
    filters = ((1, 7), (2, 33), (3, 64), (5, 40), (8, 3))
    config = CharEncoderConfig(characters=50, embedding=5, filters=filters, highway=1)
    module = CharEncoder(config, WIDTH).requires_grad_(learn)
    ids = torch.randint(1, 50, (100, 12))
    ids = torch.where(torch.arange(12) < torch.randint(1, 12, (100, 1)), ids, 0)[:rows]
    x = module(ids.unsqueeze(1))
    return [x.detach()] + (list(torch.autograd.grad(x.sin().sum(), list(module.parameters()))) if learn else [])


def tanh() -> list[Tensor]:
    x = torch.cat([torch.linspace(-12, 12, 1001), torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0])])
    return [torch.tanh(x)] if chosen() == "definition" or not path_for(x).native else [tanh_(x)]


def digests() -> list[Tensor]:
    generator = torch.Generator().manual_seed(6)
    content = torch.randint(0, 256, (300_000,), generator=generator).to(torch.uint8)
    found = digests_of([content[:count].clone() for count in (0, 1, 63, 64, 200, 300_000)])
    return [torch.tensor([part for digest in found for part in (digest >> 32, digest & 0xFFFFFFFF)]).double()]
