"""The state of a network and its optimiser as named tensors, the same however many processes share them.

Sharded weights are gathered when they are taken and spread again when they are put back, so a checkpoint of four
processes can be continued by one. Nothing is pickled: tensors go to safetensors, numbers to JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

_OPTIONS = StateDictOptions(full_state_dict=True, cpu_offload=True)


def network_state(network: nn.Module) -> dict[str, Tensor]:
    """All weights, whole, on the CPU; where they are sharded every process must call, and the first gets them."""
    state: Any = get_model_state_dict(network, options=_OPTIONS)
    return dict(state)


def optimizer_state(network: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], Any]:
    """The optimiser's tensors, each named ``weight/what``, and the settings of its groups of weights."""
    state: Any = get_optimizer_state_dict(network, optimizer, options=_OPTIONS)
    tensors = {
        f"{weight}/{what}": value for weight, values in state.get("state", {}).items() for what, value in values.items()
    }
    return tensors, state.get("param_groups", [])


def restore_network(network: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Put weights back."""
    set_model_state_dict(network, dict(state), options=_OPTIONS)


def restore_optimizer(
    network: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], groups: Any
) -> None:
    """Put the optimiser's state back."""
    state: dict[str, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        weight, what = name.rsplit("/", 1)
        state.setdefault(weight, {})[what] = value
    whole: Any = {"state": state, "param_groups": groups}
    set_optimizer_state_dict(network, optimizer, whole, options=_OPTIONS)


def write_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Named tensors as safetensors; tensors that share memory are written once each."""
    seen: set[int] = set()
    own = {}
    for name, x in tensors.items():
        own[name] = x.clone() if x.data_ptr() in seen else x.contiguous()
        seen.add(x.data_ptr())
    save_file(own, path)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Named tensors, in memory of their own: views into a file are aligned otherwise, and results could differ."""
    return {name: x.clone() for name, x in load_file(path).items()}


def write_values(values: Any, path: Path) -> None:
    """Numbers and names as JSON; floats keep every bit."""
    path.write_text(json.dumps(values, indent=1), encoding="utf-8")


def random_state() -> Tensor:
    """The state of this process' random numbers, the GPU's behind the CPU's."""
    parts = [torch.get_rng_state()]
    if torch.cuda.is_available():
        parts.append(torch.cuda.get_rng_state())
    return torch.cat(parts)


def restore_random(state: Tensor) -> None:
    """Continue the random numbers from a state."""
    cpu = len(torch.get_rng_state())
    torch.set_rng_state(state[:cpu].clone())
    if torch.cuda.is_available() and len(state) > cpu:
        torch.cuda.set_rng_state(state[cpu:].clone())
