"""Structures over time: every form, pieces and steps against the literal loop. Each has its own file for the rest."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from attention import test_chunk_ends, test_levels, test_near_far, test_window
from attention.cases import MASKS, T, allowed_forms, attention, in_pieces, inputs, step_by_step
from attention.compare import DTYPES, assert_same, run
from attention.no_sync import as_on_a_device
from softmax_rnn.attention.forms import blockwise, chunked, fused

pytestmark = pytest.mark.filterwarnings("ignore::softmax_rnn.attention.nonpositive.NonPositiveWarning")

FILES = {"window": test_window, "near_far": test_near_far, "levels": test_levels, "chunk_ends": test_chunk_ends}
SPECS = {f"{kind}-{name}": pair for kind, file in FILES.items() for name, pair in file.SPECS.items()}


def slow_unless(quick: bool) -> list[pytest.MarkDecorator]:
    return [] if quick else [pytest.mark.slow]


# Padded and packed rows at once stand for both in the quick set.
CASES = [
    pytest.param(name, mask, form, marks=slow_unless(mask in ("plain", "both")))
    for name, (spec, _) in SPECS.items()
    for mask in MASKS
    for form in allowed_forms(spec, mask)
]


@cache
def truth(name: str, mask: str):
    spec, literal = SPECS[name]
    return run(literal, inputs(spec), **MASKS[mask](T))


@pytest.fixture(autouse=True)
def tiny_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blockwise, "BLOCK", {"cpu": 4})
    monkeypatch.setattr(chunked, "chunk_length", lambda features: 4)
    monkeypatch.setattr(fused, "window_block", lambda width: 4)


@pytest.mark.parametrize(("name", "mask", "form"), CASES)
def test_structures_equal_the_literal_truth(name, mask, form):
    spec = SPECS[name][0]
    for dtype in DTYPES:
        got = run(attention(spec, form=form), inputs(spec, dtype), **MASKS[mask](T))
        assert_same(got, truth(name, mask), dtype)


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("mask", [pytest.param("plain", marks=pytest.mark.slow), "padded"])
def test_pieces_and_steps_equal_the_whole(name, mask):
    spec = SPECS[name][0]
    functions = [in_pieces(spec, [1, 7, 11]), step_by_step(spec, prefill=9)]
    for function in functions if mask == "padded" else [step_by_step(spec)]:
        assert_same(run(function, inputs(spec), **MASKS[mask](T)), truth(name, mask), torch.float64)


FOUND = [name for name in SPECS if name.startswith(("levels", "chunk_ends"))]
"""Where blocks and chunks begin depends on masks and on the past; on a device nobody knows."""


@pytest.mark.parametrize("name", FOUND)
@pytest.mark.parametrize("mask", ["plain", pytest.param("padded", marks=pytest.mark.slow), "both"])
def test_without_a_look(name, mask):
    spec = SPECS[name][0]
    for form in allowed_forms(spec, unread=mask != "plain"):
        with as_on_a_device():
            got = run(attention(spec, form=form), inputs(spec), **MASKS[mask](T))
        assert_same(got, truth(name, mask), torch.float64)


@pytest.mark.parametrize("name", FOUND)
@pytest.mark.parametrize("mask", ["plain", "padded"])
def test_pieces_and_steps_without_a_look(name, mask):
    spec = SPECS[name][0]
    for function in (in_pieces(spec, [1, 7, 11]), step_by_step(spec, prefill=9)):
        with as_on_a_device():
            got = run(function, inputs(spec), **MASKS[mask](T))
        assert_same(got, truth(name, mask), torch.float64)
