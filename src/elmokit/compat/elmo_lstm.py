"""AllenNLP's `ElmoLstm`: the biLM's LSTMs, what they remember from call to call, and whether they use it.

Shapes: B rows, T tokens, L LSTM layers, P width of a direction, D = 2P, H cells.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from elmokit.model.bilm import BiLM, BiLMState
from elmokit.model.state import CarryState


class ElmoLstm(nn.Module):
    """A view of a BiLM: token vectors [B, T, P] and their mask [B, T] -> the LSTMs' layers [L, B, T, D].

    stateful    each row begins where that row of the last call ended; may be changed at any time.
    """

    def __init__(self, bilm: BiLM, *, stateful: bool = True) -> None:
        super().__init__()
        self.stateful = stateful
        self._held = (bilm, CarryState(bilm))  # in a tuple: not a part of this module, which is a part of it
        lstm = bilm.config.lstm
        self.num_layers, self.cell_size = lstm.layers, lstm.cells
        self.input_size = self.hidden_size = lstm.width
        self.forward_layers, self.backward_layers = list(bilm.forward_lstms), list(bilm.backward_lstms)
        for name, layers in (("forward", self.forward_layers), ("backward", self.backward_layers)):
            for k, layer in enumerate(layers):
                self.add_module(f"{name}_layer_{k}", layer)

    def forward(self, inputs: Tensor, mask: Tensor) -> Tensor:
        return self.all_layers(inputs, mask)[1:]

    def all_layers(self, inputs: Tensor, mask: Tensor) -> Tensor:
        """[1 + L, B, T, D], the token layer first."""
        bilm, carried = self._held
        state = carried.before(len(inputs))
        output = bilm.contextualize(inputs, mask.bool(), state if self.stateful else None)
        carried.after(output.state)  # noted also when it is not used, as AllenNLP does
        return output.layers

    def reset_states(self, mask: Tensor | None = None) -> None:
        """Forget what was read: of all rows, or of those where `mask` [B] is true."""
        states = self._states
        if mask is None or states is None:
            self._held[1].reset()
            return
        keep = torch.ones(states[0].shape[1], 1, dtype=states[0].dtype, device=states[0].device)
        keep[: len(mask)][mask.bool()] = 0
        self._states = (states[0] * keep, states[1] * keep)

    @property
    def _states(self) -> tuple[Tensor, Tensor] | None:
        """Hidden [L, B, D] and cell [L, B, 2H] after the last call, forward and backward side by side."""
        state = self._held[1].state
        return None if state is None else (torch.cat(list(state.hidden), -1), torch.cat(list(state.cell), -1))

    @_states.setter
    def _states(self, states: tuple[Tensor, Tensor] | None) -> None:
        hidden_and_cell = None if states is None else [torch.stack(part.chunk(2, dim=-1)) for part in states]
        self._held[1].state = None if hidden_and_cell is None else BiLMState(*hidden_and_cell)
