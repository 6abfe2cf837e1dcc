"""The text of a formula says everything that the spec says."""

from __future__ import annotations

import pytest

from attention.cases import NAMES
from softmax_rnn.attention.explain import explain
from softmax_rnn.attention.formula import formula
from softmax_rnn.attention.parts import (
    Cosine,
    CumulativeGate,
    Exp,
    ForgetGate,
    L2Norm,
    LearnedLength,
    OutputGate,
    Polynomial,
    RMSNorm,
    RowSum,
    power_score,
)
from softmax_rnn.attention.plan import Situation
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.variants import VARIANTS

TEXTS = [
    (AttentionSpec(score=Exp(scale=1.0)), "o = Σ w v / Σ w,  w = exp(q·k)"),
    (AttentionSpec(score=Exp(scale=0.5, clamp=3.0)), "o = Σ w v / Σ w,  w = exp(min(0.5 q·k, 3))"),
    (
        AttentionSpec(score=power_score(2), forget_gate=ForgetGate()),
        "o = Σ w v / Σ w,  w = (q·k/√d)^2 · decay,  decay = Π α,  α = σ(r)",
    ),
    (AttentionSpec(score=power_score(1), normaliser=None), "o = Σ w v,  w = q·k/√d"),
    (
        AttentionSpec(score=Polynomial(coefficients=(1.0, 0.0, 0.25), scale=1.0)),
        "o = Σ w v / Σ w,  w = 1 (q·k)^0 + 0.25 (q·k)^2",
    ),
    (AttentionSpec(score=Polynomial(coefficients=(1.0,) * 6, scale=1.0)), "o = Σ w v / Σ w,  w = P5(q·k)"),
    (
        AttentionSpec(normaliser=RowSum(eps=0.1, minimum=2.0)),
        "o = Σ w v / max((Σ w + 0.1), 2),  w = exp(q·k/√d)",
    ),
    (
        AttentionSpec(feature_map=Cosine(), score=Exp(scale=1.0), normaliser=LearnedLength(by_key=True)),
        "o = Σ w v/nⱼ^σ(c),  w = exp(q/|q|·k/|k|)",
    ),
    (AttentionSpec(normaliser=CumulativeGate()), "o = Σ w v / Σᵣ exp(gᵒᵣ),  w = exp(q·k/√d)"),
    (
        AttentionSpec(normaliser=None, output_gate=OutputGate(after_norm=True), output_norm=RMSNorm()),
        "o = gᵒ · RMS(Σ w v),  w = exp(q·k/√d)",
    ),
    (AttentionSpec(normaliser=None, output_norm=L2Norm(times_dim=True)), "o = d · L2(Σ w v),  w = exp(q·k/√d)"),
]


@pytest.mark.parametrize(("spec", "text"), TEXTS, ids=[text for _, text in TEXTS])
def test_formula(spec, text):
    assert formula(spec) == text


def test_names_with_the_same_text_have_the_same_score():
    by_text = {}
    for name in NAMES:
        by_text.setdefault(formula(VARIANTS[name]), set()).add(VARIANTS[name].to_dict()["score"]["kind"])
    assert all(len(kinds) == 1 for kinds in by_text.values())


@pytest.mark.parametrize("name", NAMES)
def test_explain_says_formula_names_state_and_plan(name):
    explanation = explain(VARIANTS[name])
    text = str(explanation)
    assert text.startswith(formula(VARIANTS[name]))
    assert name in explanation.names
    assert explanation.plan.form in text
    assert all(other in text for other in explanation.plan.others)
    assert explanation.state.startswith("fixed" if "fixed" in explanation.state else "grows")
    assert str(VARIANTS.row(name).note) in text


def test_explain_tells_what_cancels():
    exact = explain(VARIANTS["gated_softmax_out_gate_L2norm_nodivS_noclamp"])
    assert any("output gate cancels" in said for said in exact.cancellations)
    assert exact.simplified == formula(VARIANTS["gated_softmax_no_gate_L2norm_nodivS_noclamp"])
    nearly = explain(VARIANTS["gated_softmax"])
    assert any("up to the eps" in said for said in nearly.cancellations)
    assert nearly.simplified == nearly.formula
    assert explain(VARIANTS["softmax"]).cancellations == []


def test_explain_counts_the_numbers_of_the_state():
    # C(66, 2) = 2145 features of d = 64, and 64 values with the column of ones.
    assert f"{2145 * 65:,} numbers" in explain(VARIANTS["taylor_2"]).state
    assert explain(VARIANTS["softmax"], Situation(key_dim=8, value_dim=5)).state == "grows, 13 numbers per token"


def test_explain_warns_of_negative_weights():
    assert any("negative" in note for note in explain(VARIANTS["taylor_1"]).notes)
    assert not any("can be negative" in note for note in explain(VARIANTS["taylor_2"]).notes)
