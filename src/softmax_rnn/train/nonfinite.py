"""When the loss or the gradient is not finite: at which step, on which batch, and where in the network it began."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from softmax_rnn.errors import RunError
from softmax_rnn.train.batches import Batch

Diagnosis = Callable[[nn.Module, str | None], str]
"""From the network and the name of the first module with a bad output, a sentence about the likely cause."""


class NonFiniteError(RunError):
    """The loss or the gradient is not finite, and the settings say stop."""


def batch_hash(parts: Sequence[Batch]) -> str:
    """A short name for the tokens of a batch, which may come in parts.

    >>> batch_hash([{"input_ids": torch.tensor([[1, 2]])}]) == batch_hash([{"input_ids": torch.tensor([[1, 2]])}])
    True
    """
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part["input_ids"].cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


def first_bad_module(network: nn.Module, parts: Sequence[Batch]) -> str | None:
    """The first module, in the order of computation, whose output is not finite; None when all are.

    Attention may carry a NaN of one position to all others, earlier ones too. That does not move the first module: what
    made the NaN has computed before.

    >>> class Network(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.first, self.second = nn.Identity(), nn.Identity()
    ...     def forward(self, input_ids):
    ...         return self.second(torch.log(self.first(input_ids) - 1.0))
    >>> first_bad_module(Network(), [{"input_ids": torch.ones(2)}])
    'second'
    """
    bad: list[str] = []

    def hook(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def look(module: nn.Module, given: Any, output: Any) -> None:
            tensors = [x for x in (output if isinstance(output, tuple) else (output,)) if isinstance(x, Tensor)]
            if not bad and not all(torch.isfinite(x).all() for x in tensors if x.is_floating_point()):
                bad.append(name)

        return look

    handles = [module.register_forward_hook(hook(name)) for name, module in network.named_modules() if name]
    try:
        with torch.no_grad():
            # All parts, whatever the first ones show: the processes of a sharded network must call it in step.
            for part in parts:
                network(**{name: x for name, x in part.items() if name != "targets"})
    finally:
        for handle in handles:
            handle.remove()
    return bad[0] if bad else None


def message(step: int, loss: float, norm: float, parts: Sequence[Batch], cause: str) -> str:
    """One line for people."""
    return (
        f"step {step}: loss {loss:g}, gradient norm {norm:g} on batch {batch_hash(parts)}; {cause};"
        " with nonfinite: skip, such steps are skipped"
    )
