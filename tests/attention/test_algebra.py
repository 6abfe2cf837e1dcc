"""What the algebra claims is proven on random inputs, in both directions."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch

from attention.cases import NAMES
from attention.compare import assert_same
from attention.outcomes import TIME, largest_difference, results
from softmax_rnn import init_state
from softmax_rnn.attention.algebra import (
    can_be_negative,
    cancellations,
    diff,
    fixed_state_score,
    is_positive_row_factor,
    n_features,
    same_function,
    same_names,
    simplify,
    state_bytes_after,
    state_numbers,
)
from softmax_rnn.attention.parts import (
    Cosine,
    EluPlusOne,
    Exp,
    KeptKeys,
    Length,
    NearKeys,
    OutputGate,
    Polynomial,
    Relu,
    RowSum,
    power_score,
    taylor_score,
)
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.variants import VARIANTS

pytestmark = pytest.mark.filterwarnings("ignore::softmax_rnn.attention.nonpositive.NonPositiveWarning")

PAIRS = list(combinations(NAMES, 2))
SAME = [pair for pair in PAIRS if same_function(*(VARIANTS[name] for name in pair))]
DIFFERENT = [pair for pair in PAIRS if pair not in SAME]


@pytest.mark.parametrize(("a", "b"), SAME)
def test_names_of_one_function_give_the_same_outputs_and_gradients(a, b):
    for x, y in zip(results(VARIANTS[a]), results(VARIANTS[b]), strict=True):
        assert_same(x, y, torch.float64)


def differ_beyond_the_inputs(a: AttentionSpec, b: AttentionSpec) -> bool:
    """Windows that are longer than the inputs hide nothing of them."""
    given = [one for one in (a.structure, b.structure) if one is not None]
    short = [one for one in given if not isinstance(one, NearKeys) or one.width <= TIME]
    folds_later = isinstance(a.structure, KeptKeys) and isinstance(b.structure, KeptKeys)
    return (a.structure != b.structure or folds_later) and not short


@pytest.mark.parametrize("a", NAMES)
def test_all_other_names_differ(a):
    others = [y for x, y in DIFFERENT if x == a and not differ_beyond_the_inputs(VARIANTS[a], VARIANTS[y])]
    too_close = [b for b in others if not largest_difference(VARIANTS[a], VARIANTS[b]) > 1e-8]
    assert too_close == []


def test_documented_synonyms_are_found():
    groups = [
        ("softmax_divS_gate", "softmax_divS_gatev2", "gated_softmax_no_in_gate_no_norm"),
        ("softmax_divs", "gated_softmax_no_gate_no_norm"),
        ("softmax_divS_norm", "gated_softmax_no_gate_rmsnorm"),
        ("gated_softmax_no_gate_L2norm_nodivS_noclamp", "gated_softmax_out_gate_L2norm_nodivS_noclamp"),
        ("two_mamba", "power_attention_2"),
        ("based", "taylor_2"),
        ("linear_cosine", "cottention"),
    ]
    for group in groups:
        for a, b in combinations(group, 2):
            assert same_function(VARIANTS[a], VARIANTS[b])
            assert b in same_names(VARIANTS[a])


@pytest.mark.parametrize("name", NAMES)
def test_same_function_is_an_equivalence(name):
    spec = VARIANTS[name]
    assert same_function(spec, spec)
    assert same_function(spec, simplify(spec))
    same = same_names(spec)
    assert name in same
    assert all(same_names(VARIANTS[other]) == same for other in same)


NEGATIVE = [
    (AttentionSpec(), False),
    (AttentionSpec(score=taylor_score(1)), True),
    (AttentionSpec(score=taylor_score(2)), False),
    (AttentionSpec(score=taylor_score(79)), True),
    (AttentionSpec(score=taylor_score(80)), False),
    (AttentionSpec(score=power_score(2)), False),
    (AttentionSpec(score=power_score(3)), True),
    (AttentionSpec(score=power_score(0)), False),
    (AttentionSpec(score=Polynomial(coefficients=(-1.0,))), True),
    (AttentionSpec(score=Polynomial(coefficients=(1.0, 0.0, -1.0))), True),
    (AttentionSpec(score=Polynomial(coefficients=(1.0, 2.0, 1.0))), False),
    (AttentionSpec(score=Polynomial(coefficients=(0.9, 2.0, 1.0))), True),
    (AttentionSpec(feature_map=Relu(), score=taylor_score(3)), False),
    (AttentionSpec(feature_map=EluPlusOne(), score=Polynomial(coefficients=(1.0, -1.0, 1.0))), False),
    (AttentionSpec(feature_map=EluPlusOne(), score=Polynomial(coefficients=(1.0, -3.0, 1.0))), True),
    (AttentionSpec(feature_map=Cosine(), score=power_score(1)), True),
    (AttentionSpec(feature_map=Cosine(), score=taylor_score(1, scale=1.0)), False),
    (AttentionSpec(feature_map=Cosine(), score=taylor_score(3, scale=1.0)), False),
    (AttentionSpec(feature_map=Cosine(), score=taylor_score(3, scale=9.0)), True),
]


@pytest.mark.parametrize(("spec", "expected"), NEGATIVE, ids=[str(n) for n in range(len(NEGATIVE))])
def test_can_be_negative(spec, expected):
    assert can_be_negative(spec) is expected


def test_positive_row_factors():
    assert is_positive_row_factor(AttentionSpec())
    assert not is_positive_row_factor(AttentionSpec(score=taylor_score(1)))
    assert is_positive_row_factor(AttentionSpec(score=taylor_score(1), normaliser=RowSum(minimum=1.0)))
    assert not is_positive_row_factor(AttentionSpec(normaliser=None))


def test_diff_names_the_parts():
    a, b = VARIANTS["softmax"], VARIANTS["softmax_divS_gate"]
    assert diff(a, b) == {
        "score": (Exp(), Exp(clamp=5.0)),
        "normaliser": (RowSum(), Length()),
        "output_gate": (None, OutputGate()),
    }
    assert diff(a, a) == {}
    assert list(diff(b, a)) == list(diff(a, b))


@pytest.mark.parametrize(("a", "b"), PAIRS[::37])
def test_diff_is_empty_for_equal_specs_only(a, b):
    assert (diff(VARIANTS[a], VARIANTS[b]) == {}) == (VARIANTS[a] == VARIANTS[b])


def test_cancellations_say_exactly_and_nearly():
    exact = cancellations(VARIANTS["gated_softmax_out_gate_L2norm_nodivS_noclamp"])
    assert any(said.startswith("the output gate cancels: ") for said in exact)
    nearly = cancellations(VARIANTS["gated_softmax"])
    assert [said for said in nearly if "up to the eps (1e-05) of the layer norm; it is kept" in said] == nearly
    assert len(nearly) == 2
    cosine = AttentionSpec(feature_map=Cosine(), score=Exp(scale=1.0, clamp=5.0))
    assert any("clamp is never reached" in said for said in cancellations(cosine))
    assert any("scale of the score cancels" in said for said in cancellations(VARIANTS["power_2"]))


def test_sizes_of_states():
    assert n_features(taylor_score(2), 64) == 1 + 64 + 64 * 65 // 2
    assert n_features(power_score(3), 4) == 20
    assert state_numbers(VARIANTS["linear_cosine"], 64, 32) == 64 * 32
    assert state_numbers(VARIANTS["linear_elu"], 64, 32) == 64 * 33
    assert state_numbers(VARIANTS["softmax"], 64, 64) is None
    assert fixed_state_score(VARIANTS["taylor_4"], 16) == taylor_score(4)
    assert fixed_state_score(VARIANTS["taylor_4"], 64) is None
    assert power_score(2).needs_wide_state
    assert not taylor_score(2).needs_wide_state


WHOLE = [
    name
    for name in NAMES
    if fixed_state_score(VARIANTS[name], 6) is not None
    and not VARIANTS[name].over_time.near + VARIANTS[name].over_time.levels
]


@pytest.mark.parametrize("name", [*WHOLE, "near_far_centred_64"])
def test_bytes_of_states_are_those_of_real_ones(name):
    spec = VARIANTS[name]
    state = init_state(spec, batch=1, heads=1, key_dim=6, value_dim=5)
    kept = 4 * spec.over_time.kept_numbers(6, 5)
    known = {"lengths", "key_norm", "key_sum"}  # a few numbers beside the sums, which are not counted
    assert state_bytes_after(spec, 6, 5, 100) - kept == sum(
        x.nbytes for part, x in state.tensors.items() if part not in known
    )
