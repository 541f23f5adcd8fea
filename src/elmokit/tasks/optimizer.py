"""A task's optimizer: made by its settings, saved as tensors, loaded again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from elmokit.tasks.task import TrainConfig


def make_optimizer(parameters: list[nn.Parameter], config: TrainConfig) -> torch.optim.Optimizer:
    kinds: dict[str, type[torch.optim.Optimizer]] = {
        "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW,
        "adadelta": torch.optim.Adadelta,
        "sgd": torch.optim.SGD,
    }
    options: dict[str, Any] = {"lr": config.learning_rate, "weight_decay": config.weight_decay}
    if config.optimizer == "adadelta":
        options["rho"] = 0.95  # Zeiler's own, and He et al.'s
    return kinds[config.optimizer](parameters, **options)


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    state = optimizer.state_dict()["state"]
    return {
        f"optimizer.{index}.{name}": torch.as_tensor(value).contiguous()
        for index, values in state.items()
        for name, value in values.items()
        if value is not None
    }


def load_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], rates: list[float]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        if key.startswith("optimizer."):
            _, index, name = key.split(".", 2)
            state.setdefault(int(index), {})[name] = tensor
    table = optimizer.state_dict()
    for group, rate in zip(table["param_groups"], rates):
        group["lr"] = rate
    optimizer.load_state_dict({"state": state, "param_groups": table["param_groups"]})
