"""AllenNLP's `ElmoTokenEmbedder`: one ELMo representation, perhaps projected, without AllenNLP's registry."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor, nn

from elmokit.compat.elmo import Elmo
from elmokit.compat.published import default_pair
from elmokit.errors import UserError


class ElmoTokenEmbedder(nn.Module):
    """Character ids [..., T, 50] -> vectors [..., T, D], or [..., T, projection_dim]. The rest as in Elmo."""

    def __init__(
        self,
        options_file: str | Path | None = None,
        weight_file: str | Path | None = None,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        requires_grad: bool = False,
        projection_dim: int | None = None,
        vocab_to_cache: Sequence[str] | None = None,
        scalar_mix_parameters: Sequence[float] | None = None,
        *,
        stateful: bool = True,
    ) -> None:
        super().__init__()
        self._elmo = Elmo(
            *default_pair(options_file, weight_file),
            1,
            do_layer_norm=do_layer_norm,
            dropout=dropout,
            requires_grad=requires_grad,
            vocab_to_cache=vocab_to_cache,
            scalar_mix_parameters=scalar_mix_parameters,
            stateful=stateful,
        )
        width = self._elmo.get_output_dim()
        self.output_dim = projection_dim or width
        self._projection = nn.Linear(width, projection_dim) if projection_dim else None

    def get_output_dim(self) -> int:
        return self.output_dim

    def reset_states(self) -> None:
        self._elmo.reset_states()

    def forward(
        self, elmo_tokens: Tensor | None = None, word_inputs: Tensor | None = None, *, inputs: Tensor | None = None
    ) -> Tensor:
        """AllenNLP 0.x called the ids `inputs`."""
        ids = inputs if elmo_tokens is None else elmo_tokens
        if ids is None:
            raise UserError("expected character ids [B, T, 50] as batch_to_ids makes them, found none")
        vectors: Tensor = self._elmo(ids, word_inputs)["elmo_representations"][0]
        if self._projection is not None:
            vectors = self._projection(vectors)
        return vectors
