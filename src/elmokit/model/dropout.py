"""What a probability of dropout may be: checked here, for every config that has one."""

from __future__ import annotations

from elmokit.errors import UserError


def check_p(**probabilities: float) -> None:
    """check_p(input_dropout=0.2, dropout=0.5): each by its name in the config."""
    for name, p in probabilities.items():
        if not 0 <= p < 1:
            raise UserError(f"{name}: expected 0 or more and less than 1, found {p}")
