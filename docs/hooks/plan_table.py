"""Which form the planner takes, as a table: some variants at some lengths.

>>> "| <code>softmax</code> | fused |" in plans_text()
True
"""

from __future__ import annotations

from variant_page import breakable

from softmax_rnn.attention.plan import Situation, choose
from softmax_rnn.attention.variants import VARIANTS

NAMES = (
    "softmax",
    "gated_softmax_no_gate_L2norm_nodivS_noclamp",
    "gated_softmax",
    "forgetting_transformer",
    "linear_elu",
    "taylor_2",
    "taylor_4",
)
LENGTHS = (16, 128, 1024, 4096, 16384)


def plans_text() -> str:
    """A row a variant, a column a length; 16 heads of dimension 64, forward."""
    lines = [f"| Variant | {' | '.join(f'{length:,}' for length in LENGTHS)} |", "|---" * (len(LENGTHS) + 1) + "|"]
    for name in NAMES:
        forms = [choose(VARIANTS[name], Situation(queries=length, keys=length)).form for length in LENGTHS]
        lines.append(f"| {breakable(name)} | {' | '.join(forms)} |")
    return "\n".join(lines)
