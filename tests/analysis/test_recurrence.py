"""The recurrent network on one head: its states are sums over the past, and its outputs are those of attention."""

from dataclasses import replace

import pytest
import torch

from softmax_rnn.analysis import recurrence
from softmax_rnn.analysis.reading import Head
from softmax_rnn.attention.parts import NearFar, Window
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import InputError


@pytest.fixture(scope="module")
def head():
    torch.manual_seed(5)
    return Head(*torch.randn(3, 7, 3, dtype=torch.float64))


def test_softmax_is_exact_and_its_state_grows(head):
    steps = list(recurrence.play(VARIANTS["softmax"], head))
    assert [step.seen for step in steps] == list(range(1, 8))
    assert max(step.error for step in steps) < 1e-12
    assert steps[-1].numbers > steps[0].numbers and not steps[-1].fixed
    assert [step.held for step in steps] == [tuple(range(n)) for n in range(1, 8)]
    expected = torch.exp(head.scores[6]).sum()
    assert steps[-1].row_sum == pytest.approx(float(expected), rel=1e-12)
    appended = torch.cat([head.k[6], head.v[6]]).norm()
    assert steps[-1].added == pytest.approx(float(appended))


def test_a_fixed_state_is_the_sum_of_outer_products(head):
    steps = list(recurrence.play(VARIANTS["taylor_1"], head))
    ones = torch.ones(7, 1, dtype=torch.float64)
    values = torch.cat([head.v, ones], 1)
    for step in steps:
        t = step.seen
        assert step.norms[0] == pytest.approx(float(values[:t].sum(0).norm()))
        assert step.norms[1] == pytest.approx(float((head.k[:t].T @ values[:t]).norm()))
        k1 = torch.cat([ones[0], head.k[t - 1]])
        assert step.added == pytest.approx(float(torch.outer(k1, values[t - 1]).norm()))
        assert step.numbers == steps[0].numbers
    x = head.scores[6]
    weights = (1 + x) / (1 + x).sum()
    truth = x.softmax(0) @ head.v
    error = (weights @ head.v - truth).norm() / head.v.norm(dim=-1).max()
    assert steps[-1].error == pytest.approx(float(error), rel=1e-9)


def test_what_cannot_be_played_says_why(head):
    with pytest.raises(InputError, match="also needs output_gate"):
        list(recurrence.play(VARIANTS["softmax_divS_gate"], head))
    wide = Head(*torch.zeros(3, 2, 64, dtype=torch.float64))
    with pytest.raises(InputError, match="too large to watch"):
        list(recurrence.play(VARIANTS["taylor_3"], wide))


@pytest.mark.parametrize("far", [False, True])
def test_windows_and_sinks_hold_their_keys_and_the_rest_is_summed(head, far):
    like = VARIANTS["taylor_2"] if far else VARIANTS["softmax"]
    structure = NearFar(width=2, sinks=1) if far else Window(width=2, sinks=1)
    steps = list(recurrence.play(replace(like, structure=structure), head))
    assert [step.held for step in steps[3:]] == [(0, 2, 3), (0, 3, 4), (0, 4, 5), (0, 5, 6)]
    if far:
        assert steps[-1].matrix is not None and float(steps[-1].matrix.norm()) > 0
        assert steps[-1].numbers == steps[-2].numbers


@pytest.mark.parametrize("name", ["kept_keys_2", "heavy_hitters_2"])
def test_keys_of_most_weight_are_held_beside_window_and_sinks(name):
    torch.manual_seed(7)
    head = Head(*torch.randn(3, 20, 3, dtype=torch.float64))
    steps = list(recurrence.play(VARIANTS[name], head))
    kept = set(steps[-1].held)
    assert {0, 1, 2, 3, 18, 19} < kept and len(kept) == 8
    assert all(step.row_sum is None for step in steps)
