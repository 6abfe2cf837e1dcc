"""Everything that the rest of a run depends on, as the files of a checkpoint.

    model.safetensors        the weights
    optimizer.safetensors    AdamW's moments, each named ``weight/what``
    processes.safetensors    of each process: its random numbers, and its loss since the last line of metrics
    state.json               counters, and the place in a stream

Sharded tensors are gathered when they are taken and spread again when they are put back, so the files are the same
however many processes wrote them, and any number can continue. Nothing is pickled.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from softmax_rnn.train.batches import Batches
from softmax_rnn.train.checkpoint import Writer
from softmax_rnn.train.processes import gathered, this_share, together_sum


@dataclass
class Counters:
    """How far a run is."""

    step: int = 0
    """Steps that are done."""
    tokens: int = 0
    """Counted targets that were trained on."""
    skipped: int = 0
    """Steps left out because something was not finite."""
    unlogged_steps: int = 0
    """Steps since the last line of metrics …"""
    unlogged_skipped: int = 0
    """… and those of them that were left out."""
    counts: dict[str, int] = field(default_factory=dict)
    """What else was counted before the run was continued, by name, over all processes."""


@dataclass(frozen=True)
class TrainingState:
    """The things whose state is kept; `restore` changes them in place."""

    network: nn.Module
    optimizer: torch.optim.Optimizer
    batches: Batches
    loss: Tensor
    """The sum of this process' losses since the last line of metrics."""
    counters: Counters
    counted: Callable[[], Mapping[str, int]] = dict
    """What else this process has counted since it began, by name."""

    def counts(self) -> dict[str, int]:
        """What else was counted in the whole run, over all processes; all must call."""
        before = self.counters.counts
        sums = {name: together_sum(torch.tensor(n, device=self.loss.device)) for name, n in self.counted().items()}
        return {name: before.get(name, 0) + int(number) for name, number in sums.items()}

    def files(self) -> dict[str, Writer]:
        """The writers of a checkpoint's files; all processes must call."""
        weights = network_weights(self.network)
        moments = {name: _whole(x) for name, x in self._moments().items()}
        random = torch.stack(gathered(_random_state().to(self.loss.device))).cpu()
        losses = torch.stack(gathered(self.loss.clone())).cpu()
        values = {
            "counters": vars(self.counters) | {"counts": self.counts()},
            "batches": self.batches.state_dict(),
            "processes": this_share().processes,
        }
        return {
            "model.safetensors": lambda path: write_tensors(weights, path),
            "optimizer.safetensors": lambda path: write_tensors(moments, path),
            "processes.safetensors": lambda path: write_tensors({"random": random, "losses": losses}, path),
            "state.json": lambda path: write_values(values, path),
        }

    def restore(self, folder: Path) -> None:
        """Put everything back as it was when the checkpoint was taken."""
        restore_network(self.network, folder)
        self._restore_moments(read_tensors(folder / "optimizer.safetensors"))
        values = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        self.batches.load_state_dict(values["batches"])
        share = this_share()
        vars(self.counters).update(values["counters"])
        processes = read_tensors(folder / "processes.safetensors")
        if values["processes"] == share.processes:
            _restore_random(processes["random"][share.rank])
            self.loss.copy_(processes["losses"][share.rank])
        else:
            self.loss.copy_(processes["losses"].mean())

    def _moments(self) -> dict[str, Tensor]:
        state = self.optimizer.state
        named = [(name, weight) for name, weight in self.network.named_parameters() if weight in state]
        return {f"{name}/{what}": value for name, weight in named for what, value in state[weight].items()}

    def _restore_moments(self, tensors: Mapping[str, Tensor]) -> None:
        weights = dict(self.network.named_parameters())
        for name, value in tensors.items():
            weight, what = name.rsplit("/", 1)
            # AdamW counts its steps in a number that stays on the CPU.
            put = value if what == "step" else _like(weights[weight], value)
            self.optimizer.state[weights[weight]][what] = put


def network_weights(network: nn.Module) -> dict[str, Tensor]:
    """All weights, whole, on the CPU, tied ones in memory once; where they are sharded every process must call."""
    named = network.state_dict(keep_vars=True)
    whole = {id(x): _whole(x) for x in {id(x): x for x in named.values()}.values()}
    return {name: whole[id(x)] for name, x in named.items()}


def restore_network(network: nn.Module, folder: Path) -> None:
    """Put the weights of a checkpoint back."""
    saved = read_tensors(folder / "model.safetensors")
    with torch.no_grad():
        for name, x in network.state_dict().items():
            x.copy_(_like(x, saved[name]))


def _whole(x: Tensor) -> Tensor:
    x = x.detach()
    full: Any = getattr(x, "full_tensor", None)
    return (x if full is None else full()).cpu()


def _like(x: Tensor, whole: Tensor) -> Tensor:
    """A whole tensor on the device of another one, and spread over the processes as that is."""
    placements: Any = getattr(x, "placements", None)
    if placements is None:
        return whole.to(x.device)
    from torch.distributed.tensor import distribute_tensor

    mesh: Any = x.device_mesh  # pyright: ignore[reportAttributeAccessIssue]
    return distribute_tensor(whole.to(mesh.device_type), mesh, placements)


def write_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Named tensors as safetensors; tensors that share memory are written once each."""
    seen: set[int] = set()
    apart = {}
    for name, x in tensors.items():
        apart[name] = x.clone() if x.data_ptr() in seen else x.contiguous()
        seen.add(x.data_ptr())
    save_file(apart, path)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Named tensors, copied: views into a file are aligned differently, and results could differ."""
    return {name: x.clone() for name, x in load_file(path).items()}


def write_values(values: Any, path: Path) -> None:
    """Numbers and names as JSON; floats keep every bit."""
    path.write_text(json.dumps(values, indent=1), encoding="utf-8")


def _random_state() -> Tensor:
    """The state of this process' random numbers, the GPU's after the CPU's."""
    parts = [torch.get_rng_state()]
    if torch.cuda.is_available():
        parts.append(torch.cuda.get_rng_state())
    return torch.cat(parts)


def _restore_random(state: Tensor) -> None:
    cpu = len(torch.get_rng_state())
    torch.set_rng_state(state[:cpu].clone())
    if torch.cuda.is_available() and len(state) > cpu:
        torch.cuda.set_rng_state(state[cpu:].clone())
