"""The arguments of `attend`: what is asked for, what is refused, and that the message names it."""

from __future__ import annotations

import pytest
import torch

from attention.cases import NAMES, B, D, E, H, T, inputs
from attention.compare import assert_close
from softmax_rnn.attention.attend import attend
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import InputError, UnknownNameError

SOFTMAX = VARIANTS["softmax"]


@pytest.mark.parametrize("name", NAMES)
def test_every_needed_tensor_is_asked_for_by_name(name):
    spec = VARIANTS[name]
    for missing in spec.tensors:
        tensors = inputs(spec)
        del tensors[missing]
        with pytest.raises(InputError, match=f"^{missing}: this spec needs it"):
            attend(spec, **tensors)


@pytest.mark.parametrize(
    "extra", ["input_gate", "output_gate", "forget_gate", "norm_weight", "norm_bias", "length_exponent"]
)
def test_a_tensor_without_use_is_refused(extra):
    with pytest.raises(InputError, match=f"^{extra}: this spec does not use it .*none"):
        attend(SOFTMAX, **inputs(SOFTMAX), **{extra: torch.ones(1)})


def test_the_refusal_lists_what_the_spec_needs():
    spec = VARIANTS["gated_softmax"]
    with pytest.raises(InputError, match="input_gate, output_gate, norm_weight, norm_bias"):
        attend(spec, **inputs(spec), forget_gate=torch.zeros(B, H, T))


def changed(**changes) -> dict[str, torch.Tensor]:
    tensors = inputs(SOFTMAX, torch.float32)
    return tensors | {name: change(tensors[name]) for name, change in changes.items()}


WRONG = [
    ({"q": lambda x: x[0]}, "q: expected 4 axes"),
    ({"k": lambda x: x.numpy()}, "k: expected a tensor, got ndarray"),
    ({"v": lambda x: x.long()}, "v: expected a floating-point tensor"),
    ({"k": lambda x: x.double()}, "k: expected the dtype of q, torch.float32, got torch.float64"),
    ({"k": lambda x: x[..., :3]}, r"k: expected shape \(2, heads of k, 13, 8\), got \(2, 2, 13, 3\)"),
    ({"k": lambda x: x[:, :, :5]}, "k: expected shape"),
    ({"v": lambda x: x[:, :1]}, r"v: expected shape \(2, 2, 13, value dim\)"),
    ({"v": lambda x: x[:, :, :5]}, "v: expected shape"),
    ({"q": lambda x: x[:, :3]}, "k: its 2 heads must divide the 3 heads of q"),
    ({"q": lambda x: x.to("meta")}, "k: expected the device of q, meta, got cpu"),
    ({"q": lambda x: x[:0], "k": lambda x: x[:0], "v": lambda x: x[:0]}, "got none in batch"),
    ({"v": lambda x: x[..., :0]}, "got none in k or v"),
]


@pytest.mark.parametrize(("changes", "text"), WRONG, ids=[text for _, text in WRONG])
def test_wrong_main_tensors(changes, text):
    with pytest.raises(InputError, match=text):
        attend(SOFTMAX, **changed(**changes))


@pytest.mark.parametrize("name", NAMES)
def test_no_position_at_all_is_refused(name):
    spec = VARIANTS[name]
    with pytest.raises(ValueError, match="at least one entry on every axis, got none in time"):
        attend(spec, **inputs(spec, time=0))


WRONG_EXTRAS = [
    ("gated_softmax", "input_gate", torch.ones(B, H, T + 1), "shape (2, 4, 13)"),
    ("gated_softmax", "output_gate", torch.ones(B, H, T, 1), "shape (2, 4, 13)"),
    ("gated_softmax", "norm_weight", torch.ones(D), f"shape ({E},)"),
    ("gated_softmax", "norm_bias", torch.ones(E, dtype=torch.long), "torch.int64"),
    ("forgetting_transformer", "forget_gate", torch.zeros(B, 2, T), "(2, 2, 13)"),
    ("linear_cosine", "length_exponent", 0.5, "float"),
]


@pytest.mark.parametrize(
    ("name", "tensor", "value", "text"), WRONG_EXTRAS, ids=[f"{w[0]} {w[1]}" for w in WRONG_EXTRAS]
)
def test_wrong_extra_tensors(name, tensor, value, text):
    spec = VARIANTS[name]
    with pytest.raises(InputError, match=f"^{tensor}: expected a floating-point tensor of shape") as raised:
        attend(spec, **(inputs(spec) | {tensor: value}))
    assert text in str(raised.value)


WRONG_MASKS = [
    ({"key_mask": torch.ones(B, T)}, "key_mask: expected a boolean tensor"),
    ({"key_mask": [True] * T}, "key_mask: expected a boolean tensor .* got list"),
    ({"key_mask": torch.ones(B, T + 1, dtype=torch.bool)}, r"key_mask: expected shape \(2, 13\), got \(2, 14\)"),
    ({"segment_ids": torch.ones(B, T)}, "segment_ids: expected a tensor of whole numbers"),
    ({"segment_ids": torch.ones(T, dtype=torch.long)}, r"segment_ids: expected shape \(2, 13\)"),
    (
        {"segment_ids": torch.stack([torch.zeros(T), torch.arange(T) % 3]).long()},
        "each segment must be contiguous, row 1 returns to an earlier id",
    ),
    ({"key_mask": torch.ones(B, T, dtype=torch.bool, device="meta")}, "key_mask: expected the device of q"),
]


@pytest.mark.parametrize(("masks", "text"), WRONG_MASKS, ids=[text for _, text in WRONG_MASKS])
def test_wrong_masks(masks, text):
    with pytest.raises(InputError, match=text):
        attend(SOFTMAX, **inputs(SOFTMAX), **masks)


def test_unknown_form_and_unknown_option():
    with pytest.raises(UnknownNameError, match="unknown form 'paralel'; did you mean 'parallel'"):
        attend(SOFTMAX, **inputs(SOFTMAX), form="paralel")
    with pytest.raises(UnknownNameError, match="unknown value of nonpositive 'eror'; did you mean 'error'"):
        attend(SOFTMAX, **inputs(SOFTMAX), nonpositive="eror")


def test_a_name_is_no_spec():
    with pytest.raises(InputError, match=r"spec: expected an AttentionSpec, such as VARIANTS\[name\], got str"):
        attend("softmax", **inputs(SOFTMAX))


def test_ids_of_any_whole_type_and_sign():
    ids = torch.tensor([-5, -5, 3] + [9] * (T - 3)).expand(B, T)
    expected = attend(SOFTMAX, **inputs(SOFTMAX), segment_ids=ids)
    for dtype in (torch.int8, torch.int32):
        assert torch.equal(attend(SOFTMAX, **inputs(SOFTMAX), segment_ids=ids.to(dtype)), expected)


def test_masks_that_restrict_nothing_change_nothing():
    tensors = inputs(SOFTMAX)
    everything = {"key_mask": torch.ones(B, T, dtype=torch.bool), "segment_ids": torch.full((B, T), 3)}
    assert torch.equal(attend(SOFTMAX, **tensors, **everything), attend(SOFTMAX, **tensors))


def test_inputs_are_left_as_they_were():
    for name in ("gated_softmax_decay", "taylor_2", "softmax_detach_denom"):
        spec = VARIANTS[name]
        tensors = inputs(spec)
        before = {n: x.clone() for n, x in tensors.items()}
        attend(spec, **tensors, key_mask=torch.arange(T).expand(B, T) > 2)
        assert all(torch.equal(x, before[n]) for n, x in tensors.items())


@pytest.mark.parametrize("name", ["softmax", "gated_softmax", "taylor_2", "linear_elu"])
def test_output_without_a_graph_when_nothing_asks_for_one(name):
    spec = VARIANTS[name]
    tensors = inputs(spec)
    plain = attend(spec, **tensors)
    assert not plain.requires_grad
    with torch.no_grad():
        silent = attend(spec, **{n: x.requires_grad_() for n, x in tensors.items()})
    assert not silent.requires_grad
    assert_close(silent, plain, 1e-12)


@pytest.mark.parametrize("only", ["forget_gate", "input_gate", "norm_weight", "q", "v"])
@pytest.mark.parametrize("form", ["parallel", "blockwise", "recurrent"])
def test_gradient_of_one_tensor_alone(only, form):
    spec = VARIANTS["gated_softmax_decay"]
    together = {n: x.requires_grad_() for n, x in inputs(spec).items()}
    alone = inputs(spec)
    alone[only].requires_grad_()
    expected = torch.autograd.grad(attend(spec, **together, form=form).square().sum(), together[only])[0]
    got = torch.autograd.grad(attend(spec, **alone, form=form).square().sum(), alone[only])[0]
    assert_close(got, expected, 1e-12)
