"""ELMoForManyLangs by its own definition: folders as it writes them, its forward pass in NumPy, float64."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch

CHARACTERS = ["<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>", *"abcdef한국어é", "\u3000"]
WORDS = ["<oov>", "<bos>", "<eos>", "<pad>", "a", "abc", "한국어", "abcdefabcd"]
SENTENCES = [
    ["abc", "한국어", "xyz", "abcdefabcdefabcdef"],  # unknown characters; cut after ten, then a known word
    ["a"],
    ["<bos>", "é", "Ω\u3000한", "<eos>", "", "cab"],
]
KINDS = {"both": (6, 5), "characters": (0, 5), "words": (7, 0)}  # word_dim, char_dim
LIMITS = {"cell_clip": 0.6, "proj_clip": 0.4}  # low enough to matter


def configuration(word_dim: int = 6, char_dim: int = 5) -> dict:
    return {
        "encoder": {"name": "elmo", "projection_dim": 4, "dim": 9, "n_layers": 2, **LIMITS},
        "token_embedder": {
            "name": "cnn",
            "activation": "relu",
            "filters": [[1, 4], [2, 5], [3, 6]],
            "n_highway": 2,
            "word_dim": word_dim,
            "char_dim": char_dim,
            "max_characters_per_token": 12,
        },
        "classifier": {"name": "sampled_softmax", "n_samples": 8},
        "dropout": 0.1,
    }


def make_folder(folder: Path, config: dict, legacy: bool = False) -> Path:
    """A random model as upstream writes it."""
    folder.mkdir(exist_ok=True)
    embedder, encoder = config["token_embedder"], config["encoder"]
    rng = np.random.default_rng(1)

    def tensor(*shape: int) -> torch.Tensor:
        return torch.tensor(rng.normal(size=shape) * 1.5 / shape[-1] ** 0.5, dtype=torch.float32)

    tokens, features = {}, 0
    if embedder["word_dim"]:
        tokens["word_emb_layer.embedding.weight"] = tensor(len(WORDS), embedder["word_dim"])
        features += embedder["word_dim"]
        write_lexicon(folder / "word.dic", WORDS)
    if embedder["char_dim"]:
        tokens["char_emb_layer.embedding.weight"] = tensor(len(CHARACTERS), embedder["char_dim"])
        for i, (width, count) in enumerate(embedder["filters"]):
            tokens[f"convolutions.{i}.weight"] = tensor(count, embedder["char_dim"], width)
            tokens[f"convolutions.{i}.bias"] = tensor(count)
        filters = sum(count for _, count in embedder["filters"])
        for i in range(embedder["n_highway"]):
            tokens[f"highways._layers.{i}.weight"] = tensor(2 * filters, filters)
            tokens[f"highways._layers.{i}.bias"] = tensor(2 * filters)
        features += filters
        write_lexicon(folder / "char.dic", CHARACTERS)
    width, cells = encoder["projection_dim"], encoder["dim"]
    tokens |= {"projection.weight": tensor(width, features), "projection.bias": tensor(width)}
    layers = {}
    for i in range(encoder["n_layers"]):
        for name in (f"forward_layer_{i}", f"backward_layer_{i}"):
            layers[f"{name}.input_linearity.weight"] = tensor(4 * cells, width)
            layers[f"{name}.state_linearity.weight"] = tensor(4 * cells, width)
            layers[f"{name}.state_linearity.bias"] = tensor(4 * cells)
            layers[f"{name}.state_projection.weight"] = tensor(width, cells)
    for name, state in (("token_embedder.pkl", tokens), ("encoder.pkl", layers)):
        torch.save(state, folder / name, _use_new_zipfile_serialization=not legacy)
    (folder / "config.json").write_text(json.dumps({"seed": 1, "config_path": "/home/far/away/cnn.json"}))
    (folder / "cnn.json").write_text(json.dumps(config))
    return folder


def write_lexicon(path: Path, entries: list[str]) -> None:
    path.write_text("".join(f"{entry}\t{i}\n" for i, entry in enumerate(entries)), encoding="utf-8")


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


class Upstream:
    """What ELMoForManyLangs computes for one sentence between <bos> and <eos>, from zero states."""

    def __init__(self, folder: Path, config: dict) -> None:
        self.config = config
        self.weights = {}
        for file in ("token_embedder.pkl", "encoder.pkl"):
            for name, tensor in torch.load(folder / file, weights_only=True).items():
                self.weights[name] = tensor.numpy().astype(np.float64)

    def token(self, token: str) -> np.ndarray:
        table, w = self.config["token_embedder"], self.weights
        room = table["max_characters_per_token"]
        token = token[: room - 2]
        parts = []
        if table["word_dim"]:
            row = WORDS.index(token) if token in WORDS else WORDS.index("<oov>")
            parts.append(w["word_emb_layer.embedding.weight"][row])
        if table["char_dim"]:
            inside = [token] if token in ("<bos>", "<eos>") else list(token)
            inside = [c if c in CHARACTERS else "<oov>" for c in inside]
            spelled = ["<eow>", *inside, "<bow>"]  # sic: upstream has the two the wrong way round
            spelled += ["<pad>"] * (room - len(spelled))
            embedded = w["char_emb_layer.embedding.weight"][[CHARACTERS.index(c) for c in spelled]]
            pooled = []
            for i, (width, _) in enumerate(table["filters"]):
                kernel, bias = w[f"convolutions.{i}.weight"], w[f"convolutions.{i}.bias"]  # [F, E, width]
                at = [np.einsum("few,we->f", kernel, embedded[s : s + width]) for s in range(room - width + 1)]
                highest = np.max(at, axis=0) + bias
                pooled.append(np.maximum(highest, 0) if table["activation"] == "relu" else np.tanh(highest))
            x = np.concatenate(pooled)
            for i in range(table["n_highway"]):
                both = w[f"highways._layers.{i}.weight"] @ x + w[f"highways._layers.{i}.bias"]
                new, gate = np.maximum(both[: len(x)], 0), sigmoid(both[len(x) :])
                x = gate * x + (1 - gate) * new
            parts.append(x)
        return w["projection.weight"] @ np.concatenate(parts) + w["projection.bias"]

    def run(self, name: str, inputs: list[np.ndarray]) -> list[np.ndarray]:
        table, w = self.config["encoder"], self.weights
        hidden, cell, outputs = np.zeros(table["projection_dim"]), np.zeros(table["dim"]), []
        for x in inputs:
            gates = w[f"{name}.input_linearity.weight"] @ x + w[f"{name}.state_linearity.weight"] @ hidden
            i, f, g, o = np.split(gates + w[f"{name}.state_linearity.bias"], 4)
            cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
            if table["cell_clip"]:
                cell = np.clip(cell, -table["cell_clip"], table["cell_clip"])
            hidden = w[f"{name}.state_projection.weight"] @ (sigmoid(o) * np.tanh(cell))
            if table["proj_clip"]:
                hidden = np.clip(hidden, -table["proj_clip"], table["proj_clip"])
            outputs.append(hidden)
        return outputs

    def layers(self, sentence: list[str]) -> np.ndarray:  # [1 + L, T + 2, 2P]
        x = [self.token(token) for token in ("<bos>", *sentence, "<eos>")]
        forward, backward = x, x[::-1]
        layers = [np.concatenate([x, x], axis=-1)]
        for i in range(self.config["encoder"]["n_layers"]):
            new_forward = self.run(f"forward_layer_{i}", forward)
            new_backward = self.run(f"backward_layer_{i}", backward)
            forward = [h + x for h, x in zip(new_forward, forward)] if i else new_forward
            backward = [h + x for h, x in zip(new_backward, backward)] if i else new_backward
            layers.append(np.concatenate([forward, backward[::-1]], axis=-1))
        return np.stack(layers)
