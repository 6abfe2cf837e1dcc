"""The one table of names: every attention type of the paper's code, and its neighbours, as a spec.

>>> VARIANTS["softmax"] == AttentionSpec()
True
>>> VARIANTS["softmax_l2"] == VARIANTS["gated_softmax_no_gate_L2norm_nodivS_noclamp"]     # a short name
True
>>> VARIANTS["elu_power_3"].score.degree          # families take any number
3

`VARIANTS.add` gives your attention a name, for this process.
"""

from __future__ import annotations

from softmax_rnn.attention.spec import AttentionSpec as AttentionSpec
from softmax_rnn.attention.table import chunk_ends, decays, delta, levels, maps, paper, structure, taylor
from softmax_rnn.attention.table.variant_table import VariantTable

VARIANTS = VariantTable(
    paper.ROWS | taylor.ROWS | decays.ROWS | delta.ROWS | structure.ROWS | levels.ROWS | maps.ROWS,
    (*taylor.families(), *structure.families(), *chunk_ends.families(), *maps.families()),
)
