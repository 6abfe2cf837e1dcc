"""What the algebra claims is proven on random inputs, in both directions."""

from __future__ import annotations

from functools import cache
from itertools import combinations, product

import pytest
import torch

from attention.cases import NAMES, attention, inputs
from attention.compare import Result, assert_same, errors, run
from softmax_rnn.attention.algebra import (
    can_be_negative,
    cancellations,
    diff,
    fixed_state_score,
    is_positive_row_factor,
    n_features,
    needs_wide_state,
    same_function,
    same_names,
    simplify,
    state_numbers,
)
from softmax_rnn.attention.parts import (
    Cosine,
    CumulativeGate,
    EluPlusOne,
    Exp,
    ForgetGate,
    InputGate,
    L2Norm,
    LayerNorm,
    LearnedLength,
    Length,
    OutputGate,
    Polynomial,
    Relu,
    RMSNorm,
    RowSum,
    power_score,
    taylor_score,
)
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.variants import VARIANTS

pytestmark = pytest.mark.filterwarnings("ignore::softmax_rnn.attention.nonpositive.NonPositiveWarning")

SIZES = (1.0, 30.0)
"""Factors of the queries: softmax and its 80-term polynomial part only where scores are large."""


def gates(spec: AttentionSpec, size: float) -> dict[str, torch.Tensor]:
    """Inputs in which every gate is positive, as the algebra presumes."""
    tensors = inputs(spec, time=9)
    tensors["q"] = tensors["q"] * size
    if "output_gate" in tensors:
        tensors["output_gate"] = tensors["output_gate"].sigmoid()
    return tensors


@cache
def results(spec: AttentionSpec) -> tuple[Result, ...]:
    return tuple(run(attention(spec, form="parallel"), gates(spec, size)) for size in SIZES)


def largest_difference(a: AttentionSpec, b: AttentionSpec) -> float:
    return max(max(errors(x, y).values()) for x, y in zip(results(a), results(b), strict=True))


PAIRS = list(combinations(NAMES, 2))
SAME = [pair for pair in PAIRS if same_function(*(VARIANTS[name] for name in pair))]
DIFFERENT = [pair for pair in PAIRS if pair not in SAME]


@pytest.mark.parametrize(("a", "b"), SAME)
def test_names_of_one_function_give_the_same_outputs_and_gradients(a, b):
    for x, y in zip(results(VARIANTS[a]), results(VARIANTS[b]), strict=True):
        assert_same(x, y, torch.float64)


@pytest.mark.parametrize("a", NAMES)
def test_all_other_names_differ(a):
    others = [y for x, y in DIFFERENT if x == a]
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


FEATURES = [None, EluPlusOne(), Relu(), Cosine()]
SCORES = [
    Exp(),
    Exp(clamp=0.5),
    taylor_score(2, scale=0.7),
    taylor_score(3),
    power_score(2),
    power_score(3, scale=2.0),
    Polynomial(coefficients=(0.0, 0.0, 3.0)),
    Polynomial(coefficients=(0.0, -2.0)),
    Polynomial(coefficients=(5.0,)),
    Polynomial(coefficients=(0.0, 1.0), clamp=0.4, scale=0.3),
    Polynomial(coefficients=(1.0, 0.0, -0.2)),
]
NORMALISERS = [
    None,
    RowSum(),
    RowSum(eps=0.5),
    RowSum(minimum=1.5),
    RowSum(detach=True),
    RowSum(minimum=1.5, detach=True),
    Length(),
    LearnedLength(),
    LearnedLength(by_key=True),
    CumulativeGate(),
    CumulativeGate(minimum=3.0, times_length=True),
]
GATES = [None, OutputGate(), OutputGate(after_norm=True)]
NORMS = [None, L2Norm(), L2Norm(times_dim=True), RMSNorm(), LayerNorm()]


def legal(**parts) -> AttentionSpec | None:
    try:
        return AttentionSpec(**parts)
    except ValueError:
        return None


def composed() -> list[AttentionSpec]:
    """All legal combinations that `simplify` changes, with and without the gates of the keys."""
    found = []
    for phi, score, normaliser, gate, norm in product(FEATURES, SCORES, NORMALISERS, GATES, NORMS):
        spec = legal(feature_map=phi, score=score, normaliser=normaliser, output_gate=gate, output_norm=norm)
        if spec is not None and simplify(spec) != spec:
            found.append(spec)
    return found


COMPOSED = composed()
# Every 11th: prime to the sizes of the lists, so all parts meet; the whole takes minutes.
SAMPLE = COMPOSED[::11]


@pytest.mark.parametrize("index", range(len(SAMPLE)))
def test_simplified_spec_is_the_same_function(index):
    spec = SAMPLE[index]
    assert_same(results_at_size_one(simplify(spec)), results_at_size_one(spec), torch.float64)


@cache
def results_at_size_one(spec: AttentionSpec) -> Result:
    return run(attention(spec, form="parallel"), gates(spec, 1.0))


def test_simplify_with_gates_of_the_keys():
    for part in ({"forget_gate": ForgetGate()}, {"input_gate": InputGate()}):
        spec = AttentionSpec(**part, score=Exp(clamp=1.0), output_gate=OutputGate(), output_norm=L2Norm())
        shorter = simplify(spec)
        assert shorter == AttentionSpec(**part, score=Exp(clamp=1.0), normaliser=None, output_norm=L2Norm())
        assert_same(results_at_size_one(shorter), results_at_size_one(spec), torch.float64)


@pytest.mark.parametrize("index", range(0, len(COMPOSED), 40))
def test_simplify_twice_is_simplify_once(index):
    once = simplify(COMPOSED[index])
    assert simplify(once) == once


KEPT = [
    ("a row sum that can be negative", AttentionSpec(score=taylor_score(3), output_norm=L2Norm())),
    ("a factor in front of RMS", AttentionSpec(normaliser=Length(), output_norm=RMSNorm())),
    ("a factor in front of LayerNorm", AttentionSpec(normaliser=Length(), output_norm=LayerNorm())),
    ("a gate behind the norm", AttentionSpec(normaliser=None, output_gate=OutputGate(True), output_norm=L2Norm())),
    ("a length counted at the key", AttentionSpec(normaliser=LearnedLength(by_key=True), output_norm=L2Norm())),
    ("a scale inside a Taylor polynomial", AttentionSpec(score=taylor_score(2, scale=0.5))),
    ("a scale with eps", AttentionSpec(score=power_score(2, scale=0.5), normaliser=RowSum(eps=0.1))),
    ("a scale with a minimum", AttentionSpec(score=power_score(2, scale=0.5), normaliser=RowSum(minimum=0.1))),
    (
        "a negative factor in front of L2",
        AttentionSpec(score=Polynomial(coefficients=(0.0, -2.0)), normaliser=None, output_norm=L2Norm()),
    ),
    ("a clamp that cosines reach", AttentionSpec(feature_map=Cosine(), score=Exp(scale=2.0, clamp=1.0))),
]


@pytest.mark.parametrize(("what", "spec"), KEPT, ids=[what for what, _ in KEPT])
def test_what_does_not_cancel_is_kept(what, spec):
    assert simplify(spec) == spec


def without(spec: AttentionSpec, **parts) -> AttentionSpec:
    return AttentionSpec(**({name: getattr(spec, name) for name in AttentionSpec.__dataclass_fields__} | parts))


REMOVED = [
    (KEPT[0][1], {"normaliser": None}),
    (KEPT[1][1], {"normaliser": None}),
    (KEPT[2][1], {"normaliser": None}),
    (KEPT[3][1], {"output_gate": None}),
    (KEPT[4][1], {"normaliser": None}),
    (KEPT[5][1], {"score": taylor_score(2, scale=1.0)}),
    (KEPT[6][1], {"score": power_score(2, scale=1.0)}),
    (KEPT[7][1], {"score": power_score(2, scale=1.0)}),
    (KEPT[8][1], {"score": power_score(1)}),
    (KEPT[9][1], {"score": Exp(scale=2.0)}),
]


@pytest.mark.parametrize(("spec", "parts"), REMOVED, ids=[what for what, _ in KEPT])
def test_removing_what_is_kept_would_change_the_function(spec, parts):
    changed = without(spec, **parts)
    assert not same_function(spec, changed)
    assert largest_difference(changed, spec) > 1e-8


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
    assert needs_wide_state(power_score(2))
    assert not needs_wide_state(taylor_score(2))
