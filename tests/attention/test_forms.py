"""Every variant × every form that does not refuse × every mask, against the literal double loop.

Quick: every name in the form that the planner takes; every contraction in every form.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch

from attention.cases import (
    CLASSES,
    CONTRACTIONS,
    EPILOGUE,
    EPILOGUES,
    HERE,
    KINDS,
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
    literal_form,
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

Case = tuple[str, str, str, torch.dtype]
CASES: list[Case] = [
    (name, mask, form, dtype)
    for name in NAMES
    for mask in MASKS
    for form in allowed_forms(VARIANTS[name], mask)
    for dtype in DTYPES
]
# The kernel behind the fused form cannot leave out a key between two others.
HARDEST = {"fused": "packed"}


def is_quick(case: Case) -> bool:
    """All masks at once: float64 for each class of contractions, float32 for a few that have all their features."""
    name, mask, form, dtype = case
    return name in (CLASSES if dtype == torch.float64 else CONTRACTIONS) and mask == HARDEST.get(form, "both")


def parameters(cases: list[Case]) -> list[Any]:
    return [
        pytest.param(*case, marks=[] if is_quick(case) else [pytest.mark.slow], id="-".join(map(str, case)))
        for case in cases
    ]


def test_every_name_has_a_literal_truth():
    assert set(NAMES) <= set(LITERAL)


def test_every_form_serves_some_variant_on_every_mask():
    for form in HERE:
        masks = {mask for _, mask, served, _ in CASES if served == form}
        assert masks == ({"plain", "packed"} if form == "fused" else set(MASKS))


def test_every_form_and_every_part_is_in_the_quick_set():
    quick = [case for case in CASES if is_quick(case)]
    assert {form for _, _, form, _ in quick} == set(HERE)
    parts = {part for name in NAMES for part in VARIANTS[name].parts}
    before_the_epilogue = {part for part in parts if part.slot not in EPILOGUE}
    assert {part for name, *_ in quick for part in VARIANTS[name].parts} >= before_the_epilogue
    assert {part for name in (*CONTRACTIONS, *EPILOGUES) for part in VARIANTS[name].parts} == parts


@pytest.mark.parametrize(("name", "mask", "form", "dtype"), parameters(CASES))
def test_form_equals_the_literal_truth(name, mask, form, dtype):
    spec = VARIANTS[name]
    got = run(attention(spec, form=form), inputs(spec, dtype, time=length_of(name)), **MASKS[mask](length_of(name)))
    assert got.output.dtype == dtype
    assert_same(got, truth(name, mask), dtype)


MASKS_IN_TURN = ["plain", "both", *(pytest.param(mask, marks=pytest.mark.slow) for mask in ("padded", "packed"))]


@pytest.mark.parametrize("mask", MASKS_IN_TURN)
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


@pytest.mark.parametrize("name", NAMES)
def test_a_refused_form_raises_with_its_reason(name):
    spec = VARIANTS[name]
    for form in FORMS.keys() - set(allowed_forms(spec)):
        with pytest.raises(InputError, match="cannot compute") as raised:
            attend(spec, **inputs(spec), form=form)
        assert refusal(spec, form) in str(raised.value)


@pytest.fixture
def tiny_blocks(monkeypatch):
    """Blocks and chunks of 4 positions and one head at a time: 13 positions cross every kind of border."""
    monkeypatch.setattr(blockwise, "BLOCK", {"cpu": 4})
    monkeypatch.setattr(blockwise, "GROUP_NUMBERS", {"cpu": 1})
    monkeypatch.setattr(chunked, "chunk_length", lambda features: 4)
    monkeypatch.setattr(chunked, "CHUNK_NUMBERS", 1)


@pytest.mark.usefixtures("tiny_blocks")
@pytest.mark.parametrize(
    ("name", "mask", "form", "dtype"), parameters([case for case in CASES if case[2] in ("blockwise", "chunked")])
)
def test_many_blocks_equal_the_literal_truth(name, mask, form, dtype):
    spec = VARIANTS[name]
    got = run(attention(spec, form=form), inputs(spec, dtype, time=length_of(name)), **MASKS[mask](length_of(name)))
    assert_same(got, truth(name, mask), dtype)


@pytest.mark.usefixtures("tiny_blocks")
def test_tiny_blocks_are_many():
    walk = Walk(2, 2, 1, T, T, Visibility(), torch.device("cpu"))
    assert len(walk.groups()) == 4
    assert len(list(walk.key_blocks(walk.groups()[0], slice(T - 1, T)))) == 4


@pytest.mark.parametrize("at_once", [2, 3, 100])  # 1: the tiny blocks above
@pytest.mark.parametrize("name", ["gated_softmax_decay", "softmax", "linear_elu", "power_attention_2"])
def test_heads_in_groups_of_any_size(monkeypatch, name, at_once):
    spec = VARIANTS[name]
    form = "chunked" if spec.polynomial else "blockwise"
    shared = H if {"input_gate", "forget_gate"} & set(spec.tensors) else 2
    per_head = T * T * H // shared  # blockwise: weights of a key head; chunked: features · chunk · group
    monkeypatch.setattr(blockwise, "GROUP_NUMBERS", {"cpu": at_once * per_head})
    features = n_features(spec.polynomial, 8) if spec.polynomial else 1
    monkeypatch.setattr(chunked, "CHUNK_NUMBERS", at_once * features * T * H // shared)
    got = run(attention(spec, form=form), inputs(spec), **MASKS["both"](T))
    assert_same(got, truth(name, "both"), torch.float64)


LONG = 601
LONG_CASES = [
    pytest.param(name, mask, form, marks=[] if name in KINDS and mask == "both" else [pytest.mark.slow])
    for name in CONTRACTIONS
    for mask in ("plain", "both")
    for form in allowed_forms(VARIANTS[name], mask)
    if form in set(FORMS) - {"parallel", "recurrent"} and form != literal_form(VARIANTS[name])
]


@cache
def long_truth(name: str, mask: str):
    spec = VARIANTS[name]
    return run(attention(spec, form=literal_form(spec)), inputs(spec, time=LONG), **MASKS[mask](LONG))


@pytest.mark.parametrize(("name", "mask", "form"), LONG_CASES)
def test_blocks_of_their_real_size_equal_parallel(name, mask, form):
    spec = VARIANTS[name]
    got = run(attention(spec, form=form), inputs(spec, time=LONG), **MASKS[mask](LONG))
    assert_same(got, long_truth(name, mask), torch.float64)
