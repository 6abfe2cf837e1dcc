"""What training processes say to each other: sums, agreement, waiting. With one process nothing is sent.

>>> together_sum(torch.tensor([1.0, 2.0])).tolist()
[1.0, 2.0]
>>> any_process(False)
False
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch import Tensor, nn

from softmax_rnn.train.feed import Share


def this_share() -> Share:
    """The place of this process: from the process group, before it exists from torchrun's environment."""
    if dist.is_available() and dist.is_initialized():
        return Share(dist.get_rank(), dist.get_world_size())
    return Share(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))


def _many() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def together_sum(values: Tensor) -> Tensor:
    """The sum over all processes, for each of them."""
    if _many():
        dist.all_reduce(values)
    return values


def any_process(flag: bool, device: torch.device | str = "cpu") -> bool:
    """Whether any process says yes; all get the same answer."""
    if not _many():
        return flag
    return bool(together_sum(torch.tensor([float(flag)], device=device)) > 0)


def gathered(values: Tensor) -> list[Tensor]:
    """The tensors of all processes, equal in shape, in order of rank."""
    if not _many():
        return [values]
    parts = [torch.empty_like(values) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, values)
    return parts


def first_process(flag: bool, device: torch.device | str = "cpu") -> int | None:
    """The lowest rank that says yes; None when none does. All get the same answer.

    >>> first_process(True), first_process(False)
    (0, None)
    """
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
