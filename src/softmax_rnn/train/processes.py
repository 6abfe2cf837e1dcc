"""The processes that train together: which one this is, what they say to each other, how they share a network.

With one process nothing is sent.

>>> together_sum(torch.tensor([1.0, 2.0])).tolist()
[1.0, 2.0]
>>> any_process(False)
False
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from softmax_rnn.errors import InputError
from softmax_rnn.train.settings import TrainSettings


@dataclass(frozen=True)
class Share:
    """Which of how many processes this is."""

    rank: int = 0
    processes: int = 1


def this_share() -> Share:
    """The place of this process: from the process group, before it exists from torchrun's environment."""
    if dist.is_available() and dist.is_initialized():
        return Share(dist.get_rank(), dist.get_world_size())
    return Share(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))


def on_cpu(settings: TrainSettings) -> bool:
    """Whether the run takes the CPU: asked for, or nothing else is there."""
    return settings.device == "cpu" or not torch.accelerator.is_available()


@contextmanager
def process_group(settings: TrainSettings) -> Iterator[None]:
    """The processes that torchrun started, joined; one process alone needs nothing."""
    if this_share().processes == 1:
        if settings.fsdp:
            raise InputError("fsdp: expected 2 or more processes; add --processes N")
        yield
        return
    from accelerate import PartialState

    if on_cpu(settings):
        _share_cores()
        PartialState(cpu=True, backend="gloo")
    else:
        PartialState()
    try:
        yield
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _share_cores() -> None:
    """Divide the cores among the processes of this machine, unless the number of threads is set already."""
    if "OMP_NUM_THREADS" not in os.environ:
        threads = max(1, (os.cpu_count() or 1) // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
        torch.set_num_threads(min(threads, torch.get_num_threads()))
        os.environ["OMP_NUM_THREADS"] = str(threads)


def _many() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def together_sum(values: Tensor) -> Tensor:
    """The sum over all processes, for each of them."""
    if _many():
        dist.all_reduce(values)
    return values


def gathered(values: Tensor) -> list[Tensor]:
    """The tensors of all processes, equal in shape, in order of rank."""
    if not _many():
        return [values]
    parts = [torch.empty_like(values) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, values)
    return parts


def any_process(flag: bool, device: torch.device | str = "cpu") -> bool:
    """Whether any process says yes; all get the same answer."""
    return first_process(flag, device) is not None


def first_process(flag: bool, device: torch.device | str = "cpu") -> int | None:
    """The lowest rank that says yes; None when none does. All get the same answer.

    >>> first_process(True), first_process(False)
    (0, None)
    """
    if not _many():
        return 0 if flag else None
    flags = torch.cat(gathered(torch.tensor([int(flag)], device=device))).tolist()
    return flags.index(1) if 1 in flags else None


def wait_for_all() -> None:
    """Return when every process has come here."""
    if _many():
        dist.barrier()


def shard(network: nn.Module) -> None:
    """Spread the weights of a network over the processes (FSDP2): each block a unit, the rest one more.

    What may not be split is what the network's ``_no_split_modules`` names; without it the network is one unit.
    """
    from torch.distributed.fsdp import fully_shard

    blocks = set(getattr(network, "_no_split_modules", None) or ())
    for module in network.modules():
        if type(module).__name__ in blocks:
            fully_shard(module)
    fully_shard(network)
