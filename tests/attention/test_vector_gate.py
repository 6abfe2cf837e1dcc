"""An output gate with a value per channel: in front of a norm, behind it, in a converted model."""

from __future__ import annotations

import pytest
import torch

from attention.cases import allowed_forms, attention, inputs, step_by_step
from attention.compare import assert_same, run
from oracle import exp, f, l2, rms, sum_v, sum_w
from softmax_rnn.attention.algebra import cancellations, simplify
from softmax_rnn.attention.formula import formula
from softmax_rnn.attention.parts import Activation, L2Norm, RMSNorm, VectorGate
from softmax_rnn.attention.spec import AttentionSpec


def gate(r):
    return r.x.output_gate[:, r.i]


CASES = {
    "before": (
        AttentionSpec(output_gate=VectorGate(), output_norm=RMSNorm()),
        f(lambda r: rms(r, gate(r) * sum_v(r, exp) / sum_w(r, exp))),
    ),
    "behind": (
        AttentionSpec(normaliser=None, output_gate=VectorGate(after_norm=True), output_norm=L2Norm()),
        f(lambda r: gate(r) * l2(sum_v(r, exp))),
    ),
    "alone": (
        AttentionSpec(output_gate=VectorGate(activation=Activation.SIGMOID)),
        f(lambda r: gate(r) * sum_v(r, exp) / sum_w(r, exp)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_every_form_and_decoding_equal_the_literal_truth(name):
    spec, literal = CASES[name]
    tensors = inputs(spec)
    assert tensors["output_gate"].shape == (*tensors["q"].shape[:3], tensors["v"].shape[-1])
    truth = run(literal, tensors)
    for form in allowed_forms(spec):
        assert_same(run(attention(spec, form=form), tensors), truth, torch.float64)
    assert_same(run(step_by_step(spec, prefill=5), tensors), truth, torch.float64)


def test_it_does_not_cancel_in_front_of_l2():
    spec = AttentionSpec(output_gate=VectorGate(), output_norm=L2Norm())
    assert simplify(spec).output_gate == VectorGate()
    assert not any("output gate" in said for said in cancellations(spec))


def test_in_a_formula():
    assert formula(CASES["behind"][0]).startswith("o = SiLU(z) ⊙ L2(Σ w v)")
    assert formula(CASES["alone"][0]).startswith("o = σ(z) ⊙ Σ w v / Σ w")


@pytest.mark.parametrize("activation", Activation)
@pytest.mark.parametrize("after_norm", [False, True])
def test_a_conversion_that_adds_it_changes_nothing(activation, after_norm):
    from softmax_rnn.model import SoftmaxRNNForCausalLM, build_config
    from softmax_rnn.model.convert import convert

    norm = RMSNorm(eps=0.0) if after_norm else None
    bare = AttentionSpec(output_norm=norm)
    torch.manual_seed(0)
    model = SoftmaxRNNForCausalLM(build_config("nano", vocab_size=32, attention_spec=bare)).double()
    ids = torch.randint(0, 32, (2, 9))
    before = model(input_ids=ids).logits.detach()
    gated = AttentionSpec(output_norm=norm, output_gate=VectorGate(after_norm=after_norm, activation=activation))
    after = convert(model, gated)(input_ids=ids).logits.detach()
    assert float((after - before).abs().max()) <= 1e-10 * float(before.abs().max())
