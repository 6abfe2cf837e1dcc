"""Decays: constant per head, made from the hidden state, per channel."""

from __future__ import annotations

import math

import pytest
import torch

from attention.cases import attention, inputs
from attention.compare import DTYPES, assert_same, run
from softmax_rnn.attention.algebra import same_function
from softmax_rnn.attention.formula import formula
from softmax_rnn.attention.kernels import chunks
from softmax_rnn.attention.parts import Decay, FixedDecay, ForgetGate, MambaDecay, Schedule
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import InputError
from softmax_rnn.model.layer_specs import layer_specs
from softmax_rnn.model.spec_tensors import SpecTensors


def log_decays(part: FixedDecay, heads: int) -> list[float]:
    return part.log_decay({}, torch.zeros(1, 1, 1, 1), heads)[0, :, 0].tolist()


def test_constant_decays_are_those_of_their_papers():
    assert log_decays(FixedDecay(Schedule.RETNET), 2) == pytest.approx([math.log(31 / 32), math.log(63 / 64)])
    assert log_decays(FixedDecay(Schedule.ALIBI), 8) == pytest.approx([-(2.0**-n) for n in range(1, 9)])
    assert log_decays(FixedDecay(Schedule.LIGHTNING), 4) == pytest.approx([0, -2, -4, -6])
    assert log_decays(FixedDecay(Schedule.LIGHTNING, 3, 4), 4) == pytest.approx([0, -0.5, -1, -1.5])


def test_a_model_tells_lightning_its_layers():
    gates = [spec.forget_gate for spec in layer_specs("lightning", 3)]
    assert gates == [FixedDecay(Schedule.LIGHTNING, layer, 3) for layer in range(3)]
    assert layer_specs(list(layer_specs("lightning", 3)), 3) == layer_specs("lightning", 3)
    assert len(set(layer_specs("retnet", 3))) == 1
    with pytest.raises(InputError, match="layer: expected 0 to 2, got 3"):
        FixedDecay(Schedule.LIGHTNING, 3, 3)
    with pytest.raises(InputError, match="both layer and layers"):
        FixedDecay(Schedule.LIGHTNING, 3)


def test_a_decay_is_written_out_in_the_formula():
    assert formula(VARIANTS["retnet"]).endswith("w = q·k/√d · decay,  decay = Π α,  α = 1 − 2^(−5−h)")
    assert formula(VARIANTS["simple_gla"]).endswith("α = σ(r)^(1/16)")
    assert "Σ w Δ v" in formula(VARIANTS["mamba2_ssd"])


def test_how_a_model_makes_the_tensor_does_not_change_the_function():
    def with_gate(gate):
        return AttentionSpec(forget_gate=gate)

    assert same_function(with_gate(ForgetGate()), with_gate(ForgetGate(Decay.SCALED, divisor=16, first_bias=3)))
    assert not same_function(with_gate(FixedDecay()), with_gate(FixedDecay(Schedule.ALIBI)))


@torch.no_grad()
def test_first_values():
    torch.manual_seed(0)
    hidden = torch.zeros(1, 1, 8)

    def made(name):
        return SpecTensors(VARIANTS[name], hidden_size=8, heads=400, head_dim=2)

    power = made("power_attention_2")(hidden)["forget_gate"]
    assert power.exp().mean() == pytest.approx(0.999, abs=1e-6)
    assert made("simple_gla")(hidden)["forget_gate"].exp().mean() == pytest.approx(0.958, abs=0.02)
    mamba = made("mamba2_ssd")(hidden)
    rate, time_step = mamba["log_rate"].exp(), mamba["time_step"]
    assert 1 <= rate.min() < 1.5 and 15.5 < rate.max() <= 16
    assert time_step.shape == (1, 400, 1)
    bias = torch.nn.functional.softplus(made("mamba2_ssd").time_step.bias)
    assert 1e-3 <= bias.min() < 1.2e-3 and 0.08 < bias.max() <= 0.1 + 1e-6
    assert bias.log().median() == pytest.approx(math.log(1e-2), abs=0.5)


def test_mamba_reads_one_step_of_time_twice():
    declared = MambaDecay().tensors
    assert [one.name for one in declared] == ["time_step", "log_rate"]
    with pytest.raises(InputError, match="divisor: expected a positive number, got 0"):
        ForgetGate(divisor=0)


STEPS = {
    "weak": lambda x: -0.01 * x,
    "strong": lambda x: -30 * x,
    "too strong for floats": lambda x: -1e4 * x,
    "nothing, then everything": lambda x: torch.where(x < 0.9, 0, -500.0),
    "growing": lambda x: 0.2 - 0.4 * x,
    "growing far": lambda x: 3 - 6 * x,
}


@pytest.mark.parametrize("kind", STEPS)
def test_decays_of_any_strength_in_chunks_of_their_real_size(kind, monkeypatch):
    """Three spans of two chunks of 64: factors per position, or pieces of a chunk; against all pairs."""
    monkeypatch.setattr(chunks, "SPAN", 128)
    spec = VARIANTS["simple_gla"]
    tensors = inputs(spec, time=290)
    noise = torch.rand(tensors["forget_gate"].shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    tensors["forget_gate"] = STEPS[kind](noise).to(torch.float32).double()
    truth = run(attention(spec, form="parallel"), tensors)
    for dtype in DTYPES:
        given = {name: x.to(dtype) for name, x in tensors.items()}
        assert_same(run(attention(spec, form="chunked"), given), truth, dtype)


@pytest.mark.parametrize("name", ["gla", "rwkv6", "gated_deltanet", "mamba2_ssd"])
def test_spans_are_one_sequence(name, monkeypatch):
    spec = VARIANTS[name]
    tensors = inputs(spec, time=290)
    truth = run(attention(spec, form="chunked"), tensors)
    monkeypatch.setattr(chunks, "SPAN", 128)
    assert_same(run(attention(spec, form="chunked"), tensors), truth, torch.float64)
