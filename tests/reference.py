"""An independent forward pass: NumPy, float64, straight from the published file's arrays, one token at a time.

Written from the notes of the published formats, not from the code it checks: it shares none of it.
"""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


class ReferenceBiLM:
    def __init__(self, options: Path, weights: Path) -> None:
        self.options = json.loads(Path(options).read_text())
        with h5py.File(weights) as file:
            arrays = {}
            file.visititems(
                lambda name, item: (
                    arrays.update({name: item[...].astype(np.float64)}) if hasattr(item, "shape") else None
                )
            )
        self.w = arrays

    def characters(self, token: str) -> np.ndarray:
        longest = self.options["char_cnn"]["max_characters_per_token"]
        inside = {"<S>": [256], "</S>": [257]}.get(token, list(token.encode("utf-8", "ignore"))[: longest - 2])
        ids = [258, *inside, 259]
        return np.array(ids + [260] * (longest - len(ids)))

    def token_vector(self, token: str) -> np.ndarray:
        cnn = self.options["char_cnn"]
        embedded = self.w["char_embed"][self.characters(token)]  # [C, E]
        pooled = []
        for i, (width, _) in enumerate(cnn["filters"]):
            kernel, bias = self.w[f"CNN/W_cnn_{i}"][0], self.w[f"CNN/b_cnn_{i}"]  # [width, E, F]
            at = [
                np.einsum("we,wef->f", embedded[start : start + width], kernel) + bias
                for start in range(len(embedded) - width + 1)
            ]
            highest = np.max(at, axis=0)
            pooled.append(np.maximum(highest, 0) if cnn["activation"] == "relu" else np.tanh(highest))
        x = np.concatenate(pooled)
        for i in range(cnn["n_highway"]):
            w = {k: self.w[f"CNN_high_{i}/{k}"] for k in ("W_carry", "b_carry", "W_transform", "b_transform")}
            carry = sigmoid(x @ w["W_carry"] + w["b_carry"])
            x = carry * np.maximum(x @ w["W_transform"] + w["b_transform"], 0) + (1 - carry) * x
        if "CNN_proj/W_proj" in self.w:
            x = x @ self.w["CNN_proj/W_proj"] + self.w["CNN_proj/b_proj"]
        return x

    def zero_state(self):
        lstm = self.options["lstm"]
        return [
            [(np.zeros(lstm["projection_dim"]), np.zeros(lstm["dim"])) for _ in range(lstm["n_layers"])]
            for _ in range(2)
        ]

    def _direction(self, direction: int, xs: list[np.ndarray], state):
        lstm = self.options["lstm"]
        cell_clip, proj_clip = lstm.get("cell_clip") or np.inf, lstm.get("proj_clip") or np.inf
        layers, after = [], []
        inputs = xs
        for layer in range(lstm["n_layers"]):
            name = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            w, b, w_p = self.w[f"{name}/W_0"], self.w[f"{name}/B"], self.w[f"{name}/W_P_0"]
            h, c = state[direction][layer]
            outputs = []
            for x in inputs:
                i, j, f, o = np.split(np.concatenate([x, h]) @ w + b, 4)
                c = np.clip(sigmoid(f + 1) * c + sigmoid(i) * np.tanh(j), -cell_clip, cell_clip)
                h = np.clip((sigmoid(o) * np.tanh(c)) @ w_p, -proj_clip, proj_clip)
                outputs.append(h + x if layer > 0 and lstm.get("use_skip_connections") else h)
            layers.append(outputs)
            after.append((h, c))
            inputs = outputs
        return layers, after

    def layers(self, tokens: list[str], state=None):
        """All layers [1 + L, T, 2P] of one sentence without its boundaries, and the state after it."""
        state = state or self.zero_state()
        xs = [self.token_vector(token) for token in ["<S>", *tokens, "</S>"]]
        forward, forward_state = self._direction(0, xs, state)
        backward, backward_state = self._direction(1, xs[::-1], state)
        stacked = [np.concatenate([xs, xs], axis=-1)]
        stacked += [np.concatenate([f, b[::-1]], axis=-1) for f, b in zip(forward, backward)]
        return np.array(stacked)[:, 1:-1], [forward_state, backward_state]
