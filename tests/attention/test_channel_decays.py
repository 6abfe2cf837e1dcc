"""Decays per channel: strong ones, exp and powers, states that are resumed, what is refused."""

from __future__ import annotations

import pytest
import torch

from attention.cases import allowed_forms, attention, in_pieces, inputs, refusal, step_by_step
from attention.compare import DTYPES, assert_close, assert_same, run, seeded
from oracle import ORACLE, f, gla, ln, normalised, rwkv6, sum_v
from softmax_rnn.attention.algebra import state_numbers
from softmax_rnn.attention.attend import attend
from softmax_rnn.attention.parts import (
    ChannelGate,
    Decay,
    DeltaRule,
    ForgetGate,
    KeyDecay,
    LayerNorm,
    RowSum,
    Window,
    power_score,
)
from softmax_rnn.attention.ranges.kinds import ExpOnRange, NormRange
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import InputError

LONG = 36  # a chunk has at most 32 positions
EXP = AttentionSpec(forget_gate=ChannelGate())
CUBE = AttentionSpec(
    score=power_score(3), forget_gate=ChannelGate(bonus=True), normaliser=None, output_norm=LayerNorm()
)


def exp_gla(r, j):
    return torch.exp(gla(r, j))


CASES = {
    "rwkv6": (VARIANTS["rwkv6"], ORACLE["rwkv6"]),
    "gla_taylor_2": (VARIANTS["gla_taylor_2"], ORACLE["gla_taylor_2"]),
    "exp": (EXP, normalised(exp_gla)),
    "cube with a bonus": (CUBE, f(lambda r: ln(r, sum_v(r, lambda r, j: (rwkv6(r, j) / r.d**0.5) ** 3)))),
}


def strong(spec, dtype=torch.float64):
    """Log decays from 0 to −∞, most of them between −0.01 and −30."""
    tensors = inputs(spec, dtype, time=LONG, batch=1, heads=2, kv_heads=1)
    gate = -(10 ** (seeded(*tensors["channel_gate"].shape, seed=3).sigmoid() * 3.5 - 2))
    gate[:, :, 7::11, ::3] = 0.0
    gate[:, :, 5::13, 1::2] = -1e4
    return tensors | {"channel_gate": gate.to(dtype)}


@pytest.mark.parametrize("name", CASES)
def test_strong_decays_equal_the_literal_truth(name):
    spec, literal = CASES[name]
    truth = run(literal, strong(spec))
    for dtype in DTYPES:
        for form in allowed_forms(spec):
            assert_same(run(attention(spec, form=form), strong(spec, dtype)), truth, dtype)
    assert_same(run(step_by_step(spec, prefill=34), strong(spec)), truth, torch.float64)
    assert_same(run(in_pieces(spec, [15, 33]), strong(spec)), truth, torch.float64)


def test_forms_that_serve():
    assert allowed_forms(EXP) == ["parallel", "recurrent"]
    assert allowed_forms(VARIANTS["gla_taylor_2"]) == ["parallel", "chunked", "recurrent"]
    assert refusal(VARIANTS["gla"], "blockwise") == "each channel of a product has its own decay"


def test_equal_channels_are_a_decay_per_head_to_the_power():
    """(e^g q·k)² = e^(2g) (q·k)²."""
    channels = AttentionSpec(score=power_score(2), forget_gate=ChannelGate())
    tensors = inputs(channels)
    gate = tensors.pop("channel_gate")[..., 0]
    got = attend(channels, **tensors, channel_gate=gate[..., None].expand(*gate.shape, 8), form="chunked")
    per_head = AttentionSpec(score=power_score(2), forget_gate=ForgetGate())
    assert_close(got, attend(per_head, **tensors, forget_gate=2 * gate))


def test_the_constant_term_never_decays():
    spec = AttentionSpec(score=VARIANTS["taylor_2"].score, normaliser=RowSum(), forget_gate=ChannelGate())
    tensors = inputs(spec)
    tensors["channel_gate"][:] = -1e4
    tensors["q"][:, :, -1] = 0  # its own key weighs 1, as all the others do
    mean = tensors["v"].repeat_interleave(2, 1).mean(2)
    for form in allowed_forms(spec):
        assert_close(attend(spec, **tensors, form=form)[:, :, -1], mean)


@pytest.mark.parametrize("layer", [None, 0, 3])
def test_tied_keys(layer):
    gate = KeyDecay(learned_bound=True)
    if layer is not None:
        gate = gate.of_layer(layer, 4)
    tied = AttentionSpec(score=power_score(1), forget_gate=gate, normaliser=None)
    tensors = inputs(tied)
    assert ("lower_bound" in tensors) == (layer != 0)
    k = tensors["k"]
    bound = tensors["lower_bound"].sigmoid()[:, None] if layer != 0 else 0.0
    alpha = bound + (1 - bound) * k.sigmoid()
    gate = alpha.log().repeat_interleave(2, 1)
    apart = AttentionSpec(score=power_score(1), forget_gate=ChannelGate(), normaliser=None)
    expected = attend(apart, tensors["q"], 1 - alpha, tensors["v"], channel_gate=gate)
    assert_close(attend(tied, **tensors), expected)


def test_the_state_is_as_large_as_without_decay():
    for name, plain in (("gla_taylor_2", "taylor_2"), ("hgrn2", "gla")):
        assert state_numbers(VARIANTS[name], 64, 64) == state_numbers(VARIANTS[plain], 64, 64)


def test_what_cannot_be_is_refused():
    linear = power_score(1)
    with pytest.raises(InputError, match="must not grow"):
        ChannelGate(Decay.SCALED)
    with pytest.raises(InputError, match="rank: expected"):
        ChannelGate(rank=0)
    with pytest.raises(InputError, match="layer: expected 0 to 3, got 4"):
        KeyDecay(learned_bound=True, layer=4, layers=4)
    with pytest.raises(InputError, match="first_bias: expected one number, or the first and the last head's"):
        ForgetGate(first_bias=(1.0, 2.0, 3.0))
    with pytest.raises(InputError, match="write_rule: expected a decay per head"):
        AttentionSpec(score=linear, forget_gate=ChannelGate(), normaliser=None, write_rule=DeltaRule())
    with pytest.raises(InputError, match="structure: a decay per channel has no structure"):
        AttentionSpec(forget_gate=ChannelGate(), structure=Window(4))
    with pytest.raises(InputError, match="needs the score exp or a polynomial"):
        AttentionSpec(score=ExpOnRange(degree=4, range=NormRange()), forget_gate=ChannelGate())
