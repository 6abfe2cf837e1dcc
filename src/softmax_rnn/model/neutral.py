"""The parameters that a spec adds to a trained model, so that adding them changes nothing.

    σ gates           W = 0, b = 0: the gate is ½ everywhere, and what it multiplies is doubled (a power of two: exact).
                      A gate before the output norm doubles the values (v_proj), one after it the output (o_proj).
                      σ has its steepest slope there, so the gate learns; a bias that makes σ = 1 would not move.
    forget gate       W = 0 and a bias that makes the log decay 0 in the number range (−4e-18 a step), 0 for r/1024
    cumulative gate   W = 0, b = 0: Σ exp(0) = n, the number of keys seen
    norms             weight 1, bias 0
    length exponent   0.5, where it starts in every model

Dropping a σ gate halves what adding it had doubled.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from softmax_rnn.attention.parts import Decay
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.model.gates import SpecTensors

FORGET_BIAS = 40.0
"""log σ(40) = −4e-18: no decay at all, and no slope either. 8 forgets 0.03 % a step and learns."""
FORGET_SIGN = {Decay.LOG_SIGMOID: 1.0, Decay.NEGATIVE_SOFTPLUS: -1.0, Decay.SCALED: 0.0}


def doublings(spec: AttentionSpec | None) -> tuple[int, int]:
    """How many factors ½ the neutral gates put on the values, and how many on the output.

    >>> from softmax_rnn.attention.variants import VARIANTS
    >>> doublings(VARIANTS["gated_softmax"])
    (2, 0)
    """
    if spec is None:
        return 0, 0
    gate = spec.output_gate
    before = int(spec.input_gate is not None) + int(gate is not None and not gate.after_norm)
    return before, int(gate is not None and gate.after_norm)


@torch.no_grad()
def fold_gates(old: AttentionSpec | None, new: AttentionSpec, v_proj: nn.Module, o_proj: nn.Module) -> None:
    """Double, or halve, the projections around the gates that come, or go."""
    (v_old, o_old), (v_new, o_new) = doublings(old), doublings(new)
    for parameter in v_proj.parameters():
        parameter.mul_(2.0 ** (v_new - v_old))
    weight = o_proj.weight
    assert isinstance(weight, Tensor)
    weight.mul_(2.0 ** (o_new - o_old))


@torch.no_grad()
def neutral_tensors(
    spec: AttentionSpec, like: Tensor, heads: int, head_dim: int, old: SpecTensors | None, forget_bias: float
) -> SpecTensors:
    """The spec's parameters, neutral; those that the old ones have with the same meaning keep their values."""
    new = SpecTensors(spec, like.shape[-1], heads, head_dim, device=like.device, dtype=like.dtype)
    for name, activation in new.activations.items():
        projection = getattr(new, name)
        projection.weight.zero_()
        projection.bias.zero_()
        if old is not None and old.activations.get(name) is activation:
            projection.load_state_dict(getattr(old, name).state_dict())
        elif name == "forget_gate" and spec.forget_gate is not None:
            projection.bias.fill_(FORGET_SIGN[spec.forget_gate.decay] * forget_bias)
    kept = {} if old is None else dict(old.named_parameters(recurse=False))
    for name, parameter in new.named_parameters(recurse=False):
        if name in kept:
            parameter.copy_(kept[name])
    return new
