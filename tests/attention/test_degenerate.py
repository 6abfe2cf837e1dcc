"""Inputs without variety: equal keys, zero vectors, a single token."""

from __future__ import annotations

import pytest
import torch

from attention.cases import HERE, HKV, KINDS, NAMES, H, allowed_forms, attention, inputs, literal_form, some
from attention.compare import DTYPES, assert_close, assert_same, run
from attention.numbers import TIME, cases, every_form, quiet
from softmax_rnn.attention.attend import attend
from softmax_rnn.attention.variants import VARIANTS


def lean_on_key(spec, tensors):
    """For pure powers above 2, no query almost orthogonal to the one key: the stated limit of a state of features is
    an error of ε (|q||k| / |q·k|)^n, which has no bound there."""
    score = spec.polynomial
    if score is not None and score.orders[0] > 2:
        key = tensors["k"][:, :, :1].repeat_interleave(tensors["q"].shape[1] // tensors["k"].shape[1], 1)
        tensors["q"] = tensors["q"] / 4 + key


@quiet
@pytest.mark.parametrize(("name", "form"), cases(literal=False))
def test_all_keys_equal(name, form):
    spec = VARIANTS[name]
    tensors = inputs(spec, time=TIME)
    tensors["k"] = tensors["k"][:, :, :1].expand(-1, -1, TIME, -1).contiguous()
    lean_on_key(spec, tensors)
    truth = run(attention(spec, form=literal_form(spec)), tensors)
    assert bool(truth.output.isfinite().all())
    assert_same(run(attention(spec, form=form), tensors), truth, torch.float64)


WITH_FEATURES = [name for name in NAMES if "chunked" in allowed_forms(VARIANTS[name])]


@quiet
@pytest.mark.usefixtures("many_chunks")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("form", ["chunked", "recurrent"])
# 1 + x itself may be near 0.
@pytest.mark.parametrize("name", some(KINDS, [name for name in WITH_FEATURES if name != "taylor_1"]))
def test_equal_keys_in_a_state(name, form, dtype):
    """|q·k|^n is smaller than the products that make it."""
    spec = VARIANTS[name]
    tensors = inputs(spec)
    tensors["k"] = tensors["k"][:, :, :1].float().double().expand_as(tensors["k"]).contiguous()
    lean_on_key(spec, tensors)
    truth = attend(spec, **{n: x.to(dtype).double() for n, x in tensors.items()}, form="parallel")
    assert_close(attend(spec, **{n: x.to(dtype) for n, x in tensors.items()}, form=form), truth)


@quiet
@pytest.mark.usefixtures("many_chunks")
@pytest.mark.parametrize("form", ["chunked", "recurrent"])
@pytest.mark.parametrize("name", ["taylor_2", "taylor_6", "power_4"])
def test_similar_keys_in_a_float32_state(name, form):
    spec = VARIANTS[name]
    tensors = inputs(spec, torch.float32)
    tensors["k"] = tensors["k"][:, :, :1] + 0.1 * tensors["k"]
    tensors["q"] = 4 * tensors["q"]
    truth = attend(spec, **{n: x.double() for n, x in tensors.items()}, form="parallel")
    assert_close(attend(spec, **tensors, form=form), truth)


@pytest.mark.parametrize("form", HERE)
def test_equal_keys_average_the_values(form):
    spec = VARIANTS["softmax"]
    if form == "chunked":
        spec = VARIANTS["taylor_2"]
    tensors = inputs(spec, time=TIME)
    tensors["k"] = torch.ones_like(tensors["k"])
    means = tensors["v"].cumsum(2) / torch.arange(1, TIME + 1)[:, None]
    assert_close(attend(spec, **tensors, form=form), means.repeat_interleave(H // HKV, 1))


@quiet
@pytest.mark.parametrize("zero", ["q", "qkv", *(pytest.param(which, marks=pytest.mark.slow) for which in "kv")])
@pytest.mark.parametrize(("name", "form"), cases())
def test_zero_vectors(name, form, zero):
    spec = VARIANTS[name]
    tensors = inputs(spec, time=TIME)
    for which in zero:
        tensors[which] = torch.zeros_like(tensors[which])
    truth = run(attention(spec, form=literal_form(spec)), tensors)
    got = run(attention(spec, form=form), tensors)
    assert all(bool(x.isfinite().all()) for x in (got.output, *got.grads.values()))
    assert bool(((got.output - truth.output).abs() <= 1e-10 * (1 + truth.output.abs())).all())


@pytest.mark.parametrize(("name", "form"), every_form(["softmax", "forgetting_transformer", "taylor_2", "linear_elu"]))
def test_one_token_sees_itself(name, form):
    spec = VARIANTS[name]
    tensors = inputs(spec, time=1)
    assert_close(attend(spec, **tensors, form=form), tensors["v"].repeat_interleave(H // HKV, 1))


@quiet
@pytest.mark.parametrize(("name", "form"), cases(literal=False))
def test_one_token_in_every_form(name, form):
    spec = VARIANTS[name]
    tensors = inputs(spec, time=1)
    truth = run(attention(spec, form=literal_form(spec)), tensors)
    assert_same(run(attention(spec, form=form), tensors), truth, torch.float64)
