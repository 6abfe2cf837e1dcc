"""exp near and a polynomial far: every form, pieces and steps against the literal loop, and the limit of softmax."""

from __future__ import annotations

import pytest
import torch

import oracle
from attention.cases import allowed_forms, fresh_state, inputs
from attention.compare import assert_close
from oracle import decay, dot, elu1, f, identity, l2, near_far, normalised, sum_gv, sum_v, sum_w, taylor_weight
from softmax_rnn.attention.algebra import same_function, simplify, state_numbers
from softmax_rnn.attention.attend import attend, extend
from softmax_rnn.attention.parts import (
    Alone,
    Averaged,
    EluPlusOne,
    Exp,
    ForgetGate,
    Gated,
    Hedgehog,
    InputGate,
    L2Norm,
    Length,
    Lolcats,
    NearFar,
    OutputGate,
    Polynomial,
    RowSum,
    power_score,
    taylor_score,
)
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore::softmax_rnn.attention.nonpositive.NonPositiveWarning")

NEAR = NearFar(5, 2)
TAYLOR = taylor_weight(2, identity)


def far(weight: oracle.Weight) -> oracle.Weight:
    return near_far(weight, 5, 2)


def gated(r: oracle.Row):
    def weight(r, j):
        return far(TAYLOR)(r, j) * decay(r, j)

    return r.out_gate * sum_gv(r, weight) / sum_w(r, weight)


def far_alone(r: oracle.Row):
    gone = [j for j in r.all_keys if j not in oracle.window(4, 1)(r.all_keys)]
    weights = {j: TAYLOR(r, j) for j in gone}
    return sum(weights[j] * r.v(j) for j in gone) / sum(weights.values()) if gone else 0 * r.v(r.i)


SPECS = {
    "taylor": (AttentionSpec(score=taylor_score(2), structure=NEAR), normalised(far(TAYLOR))),
    "no_sinks": (
        AttentionSpec(score=taylor_score(1), structure=NearFar(3)),
        normalised(near_far(taylor_weight(1, identity), 3)),
    ),
    "gates": (
        AttentionSpec(
            score=taylor_score(2),
            structure=NEAR,
            forget_gate=ForgetGate(),
            input_gate=InputGate(),
            output_gate=OutputGate(),
        ),
        f(gated),
    ),
    "map": (
        AttentionSpec(feature_map=EluPlusOne(), score=power_score(1, scale=1.0), structure=NEAR),
        normalised(far(dot(elu1))),
    ),
    "l2": (
        AttentionSpec(score=taylor_score(2), normaliser=None, output_norm=L2Norm(), structure=NEAR),
        f(lambda r: l2(sum_v(r, far(TAYLOR)))),
    ),
}
SPECS |= {
    "centred": (
        AttentionSpec(score=taylor_score(2), structure=NearFar(4, 1, centred=True)),
        normalised(oracle.centred(2, 4, 1)),
    ),
    "centred_decay": (
        AttentionSpec(score=taylor_score(1), structure=NearFar(3, centred=True), forget_gate=ForgetGate()),
        normalised(oracle.centred(1, 3)),
    ),
    "gaussian": (
        AttentionSpec(score=taylor_score(2), structure=NearFar(4, 1, centred=True, gaussian=True)),
        normalised(oracle.gaussian(2, 4, 1)),
    ),
    "gaussian_decay": (
        AttentionSpec(
            score=taylor_score(3), structure=NearFar(3, centred=True, gaussian=True), forget_gate=ForgetGate()
        ),
        normalised(oracle.gaussian(3, 3)),
    ),
    "lolcats": (
        AttentionSpec(
            feature_map=Hedgehog(rows=3, factor=1.0, joint=False),
            score=power_score(1, scale=1.0),
            structure=Lolcats(4, 1),
        ),
        normalised(oracle.lolcats(oracle.alike(oracle.two_softmaxes), 4, 1)),
    ),
    "lolcats_undivided": (
        AttentionSpec(score=taylor_score(2), normaliser=None, structure=Lolcats(4)),
        f(lambda r: sum_v(r, oracle.lolcats(TAYLOR, 4))),
    ),
    "average": (
        AttentionSpec(score=taylor_score(2), structure=Averaged(4, 1)),
        oracle.two_outputs(TAYLOR, 4, 1),
    ),
    "gate": (
        AttentionSpec(score=taylor_score(2), structure=Gated(3), forget_gate=ForgetGate()),
        oracle.two_outputs(lambda r, j: TAYLOR(r, j) * decay(r, j), 3, share=oracle.far_gate),
    ),
    "far_alone": (
        AttentionSpec(score=taylor_score(2), structure=NearFar(4, 1, alone=Alone.FAR)),
        f(far_alone),
    ),
    "near_alone": (
        AttentionSpec(score=taylor_score(2), structure=NearFar(4, 1, alone=Alone.NEAR)),
        normalised(oracle.exp, oracle.window(4, 1)),
    ),
}


def test_all_forms_but_fused_serve():
    forms = {form for spec, _ in SPECS.values() for form in allowed_forms(spec)}
    assert forms == {"parallel", "blockwise", "chunked", "recurrent"}


@pytest.mark.parametrize("form", ["parallel", "blockwise", "recurrent"])
def test_a_wide_window_is_softmax_bit_for_bit(form):
    tensors = inputs(AttentionSpec(), torch.float32)
    spec = AttentionSpec(score=taylor_score(2), structure=NearFar(15, 4))
    assert torch.equal(attend(spec, **tensors, form=form), attend(AttentionSpec(), **tensors, form=form))


def test_a_high_order_is_softmax():
    tensors = inputs(AttentionSpec())
    spec = AttentionSpec(score=taylor_score(40), structure=NearFar(3))
    assert_close(attend(spec, **tensors, form="blockwise"), attend(AttentionSpec(), **tensors))


@torch.no_grad()
def test_the_state_has_a_fixed_size_and_long_inputs_go_in_spans():
    spec = AttentionSpec(score=taylor_score(1), structure=NearFar(6, 2))
    tensors = inputs(spec, time=2100, batch=1)
    whole = attend(spec, **tensors, form="chunked")
    assert_close(whole, attend(spec, **tensors, form="blockwise"))
    state, sizes = fresh_state(spec, tensors), []
    for t in range(40):
        here = {name: x[:, :, t : t + 1] for name, x in tensors.items()}
        output, state = extend(spec, **here, state=state)
        assert_close(output, whole[:, :, t : t + 1])
        sizes.append(state.bytes)
    assert len(set(sizes[8:])) == 1
    assert state_numbers(spec, 8, 5) == 9 * 6 + 8 * (8 + 5)


def test_what_cannot_be_near_and_far_is_refused():
    with pytest.raises(InputError, match="near_far needs a polynomial score without a clamp, got exp"):
        AttentionSpec(score=Exp(), structure=NEAR)
    with pytest.raises(InputError, match="without a clamp"):
        AttentionSpec(score=Polynomial(coefficients=(1.0, 1.0), clamp=5.0), structure=NEAR)
    spec = AttentionSpec(score=taylor_score(40), structure=NEAR)
    with pytest.raises(InputError, match="need a state of fixed size"):
        fresh_state(spec, inputs(spec))
    with pytest.raises(InputError, match="centred needs the dot products of exp"):
        AttentionSpec(feature_map=EluPlusOne(), score=taylor_score(2), structure=NearFar(4, centred=True))
    with pytest.raises(InputError, match="centred needs every order up to the degree"):
        AttentionSpec(score=power_score(2), structure=NearFar(4, centred=True))
    for score, structure, normaliser in (
        (taylor_score(1), NearFar(4, centred=True, gaussian=True), RowSum()),
        (taylor_score(2), NearFar(4, gaussian=True), RowSum()),
        (taylor_score(2), NearFar(4, centred=True, gaussian=True), None),
    ):
        with pytest.raises(
            InputError, match="gaussian needs centred, a Taylor polynomial of order 2 or more, and a row"
        ):
            AttentionSpec(score=score, structure=structure, normaliser=normaliser)
    with pytest.raises(InputError, match="near_far_gate divides each part by its own sum"):
        AttentionSpec(score=taylor_score(2), normaliser=Length(), structure=Gated(4))


def test_two_denominators_do_not_cancel():
    spec = AttentionSpec(score=taylor_score(2), structure=Averaged(4), output_norm=L2Norm())
    assert simplify(spec) == spec


@pytest.mark.parametrize(
    "structure",
    [Averaged(15), Gated(15), Lolcats(15), NearFar(15, centred=True), NearFar(15, centred=True, gaussian=True)],
)
def test_in_a_wide_window_all_of_them_are_softmax(structure):
    spec = AttentionSpec(score=taylor_score(2), structure=structure)
    tensors = inputs(spec)
    soft = attend(AttentionSpec(), **{name: tensors[name] for name in "qkv"})
    assert_close(attend(spec, **tensors), soft)


@pytest.mark.parametrize("form", ["blockwise", "chunked"])
def test_the_more_orders_of_the_gaussian_the_closer_to_softmax(form):
    tensors = inputs(AttentionSpec())
    tensors |= {"q": tensors["q"] / 4}
    soft = attend(AttentionSpec(), **tensors)
    specs = [AttentionSpec(score=taylor_score(n), structure=NearFar(3, centred=True, gaussian=True)) for n in (2, 8)]
    errors = [float((attend(spec, **tensors, form=form) - soft).abs().max()) for spec in specs]
    assert errors[1] < 1e-2 * errors[0]


def test_a_far_part_at_its_mean_does_not_mind_where_the_keys_lie():
    spec = AttentionSpec(score=taylor_score(2), structure=NearFar(3, centred=True))
    tensors = inputs(spec)
    moved = tensors | {"k": tensors["k"] + 2.0 * tensors["k"].new_ones(8)}
    assert_close(attend(spec, **moved), attend(spec, **tensors))


def test_a_constant_of_the_far_weights_does_not_cancel():
    one, two = (AttentionSpec(score=Polynomial(coefficients=(0.0, 0.0, c)), structure=NEAR) for c in (1.0, 2.0))
    assert not same_function(one, two)
    assert VARIANTS["near_far_64"].structure == NearFar(64, 4)
