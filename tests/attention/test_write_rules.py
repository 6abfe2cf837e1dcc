"""Write rules: combinations that no row of the table has, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from attention.cases import MASKS, allowed_forms, attention, in_pieces, inputs, key_mask, step_by_step
from attention.cases import T as TIME
from attention.compare import DTYPES, assert_close, assert_same, run
from softmax_rnn.attention.attend import attend
from softmax_rnn.attention.parts import (
    ChannelGate,
    Cosine,
    DeltaRule,
    EluPlusOne,
    Exp,
    ForgetGate,
    MambaDecay,
    NormalisedDelta,
    Read,
    RowSum,
    Window,
    power_score,
    taylor_score,
)
from softmax_rnn.attention.ranges.kinds import ExpOnRange, NormRange
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore::softmax_rnn.attention.nonpositive.NonPositiveWarning")

HEADS, T, D = 3, 21, 4


def drawn(spec):
    generator = torch.Generator().manual_seed(5)
    q, k, v = (torch.randn(2, HEADS, T, D, generator=generator, dtype=torch.float64) for _ in "qkv")
    beta, step = (torch.rand(2, HEADS, T, generator=generator, dtype=torch.float64) for _ in range(2))
    tensors = {"q": q, "k": k, "v": v, "beta": beta, "time_step": step}
    tensors["log_rate"] = torch.rand(HEADS, generator=generator, dtype=torch.float64)
    return {name: x for name, x in tensors.items() if name in ("q", "k", "v", *spec.tensors)}


OTHERS = {
    "normalised polynomial": AttentionSpec(score=taylor_score(2), write_rule=NormalisedDelta()),
    "normalised, by key, decaying": AttentionSpec(
        score=taylor_score(2), forget_gate=ForgetGate(), write_rule=NormalisedDelta(Read.KEY)
    ),
    "power with decay": AttentionSpec(
        Cosine(), power_score(2, 1.0), forget_gate=ForgetGate(), normaliser=None, write_rule=DeltaRule()
    ),
    "row sum": AttentionSpec(EluPlusOne(), power_score(1, 1.0), write_rule=DeltaRule(bounded=True)),
    "exp with decay": AttentionSpec(
        Cosine(), Exp(scale=2.0), forget_gate=ForgetGate(), normaliser=None, write_rule=DeltaRule(bounded=True)
    ),
    "normalised exp with decay": AttentionSpec(forget_gate=ForgetGate(), write_rule=NormalisedDelta(Read.KEY)),
    "clamped": AttentionSpec(Cosine(), Exp(clamp=0.1), normaliser=None, write_rule=DeltaRule()),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", OTHERS)
def test_all_forms_agree(name, dtype):
    spec = OTHERS[name]
    for mask in ("plain", "both"):
        truth = run(attention(spec, form="parallel"), inputs(spec), **MASKS[mask](TIME))
        for form in allowed_forms(spec, mask):
            assert_same(run(attention(spec, form=form), inputs(spec, dtype), **MASKS[mask](TIME)), truth, dtype)


@pytest.mark.parametrize("name", OTHERS)
def test_a_sequence_goes_on_from_its_state(name):
    spec, mask = OTHERS[name], {"key_mask": key_mask()}
    truth = run(attention(spec, form="parallel"), inputs(spec), **mask)
    assert_same(run(in_pieces(spec, [1, 8]), inputs(spec), **mask), truth, torch.float64)
    assert_same(run(step_by_step(spec, prefill=6), inputs(spec), **mask), truth, torch.float64)


def test_a_bounded_write_is_what_its_own_key_reads():
    """With β = 1 the value stands in the memory whole, whatever was there: kernel regression without noise."""
    spec = AttentionSpec(Cosine(), Exp(scale=1.0), normaliser=None, write_rule=DeltaRule(bounded=True))
    tensors = drawn(spec) | {"beta": torch.ones(2, HEADS, T, dtype=torch.float64)}
    tensors["q"] = tensors["k"]
    assert_close(attend(spec, **tensors), tensors["v"])


def test_a_spec_without_the_field_is_read():
    values = VARIANTS["taylor_2"].to_dict()
    assert values.pop("write_rule") is None
    assert AttentionSpec.from_dict(values) == VARIANTS["taylor_2"]


def test_what_a_write_rule_refuses():
    with pytest.raises(InputError, match="needs the normaliser row_sum"):
        AttentionSpec(normaliser=None, write_rule=NormalisedDelta())
    with pytest.raises(InputError, match="expected the score exp or polynomial, got"):
        AttentionSpec(score=ExpOnRange(degree=4, range=NormRange()), normaliser=RowSum(), write_rule=DeltaRule())
    with pytest.raises(InputError, match="expected all keys to be seen, got the structure window"):
        replace(VARIANTS["deltanet"], structure=Window(4))
    with pytest.raises(InputError, match="expected a decay per head"):
        replace(VARIANTS["gated_deltanet"], forget_gate=ChannelGate())
    with pytest.raises(InputError, match="beta: "):
        attend(VARIANTS["deltanet"], **{name: x for name, x in drawn(VARIANTS["deltanet"]).items() if name in "qkv"})


def test_the_decay_of_gated_deltanet_leaves_the_values_alone():
    assert VARIANTS["gated_deltanet"].forget_gate == MambaDecay(gates_input=False)
    assert VARIANTS["gated_deltanet"].declared["time_step"].multiplies is None
