"""Halves, autocast, layouts in memory, shared heads: computed in float32 and rounded once."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from attention.cases import HKV, B, D, E, H, attention, inputs, some
from attention.compare import WEIGHT_SEED, Result, assert_close, assert_same, errors, run, seeded
from attention.numbers import TIME, cases, every_form, quiet
from softmax_rnn.attention.attend import attend
from softmax_rnn.attention.variants import VARIANTS

HALVES = [torch.bfloat16, pytest.param(torch.float16, marks=pytest.mark.slow)]


@quiet
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize(("name", "form"), cases())
def test_halves_are_computed_in_float32_and_rounded_once(name, form, dtype):
    spec = VARIANTS[name]
    tensors = inputs(spec, dtype, time=TIME)
    got = run(attention(spec, form=form), tensors)
    truth = run(attention(spec, form=form), {n: x.float() for n, x in tensors.items()})
    assert got.output.dtype == dtype
    assert torch.equal(got.output, truth.output.to(dtype))
    assert all(g.dtype == dtype for g in got.grads.values())


@quiet
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", some())
def test_gradients_of_halves_are_float32_gradients_rounded_once(name, dtype):
    spec = VARIANTS[name]
    tensors = inputs(spec, dtype, time=TIME)
    weight = seeded(B, H, TIME, E, seed=WEIGHT_SEED).to(dtype)
    got = run(attention(spec), tensors, weight)
    truth = run(attention(spec), {n: x.float() for n, x in tensors.items()}, weight)
    rounded = Result(truth.output.to(dtype), {n: g.to(dtype) for n, g in truth.grads.items()})
    assert max(errors(got, rounded).values()) <= torch.finfo(dtype).eps


@pytest.mark.parametrize("form", [None, "parallel", "blockwise", "fused", "recurrent"])
def test_autocast_does_not_lower_the_precision_of_the_sums(form):
    spec = VARIANTS["softmax"]
    tensors = inputs(spec, torch.float32, time=TIME)
    expected = attend(spec, **tensors, form=form)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = attend(spec, **tensors, form=form)
        half = attend(spec, **{n: x.bfloat16() for n, x in tensors.items()}, form=form)
    assert got.dtype == torch.float32
    assert torch.equal(got, expected)
    assert half.dtype == torch.bfloat16


@pytest.mark.parametrize(("name", "form"), every_form(["softmax", "taylor_2", "power_2", "gated_softmax_decay"]))
def test_autocast_around_the_forward_pass_leaves_gradients_in_float32(name, form):
    spec = VARIANTS[name]
    tensors = inputs(spec, torch.float32, time=TIME)

    def under_autocast(**given: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return attend(spec, **given, form=form)

    expected, got = run(attention(spec, form=form), tensors), run(under_autocast, tensors)
    assert torch.equal(got.output, expected.output)
    assert_same(got, expected, torch.float32)


def scattered(x: Tensor) -> Tensor:
    """The same numbers with gaps and the axes in another order in memory."""
    wide = torch.full((*x.shape[:-1], 2 * x.shape[-1]), torch.nan, dtype=x.dtype)
    wide[..., ::2] = x
    order = list(range(x.dim()))[::-1]
    return wide.permute(order).contiguous().permute(order)[..., ::2]


@quiet
@pytest.mark.parametrize(("name", "form"), cases())
def test_layout_in_memory_does_not_matter(name, form):
    spec = VARIANTS[name]
    tensors = inputs(spec, time=TIME)
    odd = {n: scattered(x) for n, x in tensors.items()}
    assert not any(x.is_contiguous() for x in odd.values() if x.dim() > 1)
    leaves = {n: x.requires_grad_() for n, x in odd.items()}
    out = attend(spec, **leaves, form=form)
    weight = seeded(*out.shape, seed=WEIGHT_SEED)
    grads = torch.autograd.grad((out * weight).sum(), list(leaves.values()))
    got = Result(out.detach(), dict(zip(leaves, grads, strict=True)))
    assert_same(got, run(attention(spec, form=form), tensors), torch.float64)


@quiet
@pytest.mark.parametrize("kv_heads", [1, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("name", "form"), cases())
def test_shared_heads_equal_repeated_heads(name, form, kv_heads):
    spec = VARIANTS[name]
    tensors = inputs(spec, time=TIME, kv_heads=kv_heads, seed=50)
    axes = {"k": 1, "v": 1}  # where key heads are counted
    axes |= {n: one.axes.split().index("K") for n, one in spec.declared.items() if "K" in one.axes.split()}
    repeated = tensors | {n: tensors[n].repeat_interleave(H // kv_heads, axis) for n, axis in axes.items()}
    got, truth = (run(attention(spec, form=form), given) for given in (tensors, repeated))
    grads = truth.grads
    folded = {n: grads[n].unflatten(axis, (kv_heads, -1)).sum(axis + 1) for n, axis in axes.items()}
    folded = grads | folded
    assert_same(got, Result(truth.output, folded), torch.float64)


@quiet
@pytest.mark.parametrize("value_dim", [1, 2 * D])
@pytest.mark.parametrize(
    ("name", "form"), every_form(["softmax", "gated_softmax_no_norm", "taylor_2", "power_attention_2"])
)
def test_values_of_any_dimension(name, form, value_dim):
    spec = VARIANTS[name]
    tensors = inputs(spec, time=TIME) | {"v": seeded(B, HKV, TIME, value_dim, seed=77)}
    whole = attend(spec, **tensors, form=form)
    for e in range(value_dim):
        column = attend(spec, **(tensors | {"v": tensors["v"][..., e : e + 1]}), form="parallel")
        assert_close(whole[..., e : e + 1], column)
