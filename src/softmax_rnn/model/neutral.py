"""The parameters that a spec adds to a trained model, so that adding them changes nothing.

Each declaration says its neutral value. A projection starts with W = 0 and its neutral bias:

    σ gates           b = 0: the gate is ½ everywhere, and what it multiplies is doubled (a power of two: exact).
                      A gate before the output norm doubles the values (v_proj), one after it the output (o_proj).
                      σ has its steepest slope there, so the gate learns; a bias that makes σ = 1 would not move.
    forget gate       a bias that makes the log decay 0 in the number range (−4e-18 per step), 0 for r/1024
    cumulative gate   b = 0: Σ exp(0) = n, the number of keys seen

and a parameter with its neutral or its first value: what a skip adds is 0. Dropping a σ gate halves what adding it
had doubled.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from softmax_rnn.attention.parts.base import Projection
from softmax_rnn.attention.parts.decays import NO_DECAY
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.model.spec_tensors import SpecTensors

FORGET_BIAS = NO_DECAY


def neutral_factors(spec: AttentionSpec | None) -> tuple[float, float]:
    """What the neutral tensors multiply the values by, and the output.

    >>> from softmax_rnn.attention.variants import VARIANTS
    >>> neutral_factors(VARIANTS["gated_softmax"])
    (0.25, 1.0)
    """
    factors = {"values": 1.0, "output": 1.0}
    for declared in () if spec is None else spec.declared.values():
        if declared.multiplies is not None and isinstance(declared.made, Projection):
            bias = torch.tensor(declared.made.neutral_bias, dtype=torch.float64, device="cpu")
            factors[declared.multiplies] *= float(declared.made.activation(bias))
    return factors["values"], factors["output"]


@torch.no_grad()
def fold_gates(old: AttentionSpec | None, new: AttentionSpec, v_proj: nn.Module, o_proj: nn.Module) -> None:
    """The projections make up for the gates that come, or go."""
    (v_old, o_old), (v_new, o_new) = neutral_factors(old), neutral_factors(new)
    for parameter in v_proj.parameters():
        parameter.mul_(v_old / v_new)
    weight = o_proj.weight
    assert isinstance(weight, Tensor)
    weight.mul_(o_old / o_new)


@torch.no_grad()
def neutral_tensors(
    spec: AttentionSpec,
    like: Tensor,
    heads: int,
    head_dim: int,
    old: SpecTensors | None,
    forget_bias: float,
    kv_heads: int | None = None,
    value_dim: int | None = None,
) -> SpecTensors:
    """The spec's parameters, neutral; those that the old ones have with the same declaration keep their values."""
    new = SpecTensors(spec, like.shape[-1], heads, head_dim, kv_heads, value_dim, like.device, like.dtype)
    known = {} if old is None else old.spec.declared
    for name, declared in spec.declared.items():
        made = getattr(new, name)
        if known.get(name) == declared:
            before = getattr(old, name)
            made.copy_(before) if isinstance(made, Tensor) else made.load_state_dict(before.state_dict())
        elif isinstance(declared.made, Projection):
            made.weight.zero_()
            made.bias.fill_(_neutral(declared.made.neutral_bias, forget_bias))
        elif declared.made.neutral is not None:
            made.fill_(_neutral(declared.made.neutral, forget_bias))
    return new


def _neutral(value: float, forget_bias: float) -> float:
    """What keeps a decay from decaying is as far from 0 as the caller wants it."""
    return value * forget_bias / NO_DECAY if abs(value) == NO_DECAY else value
