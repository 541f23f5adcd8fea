"""The variants of a task that the paper compares: without ELMo, and with it in many ways."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Variant:
    name: str
    elmo: bool = True
    place: str = "input"
    which_layers: str = "all"
    penalty: float = 0.001
    share: float = 1.0  # of the training examples

    def options(self, model: str) -> list[str]:
        if not self.elmo:
            return ["--model", "none"]
        where = ["--place", self.place, "--layers", self.which_layers]
        return ["--model", model, *where, "--lambda", str(self.penalty)]


BASELINE = Variant("baseline", elmo=False)
ELMO = Variant("elmo")
WEIGHTING = (BASELINE, Variant("last", which_layers="last"), Variant("lambda-1", penalty=1.0), ELMO)  # Table 2
PLACEMENT = (BASELINE, ELMO, Variant("both", place="both"), Variant("output", place="output"))  # Table 3


def sample_variants(shares: Sequence[float]) -> tuple[Variant, ...]:
    """Figure 1: the baseline and ELMo at every share."""
    return tuple(
        Variant(kind if share == 1 else f"{kind}-{share:g}", elmo=kind == "elmo", share=share)
        for share in shares
        for kind in ("baseline", "elmo")
    )
