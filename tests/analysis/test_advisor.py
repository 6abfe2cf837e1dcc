"""Sizes, break-even contexts and verdicts; methods by name; coverage of ranges."""

from __future__ import annotations

import pytest
import torch

from softmax_rnn import init_state
from softmax_rnn.analysis.advisor import LayerShape, advise, orders_for_budget
from softmax_rnn.analysis.coverage import Coverage
from softmax_rnn.analysis.methods import METHODS, method_spec
from softmax_rnn.attention.algebra import n_features, state_bytes_after, state_numbers
from softmax_rnn.attention.parts import Polynomial, taylor_score
from softmax_rnn.attention.ranges.kinds import ExpOnRange, ExtremeKeys, FixedRange, NormRange
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.errors import InputError

SMOLLM2 = LayerShape(heads=9, kv_heads=3, key_dim=64, value_dim=64)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_sizes_are_those_of_the_core(order):
    spec = AttentionSpec(score=taylor_score(order))
    advice = advise(SMOLLM2, [order], longest_context=10**9).layers[0]
    assert advice.features == n_features(taylor_score(order), 64)
    assert advice.state_bytes == 4 * 3 * (state_numbers(spec, 64, 64) or 0)
    assert advice.smaller_from is not None and advice.state_bytes is not None
    assert (
        (advice.smaller_from - 1) * SMOLLM2.cache_bytes
        < advice.state_bytes
        <= advice.smaller_from * SMOLLM2.cache_bytes
    )
    assert advice.faster_from is not None and advice.flops_per_token is not None
    assert (
        SMOLLM2.cache_flops(advice.faster_from) >= advice.flops_per_token > SMOLLM2.cache_flops(advice.faster_from - 1)
    )


@pytest.mark.parametrize(("method", "order"), [("extreme_keys_squared", 2), ("box", 3), ("taylor", 5), ("taylor", 4)])
def test_states_in_float64_are_twice_as_large(method, order):
    small = LayerShape(heads=1, kv_heads=1, key_dim=8, value_dim=8)
    advice = advise(small, [order], longest_context=10**6, method=method).layers[0]
    spec = method_spec(method, order)
    state = init_state(spec, batch=1, heads=1, key_dim=8)
    assert advice.state_bytes == state.tensors["matrix"].nbytes == state_bytes_after(spec, 8, 8, 100)


def test_order_4_at_dimension_64_keeps_softmax():
    advice = advise(SMOLLM2, [4], longest_context=10**9)
    assert advice.layers[0].features == 814_385 and advice.verdicts == ["keep softmax"]
    assert "more than 65,536" in advice.layers[0].reason
    assert advice.summary.startswith("Keep softmax in every layer")


def test_the_context_decides():
    assert advise(SMOLLM2, [2], longest_context=1000).verdicts == ["keep softmax"]
    long = advise(SMOLLM2, [2], longest_context=2000)
    assert long.verdicts == ["order 2 from 1,090 tokens on"]
    assert long.summary == "A fixed state pays in every layer."


def test_small_heads_allow_high_orders_but_not_too_high():
    small = LayerShape(heads=4, kv_heads=4, key_dim=4, value_dim=4)
    actual = advise(small, [8, 14, None], longest_context=10**6)
    assert [one.keep_softmax for one in actual.layers] == [False, True, True]
    assert "no digits left" in actual.layers[1].reason and "no order" in actual.layers[2].reason
    assert actual.summary == "A fixed state pays in 1 of 3 layers; keep softmax in the other 2."


def test_specs_of_an_advice():
    advice = advise(SMOLLM2, [2, None], longest_context=8192, method="extreme_keys_squared")
    first, second = advice.specs()
    assert first.score == ExpOnRange(degree=2, range=ExtremeKeys()) and second == AttentionSpec()
    value = advice.to_json()
    assert [AttentionSpec.from_dict(one) for one in value["specs"]] == [first, second]
    assert value["layers"][1]["verdict"] == "keep softmax"


def test_budget():
    assert orders_for_budget([{2: 0.4, 4: 0.1}, {2: -0.1, 4: 0.0}], budget=0.4) == [4, 2]
    with pytest.raises(InputError, match="budget: expected a positive"):
        orders_for_budget([{}], 0.0)
    with pytest.raises(InputError, match="longest_context: expected 1 or more, got 0"):
        advise(SMOLLM2, [2], longest_context=0)


@pytest.mark.parametrize("name", list(METHODS))
def test_methods_have_the_degree_that_they_are_asked_for(name):
    score = method_spec(name, 6, ((-1.0,), (1.0,))).score
    assert isinstance(score, (Polynomial, ExpOnRange)) and score.degree == 6
    assert name.endswith("_squared") == (getattr(score, "power", 1) == 2)


def test_unknown_method_and_missing_ranges():
    with pytest.raises(InputError, match="did you mean 'taylor'"):
        method_spec("tailor", 2)
    with pytest.raises(InputError, match="measured score range"):
        method_spec("head", 2)


def test_coverage():
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(4, 40, 8, generator=generator), torch.randn(2, 40, 8, generator=generator)
    actual = {}
    for name, part in {"norm": NormRange(), "keys": ExtremeKeys(0, 0), "none": FixedRange(low=(0,), high=(0,))}.items():
        coverage = Coverage()
        coverage.add(part, q, k)
        actual[name] = coverage.result()
    assert actual["norm"]["rows_outside"] == 0 and actual["norm"]["width_5"] > 1
    assert actual["keys"]["width_95"] <= 1.01 and 0 < actual["keys"]["rows_outside"] < 1
    assert actual["none"]["rows_outside"] == 1 and actual["none"]["rows"] == 4 * 32
