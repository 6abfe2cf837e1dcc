"""Attentions that forget: a constant decay per head, one made from the hidden state, one per channel."""

from __future__ import annotations

from dataclasses import replace

from softmax_rnn.attention.parts import (
    ChannelGate,
    Decay,
    FixedDecay,
    ForgetGate,
    Forgetting,
    KeyDecay,
    LayerNorm,
    MambaDecay,
    OwnValue,
    RMSNorm,
    Schedule,
    SiluQuery,
    VectorGate,
    power_score,
    taylor_score,
)
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.table.variant_table import NEW, Variant

DECAYS = "decays"
RMS = RMSNorm(eps=1e-5)
ACROSS_HEADS = RMSNorm(eps=1e-5, across_heads=True)
CONV = {"use_rope": False, "conv_width": 4, "conv_activation": "silu"}


SILU = VectorGate(after_norm=True)


def forgetting(forget_gate: Forgetting, scale: float | None = None) -> AttentionSpec:
    """Linear attention that forgets: Σ_j (q·k_j) decay(i, j) v_j, no denominator, a norm and a SiLU gate after it."""
    score = power_score(1, scale=scale)
    return AttentionSpec(score=score, forget_gate=forget_gate, normaliser=None, output_norm=RMS, output_gate=SILU)


ROWS = {
    "retnet": Variant(
        forgetting(FixedDecay(Schedule.RETNET)),
        DECAYS,
        "a constant decay per head, 1 − 2^(−5−h); values twice as wide as keys",
        block={"value_expand": 2.0},
        source="RetNet (2023), arXiv 2307.08621",
    ),
    "lightning": Variant(
        forgetting(FixedDecay(Schedule.LIGHTNING), scale=1.0),
        DECAYS,
        "a constant decay per head that weakens with depth; head 0 never forgets",
        source="Lightning Attention-2 (2024), arXiv 2401.04658",
    ),
    "alibi": Variant(
        AttentionSpec(forget_gate=FixedDecay(Schedule.ALIBI)),
        DECAYS,
        "softmax with a bias that falls linearly with the distance: a constant decay per head",
        block={"use_rope": False},
        source="ALiBi (2021), arXiv 2108.12409",
    ),
    "simple_gla": Variant(
        forgetting(ForgetGate(divisor=16.0)),
        DECAYS,
        "one gate per head, σ(r)^(1/16): 0.958 at the start",
        block=CONV,
        source="Gated Linear Attention (2023), arXiv 2312.06635, with one gate per head",
    ),
    "mamba2_ssd": Variant(
        replace(
            forgetting(MambaDecay(), scale=1.0),
            skip=OwnValue(),
            output_gate=VectorGate(),
            output_norm=ACROSS_HEADS,
        ),
        DECAYS,
        "decay and input gate from one step of time Δ; one query and key for all heads",
        block={**CONV, "shared_query_key": True, "value_expand": 2.0},
        source="Mamba-2 (2024), arXiv 2405.21060",
    ),
    "gla": Variant(
        forgetting(ChannelGate(divisor=16.0, rank=16)),
        DECAYS,
        "a gate per channel of the key, σ(r)^(1/16), through a projection of rank 16; keys half as wide as values",
        block={"use_rope": False, "key_expand": 0.5},
        source="Gated Linear Attention (2023), arXiv 2312.06635",
    ),
    "hgrn2": Variant(
        replace(
            forgetting(KeyDecay(learned_bound=True)),
            feature_map=SiluQuery(),
            output_gate=None,
            output_norm=ACROSS_HEADS,
        ),
        DECAYS,
        "keys are 1 − α, so k_proj makes the gates; a lower bound per layer, where theirs share a softmax over depth",
        block={"use_rope": False},
        source="HGRN2 (2024), arXiv 2404.07904",
    ),
    "rwkv6": Variant(
        replace(
            forgetting(ChannelGate(Decay.NEGATIVE_EXP, rank=64, bonus=True), scale=1.0),
            output_norm=LayerNorm(eps=1e-5),
        ),
        DECAYS,
        "a decay per channel, a bonus for the current token, and a token shift before all projections",
        block={"use_rope": False, "token_shift": True},
        source="RWKV-6 (2024), arXiv 2404.05892",
    ),
    "gla_taylor_2": Variant(
        AttentionSpec(score=taylor_score(2), forget_gate=ChannelGate(divisor=16.0, rank=16)),
        DECAYS,
        "Taylor order 2 whose monomials decay with the product of their channels' gates; the constant never decays",
        block={"use_rope": False},
        source=NEW,
    ),
}
