"""Rows of the table are found by group, family, state and part; what is refused says why."""

from __future__ import annotations

import pytest

from softmax_rnn.attention.search import names
from softmax_rnn.attention.table.model_table import MODEL_VARIANTS
from softmax_rnn.attention.table.refused import REFUSED
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import InputError, UnknownNameError


def test_each_condition_narrows_the_list():
    assert names() == list(VARIANTS)
    assert set(names(state="fixed")) | set(names(state="growing")) == set(VARIANTS)
    assert names(family="taylor") == ["taylor_1", "taylor_2", "taylor_4"]
    assert {VARIANTS.row(name).group for name in names(family="decays")} == {"decays"}
    assert names(part=["normalised_delta"]) == ["deltaformer"]
    assert "softmax_delta" in names(part=["cosine", "exp"])
    assert "deltanet" not in names(part=["cosine", "exp"])
    assert names(part=["cosine"], family="write rules", state="growing") == ["softmax_delta"]


def test_neighbours_come_by_how_many_parts_differ():
    near = names(like="taylor_2")
    assert set(near[:2]) == {"taylor_2", "based"}
    assert near.index("power_2") < near.index("gated_softmax")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"part": ["cosin"]}, "unknown part 'cosin'; did you mean 'cosine'"),
        ({"family": "tailor"}, "unknown group or family 'tailor'; did you mean 'taylor'"),
        ({"state": "fixd"}, "unknown state 'fixd'; did you mean 'fixed'"),
        ({"like": "sofmax"}, "unknown variant 'sofmax'"),
    ],
)
def test_wrong_conditions_get_the_nearest_word(wrong, said):
    with pytest.raises(InputError, match=said):
        names(**wrong)


@pytest.mark.parametrize("table", [VARIANTS, MODEL_VARIANTS], ids=["specs", "models"])
@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_name_says_why_and_where(table, name):
    with pytest.raises(UnknownNameError, match=r"is refused: .*; see docs/field\.md"):
        table[name]
    assert name not in table


def test_names_are_shown_both_ways():
    assert VARIANTS.full("softmax_l2") == "gated_softmax_no_gate_L2norm_nodivS_noclamp"
    assert VARIANTS.full(VARIANTS.short("softmax_divs")) == "softmax_divs"
    assert all(len(VARIANTS.short(name)) <= 24 for name in VARIANTS)
