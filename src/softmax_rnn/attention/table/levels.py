"""Attentions with levels: the past in pieces whose lengths double, each with a weight that the query chooses."""

from __future__ import annotations

from dataclasses import replace

from softmax_rnn.attention.parts import Levels, taylor_score
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.table import decays, paper
from softmax_rnn.attention.table.variant_table import NEW, STRUCTURE, Variant

_LOG_LINEAR = "Log-Linear Attention (2025), arXiv 2506.04761"
_MAMBA = decays.ROWS["mamba2_ssd"]

ROWS = {
    "log_linear_mamba2": Variant(
        replace(_MAMBA.spec, structure=Levels()),
        STRUCTURE,
        "mamba2_ssd with levels: a query weighs pieces of its past of 1, 1, 2, 4, … keys; log₂ T states",
        block=_MAMBA.block,
        source=_LOG_LINEAR,
    ),
    "log_linear_linear": Variant(
        replace(paper.ROWS["linear_elu"].spec, structure=Levels()),
        STRUCTURE,
        "linear_elu with levels",
        source=_LOG_LINEAR,
    ),
    "log_linear_taylor_2": Variant(
        AttentionSpec(score=taylor_score(2), structure=Levels()),
        STRUCTURE,
        "Taylor order 2 with levels",
        source=NEW,
    ),
    "log_linear_softmax": Variant(
        AttentionSpec(structure=Levels()),
        STRUCTURE,
        "softmax with levels: log λ is a bias; all keys are kept",
        source=NEW,
    ),
}
