"""AllenNLP's names and layout of saved weights -> ours, before load_state_dict looks at them."""

from __future__ import annotations

from typing import Any

import torch

# What AllenNLP calls the biLM's weights, piece by piece, and what we do.
OLD_NAMES = {
    "_token_embedder._char_embedding_weights": "bilm.encoder.character_embedding.weight",
    "_token_embedder.char_conv_": "bilm.encoder.convolutions.",
    "_token_embedder._highways._layers.": "bilm.encoder.highway.",
    "_token_embedder._projection.": "bilm.encoder.projection.",
    "_elmo_lstm.forward_layer_": "bilm.forward_lstms.",
    "_elmo_lstm.backward_layer_": "bilm.backward_lstms.",
    "input_linearity.weight": "input_weight",
    "state_linearity.weight": "hidden_weight",
    "state_linearity.bias": "bias",
    "state_projection.weight": "projection_weight",
}
# What some versions saved, though nobody trains it.
BUFFERS = [f"_token_embedder.{which}_of_sentence_characters" for which in ("_beginning", "_end")]


def rename_bilm(module: Any, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """module    an ElmoBiLm."""
    for key in [key for key in state if key.startswith(prefix)]:
        name = key[len(prefix) :]
        for old, new in OLD_NAMES.items():
            name = name.replace(old, new)
        if prefix + name == key:
            continue
        value, name = state.pop(key), prefix + name
        if ".highway." in name:  # one matrix for both; its gate lets x through, ours lets the new through
            layer, kind = name.rsplit(".", 1)
            transform, carry = value.chunk(2)
            state[f"{layer}.transform.{kind}"], state[f"{layer}.carry.{kind}"] = transform, -carry
        elif name.endswith("bias") and "_lstms." in name:  # what the forget gate gets at run time is in it
            i, f, g, o = value.chunk(4)
            state[name] = torch.cat([i, f - module.bilm.config.lstm.forget_bias, g, o])
        else:
            state[name] = value
    for name in BUFFERS:
        state.pop(prefix + name, None)
    cached, table = f"{prefix}_word_embedding.weight", module._word_embedding
    if table is not None and cached in state and len(state[cached]) == table.num_embeddings + 2:
        state[cached] = state[cached][:-2]  # elmokit.compat once kept <S> and </S> in the same table
