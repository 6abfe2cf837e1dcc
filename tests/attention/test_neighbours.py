"""Rows of the table against the plain functions of flash-linear-attention, outputs and gradients.

Its package imports triton; its plain functions need torch alone, so their files are loaded by path. They compute in
float32 whatever they are given, and leave out norms, gates and projections, which are left out here too. What else had
to be matched is said in docs/field.md, row by row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor
from torch.nn.functional import layer_norm, normalize, silu

from attention.cases import attention, inputs
from attention.compare import assert_close, assert_same, run, seeded
from softmax_rnn.attention.attend import attend
from softmax_rnn.attention.parts import NormalisedDelta, Read, RowSum
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.variants import VARIANTS

HEADS, TIME, DIM = 3, 70, 16


@cache
def plain(operation: str, file: str = "naive") -> ModuleType:
    """A file of plain functions, without the package around it."""
    package = find_spec("fla")
    assert package is not None and package.submodule_search_locations
    path = Path(package.submodule_search_locations[0]) / "ops" / operation / f"{file}.py"
    actual = spec_from_file_location(f"fla_{operation}", path)
    assert actual is not None and actual.loader is not None
    module = module_from_spec(actual)
    actual.loader.exec_module(module)
    return module


def time_first(function: Callable[..., Tensor | tuple], *tensors: Tensor, **options) -> Tensor:
    """Theirs has (B, T, H, …) and may give a state as well."""
    result = function(*(x.transpose(1, 2) for x in tensors), **options)
    return (result[0] if isinstance(result, tuple) else result).transpose(1, 2)


def retnet(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return plain("retention").naive_retention(q, k, v)


def simple_gla(q: Tensor, k: Tensor, v: Tensor, forget_gate: Tensor) -> Tensor:
    return time_first(plain("simple_gla").naive_recurrent_simple_gla, q, k, v, forget_gate)


def gla(q: Tensor, k: Tensor, v: Tensor, channel_gate: Tensor) -> Tensor:
    return time_first(plain("gla").naive_recurrent_gla, q, k, v, channel_gate)


def hgrn2(q: Tensor, k: Tensor, v: Tensor, lower_bound: Tensor) -> Tensor:
    bound = lower_bound.sigmoid()[:, None]
    alpha = bound + (1 - bound) * k.sigmoid()
    return gla(silu(q), 1 - alpha, v, alpha.log())


def rwkv6(q: Tensor, k: Tensor, v: Tensor, channel_gate: Tensor, bonus: Tensor) -> Tensor:
    return plain("rwkv6", "recurrent_naive").naive_recurrent_rwkv6(q, k, v, channel_gate, bonus, scale=1.0)[0]


def deltanet(q: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> Tensor:
    q, k = (normalize(x, dim=-1) for x in (q, k))
    return plain("delta_rule").delta_rule_recurrence(q * DIM**0.5, k, v, beta)[0]


def gated_deltanet(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, time_step: Tensor, log_rate: Tensor) -> Tensor:
    q, k = (normalize(x, dim=-1) for x in (q, k))
    log_decay = -log_rate.exp()[:, None] * time_step
    recurrence = plain("gated_delta_rule").naive_recurrent_gated_delta_rule
    return time_first(recurrence, q, k, v, beta, log_decay, scale=1.0)


def based(q: Tensor, k: Tensor, v: Tensor, query_projection: Tensor, key_projection: Tensor) -> Tensor:
    return plain("based").naive_parallel_based(q @ query_projection.mT, k @ key_projection.mT, v)


def rebased(
    q: Tensor, k: Tensor, v: Tensor, query_projection: Tensor, key_projection: Tensor, **affine: Tensor
) -> Tensor:
    weight, bias = affine["map_weight"], affine["map_bias"]
    q, k = (layer_norm(x, (DIM,), weight, bias) for x in (q @ query_projection.mT, k @ key_projection.mT))
    return plain("rebased").naive_parallel_rebased(q, k, v)


def forgetting_transformer(q: Tensor, k: Tensor, v: Tensor, forget_gate: Tensor) -> Tensor:
    return time_first(plain("forgetting_attn").naive_forgetting_attn, q, k, v, forget_gate)


def deltaformer(q: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> Tensor:
    return time_first(plain("deltaformer").naive_deltaformer_attn, q, k, v, beta)


def bare(name: str) -> AttentionSpec:
    """The sum alone; plain Based and ReBased have 1e-6 beside it, where their layers have other numbers."""
    spec = replace(VARIANTS[name], output_norm=None, output_gate=None, skip=None)
    return replace(spec, normaliser=RowSum(eps=1e-6)) if name in ("based_16", "rebased") else spec


ROWS: dict[str, Callable[..., Tensor]] = {
    "retnet": retnet,
    "simple_gla": simple_gla,
    "gla": gla,
    "hgrn2": hgrn2,
    "rwkv6": rwkv6,
    "deltanet": deltanet,
    "gated_deltanet": gated_deltanet,
    "based_16": based,
    "rebased": rebased,
    "forgetting_transformer": forgetting_transformer,
    "deltaformer": deltaformer,
}


@pytest.mark.parametrize("name", ROWS)
def test_plain_functions_of_the_field(name):
    spec = bare(name)
    tensors = inputs(spec, torch.float32, time=TIME, heads=HEADS, kv_heads=HEADS, key_dim=DIM, value_dim=DIM)
    assert_same(run(ROWS[name], tensors), run(attention(spec), tensors), torch.float32)


def test_mamba2():
    """There is no plain function: h_t = e^(AΔ_t) h_{t−1} + Δ_t B_t x_tᵀ, A = −e^log_rate; y_t = C_tᵀ h_t + D x_t."""
    spec = replace(VARIANTS["mamba2_ssd"], output_norm=None, output_gate=None)
    x = inputs(spec, time=TIME, heads=HEADS, kv_heads=HEADS)
    alpha = torch.exp(-x["log_rate"].exp()[:, None] * x["time_step"])
    state = torch.zeros(*x["q"].shape[:2], x["k"].shape[-1], x["v"].shape[-1], dtype=torch.float64)
    outputs = []
    for t in range(TIME):
        entering = x["time_step"][:, :, t, None] * x["v"][:, :, t]
        state = alpha[:, :, t, None, None] * state + x["k"][:, :, t, :, None] * entering[:, :, None]
        read = torch.einsum("bhd,bhde->bhe", x["q"][:, :, t], state)
        outputs.append(read + x["skip_weight"][:, None] * x["v"][:, :, t])
    assert_close(attend(spec, **x), torch.stack(outputs, 2))


def test_hedgehog():
    """Its layer needs triton: φ = softmax([2Wx, −2Wx]), theirs with one W for all heads and a bias that starts at 0."""
    q, k, v = (seeded(2, HEADS, 11, DIM, seed=seed) for seed in (1, 2, 3))
    w = torch.eye(DIM, dtype=torch.float64) + 0.1 * seeded(HEADS, DIM, DIM, seed=6)
    features = [torch.cat([y, -y], -1).softmax(-1) for y in (2 * q @ w.mT, 2 * k @ w.mT)]
    weights = (features[0] @ features[1].mT).tril()
    got = attend(VARIANTS["hedgehog"], q, k, v, query_map=w, key_map=w)
    assert_close(got, weights @ v / weights.sum(-1, keepdim=True))


def test_deltaformer_reads_with_the_key():
    """As its layer does, which calls the function of the first read with k for q."""
    spec = AttentionSpec(write_rule=NormalisedDelta(Read.KEY))
    x = inputs(spec, time=21, heads=HEADS, kv_heads=HEADS)
    u = [x["v"][:, :, 0]]
    for t in range(1, 21):
        weights = torch.einsum("bhd,bhjd->bhj", x["k"][:, :, t], x["k"][:, :, :t]).div(8**0.5).softmax(-1)
        known = torch.einsum("bhj,bhje->bhe", weights, torch.stack(u, 2))
        u.append(x["v"][:, :, t] - x["beta"][:, :, t, None] * known)
    truth = torch.nn.functional.scaled_dot_product_attention(x["q"], x["k"], torch.stack(u, 2), is_causal=True)
    assert_close(attend(spec, **x), truth)
