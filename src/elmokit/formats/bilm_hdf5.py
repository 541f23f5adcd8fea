"""The published pair, options.json and weights.hdf5 (bilm-tf, AllenNLP), to ours and back.

What differs, and why what is written back is exact: the file's matrices are transposed; its gates stand in the
order i, g, f, o (ours i, f, g, o) with input and recurrent rows in one matrix; the 1 that TensorFlow adds to the
forget gate is not in the file, and not in our weights either; `char_embed` has 261 rows, without the row of zeros
that a padded token gets.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.atomic import replacing, write_file
from elmokit.checkpoint import Checkpoint, check_tensors
from elmokit.config import read_json, shown, suggest
from elmokit.errors import UserError
from elmokit.hdf5 import dataset_at, new_hdf5, reading_hdf5
from elmokit.model.bilm import BiLM, BiLMConfig
from elmokit.model.char_encoder import CharEncoderConfig
from elmokit.model.lstm import LSTMConfig
from elmokit.model.shapes import shapes_only
from elmokit.text.characters import BYTE_CHARACTERS, MASK_SHIFT, ByteMapper, check_room
from elmokit.text.tokens import TokenizerConfig

# An unknown key in these tables could mean another architecture, so it is refused.
LSTM_KEYS = {"cell_clip", "dim", "n_layers", "proj_clip", "projection_dim", "use_skip_connections"}
CNN_KEYS = {"activation", "embedding", "filters", "max_characters_per_token", "n_characters", "n_highway"}
DIRECTIONS = ("forward_lstms", "backward_lstms")  # RNN_0, RNN_1


def read_bilm(options: str | Path, weights: str | Path, *, published: bool = True) -> Checkpoint:
    """`published`: spell tokens exactly as the original software did (see ByteMapper), without NFC."""
    config, characters = read_options(Path(options))
    with shapes_only():
        bilm = BiLM(config)
    arrays = _read_arrays(Path(weights), _to_theirs(bilm.state_dict(), config))
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise UserError(f"{weights}: {name} holds values that are not finite numbers")
    state = _to_ours({name: torch.from_numpy(array) for name, array in arrays.items()}, config)
    bilm.load_state_dict(state, assign=True)
    return Checkpoint(
        bilm.eval(),
        ByteMapper(max_characters_per_token=characters, published=published),
        TokenizerConfig("whitespace", "none" if published else "NFC"),
    )


def write_bilm(checkpoint: Checkpoint, options: str | Path, weights: str | Path) -> None:
    """Write a model so that bilm-tf, AllenNLP and their kin read it."""
    config, mapper = checkpoint.bilm.config, checkpoint.mapper
    encoder = config.encoder
    if not isinstance(encoder, CharEncoderConfig) or encoder.words or not isinstance(mapper, ByteMapper):
        raise UserError("bilm-tf's format holds models over UTF-8 bytes only; this one reads other ids")
    lstm = config.lstm
    table = {
        "lstm": {
            "cell_clip": lstm.cell_clip,
            "dim": lstm.cells,
            "n_layers": lstm.layers,
            "proj_clip": lstm.projection_clip,
            "projection_dim": lstm.width,
            "use_skip_connections": lstm.skip,
        },
        "char_cnn": {
            "activation": encoder.activation,
            "embedding": {"dim": encoder.embedding},
            "filters": [list(pair) for pair in encoder.filters],
            "max_characters_per_token": mapper.max_characters_per_token,
            "n_characters": BYTE_CHARACTERS,
            "n_highway": encoder.highway,
        },
    }
    arrays = _to_theirs({k: v.detach().cpu() for k, v in checkpoint.bilm.state_dict().items()}, config)
    with replacing(Path(weights)) as temporary, new_hdf5(temporary) as (file, _):
        for name, tensor in arrays.items():
            file.create_dataset(name, data=tensor.numpy(), track_times=False)
    write_file(Path(options), (json.dumps(table, indent=2) + "\n").encode())


def read_options(path: Path) -> tuple[BiLMConfig, int]:
    """The architecture, and max_characters_per_token."""
    if not path.is_file():
        raise UserError(f"no options file {path}")
    table = read_json(path)
    try:
        lstm, cnn = _table(table, "lstm", LSTM_KEYS), _table(table, "char_cnn", CNN_KEYS)
        if table.get("bidirectional", True) is not True:
            raise UserError("expected a bidirectional model")
        if cnn.get("n_characters", BYTE_CHARACTERS) not in (BYTE_CHARACTERS, BYTE_CHARACTERS - MASK_SHIFT):
            raise UserError(f"char_cnn.n_characters: expected 261 or 262, found {shown(cnn['n_characters'])}")
        width = _integer(lstm, "projection_dim")
        filters = _filters(cnn["filters"])
        if cnn["activation"] not in ("relu", "tanh"):
            raise UserError(f"char_cnn.activation: expected relu or tanh, found {shown(cnn['activation'])}")
        encoder = CharEncoderConfig(
            embedding=_integer(_mapping(cnn["embedding"], "embedding"), "dim"),
            filters=filters,
            highway=_integer(cnn, "n_highway") if cnn.get("n_highway") else 0,
            activation=cnn["activation"],
            # bilm-tf's own rule; AllenNLP's reader expects the projection always
            projection=sum(n for _, n in filters) != width,
        )
        config = BiLMConfig(
            encoder,
            LSTMConfig(
                layers=_integer(lstm, "n_layers"),
                cells=_integer(lstm, "dim"),
                width=width,
                cell_clip=_bound(lstm, "cell_clip"),
                projection_clip=_bound(lstm, "proj_clip"),
                skip=bool(lstm.get("use_skip_connections", False)),
            ),
        )
        room = _integer({"max_characters_per_token": 50, **cnn}, "max_characters_per_token")
        check_room(room)
        return config, room
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except KeyError as error:
        raise UserError(f"{path}: missing key {error}") from None


def _table(options: dict[str, Any], name: str, known: set[str]) -> dict[str, Any]:
    table = _mapping(options.get(name), name)
    for key in table:
        if key not in known:
            raise UserError(f"unknown key {shown(f'{name}.{key}')}: {suggest(key, known)}")
    return table


def _mapping(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UserError(f"expected a table {name!r}, found {shown(value)}; is this an ELMo options file?")
    return value


def _filters(pairs: Any) -> tuple[tuple[int, int], ...]:
    if not isinstance(pairs, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise UserError(f"filters: expected pairs of a width and a count, found {shown(pairs)}")
    return tuple((_integer({"filters": w}, "filters"), _integer({"filters": n}, "filters")) for w, n in pairs)


def _integer(table: dict[str, Any], key: str) -> int:
    value = table[key]
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UserError(f"{key}: expected a positive integer, found {shown(value)}")
    return value


def _bound(table: dict[str, Any], key: str) -> float | None:
    """No bound where there is none."""
    value = table.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < sys.float_info.max:
        raise UserError(f"{key}: expected a positive number or null, found {shown(value)}")
    return float(value)


def _read_arrays(path: Path, expected: dict[str, Tensor]) -> dict[str, NDArray[np.float32]]:
    """Names, shapes and sizes are those expected, and the file holds all of it, before a number is read."""
    if not path.is_file():
        raise UserError(f"no weights file {path}")
    with reading_hdf5(path) as file:
        found: dict[str, Any] = {}
        file.visititems(lambda name, item: found.update({name: item}) if isinstance(item, h5py.Dataset) else None)
        found |= {name: item for name in expected if (item := dataset_at(file, name)) is not None}
        check_tensors(expected, found, path)
        for name, item in found.items():
            if item.dtype.kind != "f":
                raise UserError(f"{path}: {name}: expected floating-point numbers, found {item.dtype}")
        needed = sum(item.nbytes for item in found.values())
        if needed > path.stat().st_size:
            raise UserError(
                f"{path}: expected {needed:,} bytes of weights, found a file of {path.stat().st_size:,}"
            )
        return {name: np.asarray(item[...], dtype=np.float32) for name, item in found.items()}


def _to_theirs(state: dict[str, Tensor], config: BiLMConfig) -> dict[str, Tensor]:
    """Our tensors under the file's names, in the file's layout."""
    assert isinstance(config.encoder, CharEncoderConfig)
    arrays = {"char_embed": state["encoder.character_embedding.weight"][MASK_SHIFT:]}
    for i in range(len(config.encoder.filters)):
        weight = state[f"encoder.convolutions.{i}.weight"]  # [filters, embedding, width]
        arrays[f"CNN/W_cnn_{i}"] = weight.permute(2, 1, 0).unsqueeze(0)
        arrays[f"CNN/b_cnn_{i}"] = state[f"encoder.convolutions.{i}.bias"]
    for i in range(config.encoder.highway):
        for part in ("carry", "transform"):
            arrays[f"CNN_high_{i}/W_{part}"] = state[f"encoder.highway.{i}.{part}.weight"].T
            arrays[f"CNN_high_{i}/b_{part}"] = state[f"encoder.highway.{i}.{part}.bias"]
    if config.encoder.projection:
        arrays["CNN_proj/W_proj"] = state["encoder.projection.weight"].T
        arrays["CNN_proj/b_proj"] = state["encoder.projection.bias"]
    for where, name in _cells(config):
        both = torch.cat([state[f"{where}.input_weight"], state[f"{where}.hidden_weight"]], dim=1)
        arrays[f"{name}/W_0"] = _swap_gates(both).T
        arrays[f"{name}/B"] = _swap_gates(_shift_forget(state[f"{where}.bias"], config.lstm.forget_bias - 1))
        arrays[f"{name}/W_P_0"] = state[f"{where}.projection_weight"].T
    return {name: array.contiguous() for name, array in arrays.items()}


def _to_ours(arrays: dict[str, Tensor], config: BiLMConfig) -> dict[str, Tensor]:
    assert isinstance(config.encoder, CharEncoderConfig)
    characters = arrays["char_embed"]
    state = {
        "encoder.character_embedding.weight": torch.cat([torch.zeros_like(characters[:MASK_SHIFT]), characters])
    }
    for i in range(len(config.encoder.filters)):
        state[f"encoder.convolutions.{i}.weight"] = arrays[f"CNN/W_cnn_{i}"].squeeze(0).permute(2, 1, 0)
        state[f"encoder.convolutions.{i}.bias"] = arrays[f"CNN/b_cnn_{i}"]
    for i in range(config.encoder.highway):
        for part in ("carry", "transform"):
            state[f"encoder.highway.{i}.{part}.weight"] = arrays[f"CNN_high_{i}/W_{part}"].T
            state[f"encoder.highway.{i}.{part}.bias"] = arrays[f"CNN_high_{i}/b_{part}"]
    if config.encoder.projection:
        state["encoder.projection.weight"] = arrays["CNN_proj/W_proj"].T
        state["encoder.projection.bias"] = arrays["CNN_proj/b_proj"]
    for where, name in _cells(config):
        both = _swap_gates(arrays[f"{name}/W_0"].T)  # [4H, P + P]
        state[f"{where}.input_weight"], state[f"{where}.hidden_weight"] = both.chunk(2, dim=1)
        state[f"{where}.bias"] = _swap_gates(arrays[f"{name}/B"])
        state[f"{where}.projection_weight"] = arrays[f"{name}/W_P_0"].T
    return {name: tensor.contiguous() for name, tensor in state.items()}


def _cells(config: BiLMConfig) -> list[tuple[str, str]]:
    """(our prefix, the file's group) of every LSTM layer."""
    return [
        (f"{stack}.{layer}", f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell")
        for direction, stack in enumerate(DIRECTIONS)
        for layer in range(config.lstm.layers)
    ]


def _swap_gates(rows: Tensor) -> Tensor:
    """i, f, g, o <-> i, g, f, o along the first axis; its own inverse."""
    first, second, third, last = rows.chunk(4)
    return torch.cat([first, third, second, last])


def _shift_forget(bias: Tensor, by: float) -> Tensor:
    if by == 0:
        return bias  # the usual case, and exact: (b + 1) - 1 would not be
    i, f, g, o = bias.chunk(4)
    return torch.cat([i, f + by, g, o])
