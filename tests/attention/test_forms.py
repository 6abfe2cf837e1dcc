"""Every variant × every form that does not refuse × every mask, against the literal double loop."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from attention.cases import (
    LITERAL,
    MASKS,
    NAMES,
    H,
    T,
    allowed_forms,
    attention,
    end_mask,
    inputs,
    length_of,
    refusal,
    segment_ids,
    truth,
)
from attention.compare import DTYPES, assert_same, run
from softmax_rnn.attention.algebra import n_features
from softmax_rnn.attention.attend import attend
from softmax_rnn.attention.forms import blockwise, chunked
from softmax_rnn.attention.kernels.blocks import Walk
from softmax_rnn.attention.plan import FORMS
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.attention.visibility import Visibility
from softmax_rnn.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore::softmax_rnn.attention.nonpositive.NonPositiveWarning")

CASES = [(name, mask, form) for name in NAMES for mask in MASKS for form in allowed_forms(VARIANTS[name], mask)]
REFUSED = [(name, form) for name in NAMES for form in FORMS if form not in allowed_forms(VARIANTS[name])]
IN_BLOCKS = [case for case in CASES if case[2] in ("blockwise", "chunked")]


def test_every_name_has_a_literal_truth():
    assert set(NAMES) <= set(LITERAL)


def test_every_form_serves_some_variant_on_every_mask():
    for form in FORMS:
        masks = {mask for _, mask, served in CASES if served == form}
        # The kernel behind the fused form cannot leave out a key between two others.
        assert masks == ({"plain", "packed"} if form == "fused" else set(MASKS))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("name", "mask", "form"), CASES)
def test_form_equals_the_literal_truth(name, mask, form, dtype):
    spec = VARIANTS[name]
    got = run(attention(spec, form=form), inputs(spec, dtype, time=length_of(name)), **MASKS[mask](length_of(name)))
    assert got.output.dtype == dtype
    assert_same(got, truth(name, mask), dtype)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", NAMES)
def test_the_planners_choice_equals_the_literal_truth(name, mask):
    spec = VARIANTS[name]
    time = length_of(name)
    got = run(attention(spec), inputs(spec, time=time), **MASKS[mask](time))
    assert_same(got, truth(name, mask), torch.float64)


FUSED = [name for name in NAMES if "fused" in allowed_forms(VARIANTS[name])]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", FUSED)
def test_fused_serves_padding_at_the_ends(name, packed, dtype):
    spec = VARIANTS[name]
    masks = {"key_mask": end_mask()} | ({"segment_ids": segment_ids()} if packed else {})
    truth = run(LITERAL[name], inputs(spec), **masks)
    assert_same(run(attention(spec, form="fused"), inputs(spec, dtype), **masks), truth, dtype)


@pytest.mark.parametrize(("name", "form"), REFUSED)
def test_refused_form_raises_with_its_reason(name, form):
    spec = VARIANTS[name]
    with pytest.raises(InputError, match="cannot serve") as raised:
        attend(spec, **inputs(spec), form=form)
    assert refusal(spec, form) in str(raised.value)


@pytest.fixture
def tiny_blocks(monkeypatch):
    """Blocks and chunks of 4 positions and one head at a time: 19 positions cross every kind of border."""
    monkeypatch.setattr(blockwise, "BLOCK", {"cpu": 4})
    monkeypatch.setattr(blockwise, "GROUP_NUMBERS", {"cpu": 1})
    monkeypatch.setattr(chunked, "chunk_length", lambda features: 4)
    monkeypatch.setattr(chunked, "CHUNK_NUMBERS", 1)


@pytest.mark.usefixtures("tiny_blocks")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("name", "mask", "form"), IN_BLOCKS)
def test_many_blocks_equal_the_literal_truth(name, mask, form, dtype):
    spec = VARIANTS[name]
    got = run(attention(spec, form=form), inputs(spec, dtype, time=length_of(name)), **MASKS[mask](length_of(name)))
    assert_same(got, truth(name, mask), dtype)


@pytest.mark.usefixtures("tiny_blocks")
def test_tiny_blocks_are_many():
    walk = Walk(2, 2, 1, T, T, Visibility(), torch.device("cpu"))
    assert len(walk.groups()) == 4
    assert len(list(walk.key_blocks(walk.groups()[0], slice(T - 1, T)))) == 5


@pytest.mark.parametrize("at_once", [1, 2, 3, 4, 100])
@pytest.mark.parametrize("name", ["gated_softmax_decay", "softmax", "linear_elu", "power_attention_2"])
@pytest.mark.parametrize("mask", ["plain", "both"])
def test_heads_in_groups_of_any_size(monkeypatch, name, mask, at_once):
    spec = VARIANTS[name]
    form = "chunked" if spec.polynomial else "blockwise"
    shared = H if {"input_gate", "forget_gate"} & set(spec.tensors) else 2
    per_head = T * T * H // shared  # blockwise: weights of a key head; chunked: features · chunk · group
    monkeypatch.setattr(blockwise, "GROUP_NUMBERS", {"cpu": at_once * per_head})
    features = n_features(spec.polynomial, 8) if spec.polynomial else 1
    monkeypatch.setattr(chunked, "CHUNK_NUMBERS", at_once * features * T * H // shared)
    got = run(attention(spec, form=form), inputs(spec), **MASKS[mask](T))
    assert_same(got, truth(name, mask), torch.float64)


LONG = 601
LONG_NAMES = [
    "softmax",
    "softmax_clamp_denom",
    "gated_softmax",
    "gated_softmax_decay",
    "gated_relu_no_in_gate_no_norm",
    "gated_softmax_no_gate_L2norm_nodivS_noclamp",
    "cumulative_gated_softmax",
    "softmax_taylor_80terms",
    "forgetting_transformer",
    "linear_elu",
    "linear_cosine_by_key",
    "taylor_2",
    "power_attention_2",
]
LONG_CASES = [
    (name, mask, form)
    for name in LONG_NAMES
    for mask in ("plain", "both")
    for form in allowed_forms(VARIANTS[name], mask)
    if form in ("fused", "blockwise", "chunked")
]


@cache
def long_truth(name: str, mask: str):
    spec = VARIANTS[name]
    return run(attention(spec, form="parallel"), inputs(spec, time=LONG), **MASKS[mask](LONG))


@pytest.mark.parametrize(("name", "mask", "form"), LONG_CASES)
def test_blocks_of_their_real_size_equal_parallel(name, mask, form):
    spec = VARIANTS[name]
    got = run(attention(spec, form=form), inputs(spec, time=LONG), **MASKS[mask](LONG))
    assert_same(got, long_truth(name, mask), torch.float64)
