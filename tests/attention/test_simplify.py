"""What cancels is removed, what does not is kept, and the function stays the same."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from attention.compare import assert_same
from attention.outcomes import largest_difference, results_at_size_one
from softmax_rnn.attention.algebra import (
    same_function,
    simplify,
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

pytestmark = pytest.mark.filterwarnings("ignore::softmax_rnn.attention.nonpositive.NonPositiveWarning")

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
    result = []
    for phi, score, normaliser, gate, norm in product(FEATURES, SCORES, NORMALISERS, GATES, NORMS):
        spec = legal(feature_map=phi, score=score, normaliser=normaliser, output_gate=gate, output_norm=norm)
        if spec is not None and simplify(spec) != spec:
            result.append(spec)
    return result


COMPOSED = composed()
# Every 37th: prime to the sizes of the lists, so all parts meet.
INDICES = [pytest.param(n, marks=[pytest.mark.slow] if n % 37 else []) for n in range(len(COMPOSED))]


@pytest.mark.parametrize("index", INDICES)
def test_simplified_spec_is_the_same_function(index):
    spec = COMPOSED[index]
    assert_same(results_at_size_one(simplify(spec)), results_at_size_one(spec), torch.float64)


def test_simplify_with_gates_of_the_keys():
    for part in ({"forget_gate": ForgetGate()}, {"input_gate": InputGate()}):
        spec = AttentionSpec(**part, score=Exp(clamp=1.0), output_gate=OutputGate(), output_norm=L2Norm())
        shorter = simplify(spec)
        assert shorter == AttentionSpec(**part, score=Exp(clamp=1.0), normaliser=None, output_norm=L2Norm())
        assert_same(results_at_size_one(shorter), results_at_size_one(spec), torch.float64)


@pytest.mark.parametrize("index", range(0, len(COMPOSED), 120))
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
