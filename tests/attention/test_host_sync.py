"""The host reads no value between inputs and outputs: nothing on a device, or in a compiled graph, has to wait.

Tensors of the CPU are treated like those of a device, every read is an error, and the results are those of a CPU, which
other tests compare with the oracle.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from attention.cases import (
    KINDS,
    MASKS,
    allowed_forms,
    attention,
    in_pieces,
    inputs,
    length_of,
    some,
    step_by_step,
)
from attention.compare import assert_close, assert_same, run, seeded
from attention.no_sync import SyncError, as_on_a_device, no_sync
from softmax_rnn.attention import nonpositive
from softmax_rnn.attention.attend import attend
from softmax_rnn.attention.host_sync import like_a_device
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import InputError


def assert_unexpected_is_same(function: Callable[..., Tensor], name: str, mask: str, dtype: torch.dtype) -> None:
    spec, time = VARIANTS[name], length_of(name)
    with nonpositive.counted():
        known = run(attention(spec), inputs(spec, time=time), **MASKS[mask](time))
    with as_on_a_device():
        got = run(function, inputs(spec, dtype, time=time), **MASKS[mask](time))
    assert_same(got, known, dtype)


@pytest.mark.parametrize("read", [lambda x: x.item(), bool, lambda x: x.tolist(), lambda x: x.nonzero(), float])
def test_a_read_is_an_error(read) -> None:
    with no_sync(), pytest.raises(SyncError):
        read(torch.ones(1))


def test_a_boolean_index_is_a_look() -> None:
    x = torch.arange(3)
    with no_sync(), pytest.raises(SyncError, match="boolean"):
        x[x > 1]


@pytest.mark.parametrize("mask", [pytest.param("plain", marks=pytest.mark.slow), "both"])
@pytest.mark.parametrize("name", some())
def test_every_row_on_its_default_form(name: str, mask: str) -> None:
    assert_unexpected_is_same(attention(VARIANTS[name]), name, mask, torch.float64)


@pytest.mark.parametrize("name", some(KINDS))
def test_every_form(name: str, many_chunks: None) -> None:
    spec = VARIANTS[name]
    for form in allowed_forms(spec, unread=True):
        assert_unexpected_is_same(attention(spec, form=form), name, "both", torch.float32)


@pytest.mark.parametrize("name", some())
def test_pieces_and_steps(name: str) -> None:
    time = length_of(name)
    for function in (in_pieces(VARIANTS[name], [time // 2]), step_by_step(VARIANTS[name], prefill=time - 3)):
        assert_unexpected_is_same(function, name, "padded", torch.float64)


@pytest.mark.parametrize("name", some(KINDS))
def test_steps_without_gradients(name: str) -> None:
    """A step that nobody differentiates takes fewer calls, on a CPU and on a device."""
    time = length_of(name)
    given, steps = inputs(VARIANTS[name], time=time), step_by_step(VARIANTS[name], prefill=2)
    with torch.no_grad(), nonpositive.counted():
        known = attend(VARIANTS[name], **given, **MASKS["padded"](time))
        assert_close(steps(**given, **MASKS["padded"](time)), known)
        with like_a_device():
            assert_close(steps(**given, **MASKS["padded"](time)), known)


@pytest.mark.parametrize("name", some(KINDS))
def test_long_inputs_without_numbers(name: str) -> None:
    """On the meta device there are no values to read; the forms are those of long inputs, forward and backward."""
    spec, time = VARIANTS[name], 300
    given = {n: x.float().to("meta").requires_grad_() for n, x in inputs(spec, time=time).items()}
    output = attend(spec, **given, **{n: x.to("meta") for n, x in MASKS["both"](time).items()})
    grads = torch.autograd.grad(output.sum(), list(given.values()), allow_unused=True)
    assert output.shape == (*given["q"].shape[:3], given["v"].shape[-1])
    assert all(g is None or g.shape == x.shape for g, x in zip(grads, given.values(), strict=True))


@pytest.mark.parametrize("device", ["meta", "fake"])
@pytest.mark.parametrize("name", ["softmax", "taylor_2", "linear_elu", "softmax_l2"])
def test_tensors_without_numbers_in_every_form(name: str, device: str) -> None:
    """A fake tensor cannot be walked along time: in a traced graph the recurrent form refuses, in one line."""
    spec = VARIANTS[name]
    for form in allowed_forms(spec):
        with FakeTensorMode() if device == "fake" else nullcontext():
            given = {n: torch.empty(1, 2, 16, 4, device="cpu" if device == "fake" else "meta") for n in "qkv"}
            if (device, form) == ("fake", "recurrent"):
                with pytest.raises(InputError, match="a graph for any length cannot go position by position"):
                    attend(spec, **given, form=form)
            else:
                assert attend(spec, **given, form=form).shape == (1, 2, 16, 4)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("form", ["parallel", "fused", "recurrent"])
def test_softmax_under_vmap(form: str) -> None:
    q, k, v = torch.randn(3, 3, 1, 2, 12, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    together = torch.func.vmap(lambda *one: attend(VARIANTS["softmax"], *one, form=form))(q, k, v)
    apart = torch.stack([attend(VARIANTS["softmax"], *one, form=form) for one in zip(q, k, v, strict=True)])
    assert_close(together, apart)


@pytest.mark.parametrize("size", [1.0, 1e3, 1e9])
@pytest.mark.parametrize("name", ["taylor_2", "taylor_4", "power_2", "softmax_taylor_80terms"])
def test_rows_of_any_size_stay_floats(name: str, size: float) -> None:
    """Each row's coefficients are reduced where its weights would leave the number range, and only there."""
    given = inputs(VARIANTS[name], time=20)
    given["q"][:, :, ::2] *= size
    expected = attend(VARIANTS[name], **given, nonpositive="ignore")
    for form in allowed_forms(VARIANTS[name]):
        with as_on_a_device():
            got = attend(VARIANTS[name], **{n: x.float() for n, x in given.items()}, form=form)
        torch.testing.assert_close(got.double(), expected, rtol=2e-4, atol=2e-5)


def test_rows_that_are_not_positive_are_told_once_and_later() -> None:
    given = inputs(VARIANTS["power_2"], time=5)
    given["q"].zero_()
    with like_a_device(), no_sync():
        for _ in range(3):
            attend(VARIANTS["power_2"], **given)
    with pytest.warns(nonpositive.NonPositiveWarning, match="120 of 120 row sums") as told:
        nonpositive.warn_of_later_counts()
    assert len(told) == 1
    nonpositive.warn_of_later_counts()


def test_segments_in_pieces_are_refused_on_the_device_too() -> None:
    q, k, v = seeded(3, 1, 2, 4, 4, seed=1)
    ids = torch.tensor([[0, 1, 0, 0]])
    with like_a_device(), pytest.raises(RuntimeError, match="segment_ids: each segment must be contiguous"):
        attend(VARIANTS["softmax"], q, k, v, segment_ids=ids)
    with pytest.raises(InputError, match="segment_ids"):
        attend(VARIANTS["softmax"], q, k, v, segment_ids=ids)
