"""The spec as a value: JSON, hashing, what is refused and why."""

from __future__ import annotations

import json
import math
from dataclasses import FrozenInstanceError, fields

import pytest

from attention.cases import NAMES
from softmax_rnn.attention.parts import (
    Cosine,
    CumulativeGate,
    Decay,
    EluPlusOne,
    Exp,
    ForgetGate,
    InputGate,
    L2Norm,
    LayerNorm,
    LearnedLength,
    Length,
    OutputGate,
    Part,
    Polynomial,
    Relu,
    RMSNorm,
    RowSum,
    power_score,
    taylor_coefficients,
    taylor_score,
)
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import InputError, UnknownNameError

SPECS = {name: VARIANTS[name] for name in NAMES} | {
    "every part": AttentionSpec(
        feature_map=Cosine(),
        score=Polynomial(coefficients=(0.5, 0.0, -1.25), scale=0.3, clamp=2.0),
        forget_gate=ForgetGate(Decay.NEGATIVE_SOFTPLUS),
        input_gate=InputGate(),
        normaliser=RowSum(minimum=0.1, eps=1e-3, detach=True),
        output_gate=OutputGate(after_norm=True),
        output_norm=LayerNorm(eps=1e-3, affine=False),
    ),
    "no part": AttentionSpec(normaliser=None),
    "order 120": AttentionSpec(score=taylor_score(120)),
}


@pytest.mark.parametrize("name", SPECS)
def test_json_round_trip(name):
    spec = SPECS[name]
    again = AttentionSpec.from_json(spec.to_json())
    assert again == spec
    assert hash(again) == hash(spec)
    assert AttentionSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


@pytest.mark.parametrize("name", SPECS)
def test_to_dict_holds_plain_json_values_only(name):
    values = SPECS[name].to_dict()
    assert json.loads(json.dumps(values)) == values
    assert set(values) == {field.name for field in fields(AttentionSpec)}


def test_left_out_parts_take_their_default():
    assert AttentionSpec.from_dict({}) == AttentionSpec()
    assert AttentionSpec.from_dict({"normaliser": None}).normaliser is None
    assert AttentionSpec.from_dict({"score": {"kind": "exp", "clamp": 5.0}}) == AttentionSpec(score=Exp(clamp=5.0))


def test_coefficients_given_as_a_list_are_hashable():
    score = Polynomial(coefficients=[1, 2])
    assert score.coefficients == (1.0, 2.0)
    assert hash(score) == hash(Polynomial(coefficients=(1.0, 2.0)))


def test_equal_specs_are_one_key():
    assert len({AttentionSpec(), AttentionSpec(score=Exp()), VARIANTS["softmax"]}) == 1
    assert len({VARIANTS[name] for name in ("softmax", "taylor_2", "linear_elu")}) == 3


def test_specs_and_parts_are_frozen():
    with pytest.raises(FrozenInstanceError):
        AttentionSpec().score = Exp(clamp=1.0)
    with pytest.raises(FrozenInstanceError):
        RowSum().eps = 1.0


def test_every_kind_is_registered_in_its_slot():
    slots = {field.name for field in fields(AttentionSpec)}
    assert set(Part.registry) == slots | {"range"}  # a range is a part of a score
    for slot, kinds in Part.registry.items():
        assert all(part.slot == slot and part.kind == kind for kind, part in kinds.items())


REFUSED = [
    (lambda: Exp(scale=0.0), "scale: expected a positive number"),
    (lambda: Exp(scale=-1.0), "scale: expected a positive number"),
    (lambda: Exp(scale=math.inf), "scale: expected a positive number"),
    (lambda: Exp(clamp=math.nan), "clamp: expected a finite number"),
    (lambda: Polynomial(coefficients=()), "at least one"),
    (lambda: Polynomial(coefficients=(1.0, 0.0)), "last one must not be 0"),
    (lambda: Polynomial(coefficients=(math.nan,)), "finite"),
    (lambda: taylor_score(-1), "order: expected 0 to 170"),
    (lambda: power_score(-1), "power: expected 0 to 170"),
    (lambda: RowSum(minimum=0.0), "minimum: expected a positive number"),
    (lambda: RowSum(eps=-1.0), "eps: expected 0 or more"),
    (lambda: RowSum(eps=math.nan), "eps: expected 0 or more"),
    (lambda: CumulativeGate(minimum=-1.0), "minimum: expected a positive number"),
    (lambda: RMSNorm(eps=-1.0), "eps: expected 0 or more"),
    (lambda: LayerNorm(eps=-1.0), "eps: expected 0 or more"),
    (lambda: AttentionSpec(output_gate=OutputGate(after_norm=True)), "after_norm needs an output_norm"),
    (
        lambda: AttentionSpec(normaliser=CumulativeGate(), output_gate=OutputGate()),
        "reads the tensor output_gate itself",
    ),
    (lambda: AttentionSpec(score=None), "score: expected one of exp, polynomial"),
    (lambda: AttentionSpec(score=RowSum()), "score: expected one of exp, polynomial"),
    (lambda: AttentionSpec(normaliser=L2Norm()), "normaliser: expected one of row_sum, length"),
    (lambda: AttentionSpec(feature_map="elu"), "feature_map: expected one of elu_plus_one, relu,"),
]


@pytest.mark.parametrize(("build", "reason"), REFUSED, ids=[reason for _, reason in REFUSED])
def test_illegal_values_are_refused_with_the_reason(build, reason):
    with pytest.raises(InputError, match=reason):
        build()


UNKNOWN = [
    ({"scor": None}, "unknown part 'scor'; did you mean 'score'"),
    ({"score": {"kind": "exo"}}, "unknown score kind 'exo'; did you mean 'exp'"),
    ({"feature_map": {"kind": "Cosin"}}, "did you mean 'cosine'"),
    ({"normaliser": {"kind": "rowsum"}}, "did you mean 'row_sum'"),
    ({"normaliser": {"kind": "row_sum", "minimun": 1.0}}, "did you mean 'minimum'"),
    ({"output_norm": {"kind": "zzzzzz"}}, "expected one of: l2, rms, layer"),
]


@pytest.mark.parametrize(("values", "text"), UNKNOWN, ids=[text for _, text in UNKNOWN])
def test_unknown_names_in_json_come_with_the_nearest(values, text):
    with pytest.raises(UnknownNameError, match=text):
        AttentionSpec.from_dict(values)


MALFORMED = [
    {"score": "exp"},
    {"score": {"clamp": 5.0}},
    {"score": {"kind": "polynomial"}},
    {"score": {"kind": "exp", "scale": "wide"}},
    {"score": {"kind": ["exp"]}},
    {"score": None},
    {"forget_gate": {"kind": "forget_gate", "decay": "sigmoid"}},
]


@pytest.mark.parametrize("values", MALFORMED, ids=str)
def test_malformed_json_is_an_input_error_that_names_the_part(values):
    with pytest.raises(InputError, match=next(iter(values))):
        AttentionSpec.from_dict(values)


TENSORS = [
    (AttentionSpec(), ()),
    (AttentionSpec(input_gate=InputGate(), output_gate=OutputGate()), ("input_gate", "output_gate")),
    (AttentionSpec(normaliser=CumulativeGate()), ("output_gate",)),
    (AttentionSpec(forget_gate=ForgetGate()), ("forget_gate",)),
    (AttentionSpec(output_norm=LayerNorm()), ("norm_weight", "norm_bias")),
    (AttentionSpec(output_norm=RMSNorm()), ("norm_weight",)),
    (AttentionSpec(output_norm=LayerNorm(affine=False)), ()),
    (AttentionSpec(output_norm=L2Norm()), ()),
    (AttentionSpec(normaliser=LearnedLength()), ("length_exponent",)),
    (AttentionSpec(normaliser=Length()), ()),
]


@pytest.mark.parametrize(("spec", "names"), TENSORS, ids=[str(names) for _, names in TENSORS])
def test_tensors_names_what_the_spec_needs(spec, names):
    assert spec.tensors == names


def test_polynomial_facts():
    score = Polynomial(coefficients=(0.0, 2.0, 0.0, 3.0))
    assert score.degree == 3
    assert score.orders == (1, 3)
    assert not score.is_taylor
    assert taylor_score(7).is_taylor
    assert taylor_coefficients(3) == (1.0, 1.0, 0.5, 1 / 6)


def test_only_an_unclamped_polynomial_has_finite_features():
    assert AttentionSpec(score=taylor_score(2)).polynomial == taylor_score(2)
    assert AttentionSpec(score=Polynomial(coefficients=(0.0, 1.0), clamp=5.0)).polynomial is None
    assert AttentionSpec().polynomial is None


@pytest.mark.parametrize("part", [EluPlusOne(), Relu(), Cosine()], ids=lambda part: part.kind)
def test_parts_without_options_are_equal_by_kind(part):
    assert part == type(part)()
    assert Part.registry[part.slot][part.kind] is type(part)
