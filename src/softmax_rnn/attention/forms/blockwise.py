"""Weights block by block."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, ClassVar

from softmax_rnn.attention.forms.form import CALL, PASS, PRODUCT, FormWithKeys, visible_pairs, weight_time
from softmax_rnn.attention.situation import Situation
from softmax_rnn.attention.spec import AttentionSpec

if TYPE_CHECKING:
    from softmax_rnn.attention.contraction import Contraction, Sums

BLOCK = {"cpu": 256}
"""Positions per block, by device; 256 × 256 weights of a head fit the second-level cache of a CPU core."""
DEFAULT_BLOCK = 1024
GROUP_NUMBERS = {"cpu": 2**20}
"""Weights that are in memory at once, over all heads of a group, by device."""
DEFAULT_GROUP_NUMBERS = 2**26


class Blockwise(FormWithKeys):
    """Blocks of weights are made, used and dropped."""

    name: ClassVar[str] = "blockwise"
    reason: ClassVar[str] = "any score in blocks of weights, O(T) memory"

    def refuse(self, spec: AttentionSpec, situation: Situation) -> str | None:
        """Weights that decay per channel are not products of blocks."""
        if spec.forget_gate is not None and spec.forget_gate.by_channel:
            return "each channel of a product has its own decay"
        return super().refuse(spec, situation)

    def cost(self, spec: AttentionSpec, situation: Situation) -> float:
        """Visible pairs and the hidden ones of the blocks on the diagonal."""
        s = situation
        block = min(BLOCK["cpu"], s.keys)
        edges = block / 2 if spec.structure is None else block
        pairs = s.heads * (visible_pairs(spec, s) + s.batch * s.queries * edges)
        products = (s.key_dim + s.value_dim) * PRODUCT * (3.5 if s.needs_grad else 1)
        blocks = ceil(pairs / (block * block * 16)) + 1
        backward = 2.2 if s.needs_grad else 1
        return blocks * 12 * CALL * backward + pairs * (products + (weight_time(spec) + 2 * PASS) * backward)

    def sums(self, job: Contraction) -> Sums:
        from softmax_rnn.attention.kernels.blockwise import blockwise

        return blockwise(job)
