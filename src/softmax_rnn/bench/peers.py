"""What the forms are measured against: the platform's softmax kernel and the formula with all weights in memory."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from softmax_rnn.attention import prologue
from softmax_rnn.attention.attend import attend
from softmax_rnn.attention.contraction import Sums
from softmax_rnn.attention.epilogue import Rows, epilogue
from softmax_rnn.attention.parts.base import Along
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.visibility import Visibility
from softmax_rnn.bench.inputs import Tensors
from softmax_rnn.bench.timing import Work

Function = Callable[[Tensors], Tensor]


def sdpa(tensors: Tensors) -> Tensor:
    """Softmax attention by the platform."""
    return F.scaled_dot_product_attention(tensors["q"], tensors["k"], tensors["v"], is_causal=True)


def materialised(spec: AttentionSpec, tensors: Tensors) -> Tensor:
    """The formula as one would type it: every weight in memory, a multiplicative mask, overflow not prevented."""
    needed = {name: tensors[name] for name in spec.tensors}
    time = tensors["q"].shape[2]
    lengths = torch.arange(1, time + 1, dtype=tensors["q"].dtype)[None]
    q, k = prologue.features(spec, tensors["q"], tensors["k"], needed, lengths)
    v = prologue.values(spec, tensors["v"], needed, lengths, q.shape[1])
    gate = spec.forget_gate
    log_decay = None if gate is None else gate.log_decay(needed, tensors["k"], q.shape[1])
    if gate is not None and log_decay is not None and gate.by_channel:
        x = _channel_scores(q, k, log_decay, gate.bonus_weight(needed))
    else:
        x = q @ k.mT
    if spec.score.clamp is not None:
        x = x.clamp(max=spec.score.clamp)
    weights = torch.exp(x) if spec.score.is_exponential else spec.score.series().differentiable(x)
    if gate is not None and log_decay is not None and not gate.by_channel:
        decay = log_decay.cumsum(-1)
        weights = weights * torch.exp(decay[..., :, None] - decay[..., None, :]).tril()
    weights = weights.tril()
    row_sum = weights.sum(-1) if spec.wants_row_sum else None
    running = prologue.running(Along(spec, tensors["k"], tensors["v"], needed, Visibility(), lengths), {})
    rows = Rows(spec, row_sum, lengths, needed, tensors["q"], tensors["v"], running)
    return epilogue(Sums(weights @ v, row_sum), rows)


def _channel_scores(q: Tensor, k: Tensor, log_decay: Tensor, bonus: Tensor | None) -> Tensor:
    """Σ_c q_ic k_jc e^(c_ic − c_jc) as one product, which overflows where decays are strong."""
    c = log_decay.double().cumsum(2)
    reads = c if bonus is None else c - log_decay
    x = ((q * reads.exp()) @ (k * (-c).exp()).mT).tril(0 if bonus is None else -1).to(q)
    return x if bonus is None else x + torch.diag_embed((q * k * bonus[:, None]).sum(-1))


def forward(function: Function, tensors: Tensors) -> Work:
    """Only the outputs."""

    def work() -> object:
        with torch.no_grad():
            return function(tensors)

    return work


def forward_backward(function: Function, tensors: Tensors) -> Work:
    """Outputs and all gradients; the wanted output is v, any tensor of that shape would do."""

    def work() -> object:
        leaves = {name: x.detach().requires_grad_() for name, x in tensors.items()}
        function(leaves).backward(tensors["v"])
        return leaves["q"].grad

    return work


def timed_pass(function: Function, tensors: Tensors, backward: bool) -> Work:
    """Outputs and gradients, or only the outputs."""
    return (forward_backward if backward else forward)(function, tensors)


def ours(spec: AttentionSpec, form: str | None = None) -> Function:
    """`attend` as a function of the tensors."""

    def function(tensors: Tensors) -> Tensor:
        return attend(spec, **tensors, form=form)

    return function
