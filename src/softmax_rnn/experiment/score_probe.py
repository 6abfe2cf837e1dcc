"""How far the scores of a network reach while it is trained, on the first tokens of its test rows.

test_largest_score     the largest |score| of any head
test_dominant_order    the Taylor order whose mean term |s^n/n!| is largest, in the layer where that is highest
test_order_within      from this order on the output of every layer is within 1 % on average; `ORDERS` stands for more
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from softmax_rnn.data.rows import Row, Rows
    from softmax_rnn.model import SoftmaxRNNForCausalLM

TOKENS = 512
ORDERS = 150
EPSILON = 0.01


def first_tokens(rows: Rows | Sequence[Row], context: int, tokens: int = TOKENS) -> list[int]:
    """The first ``tokens`` tokens of rows of this length, or all where there are fewer."""
    count = min(len(rows), -(-tokens // context))
    return np.concatenate([rows[i]["input_ids"] for i in range(count)])[:tokens].tolist()


def score_probe(
    network: SoftmaxRNNForCausalLM, rows: Rows | Sequence[Row], context: int
) -> Callable[[], dict[str, float]]:
    """A function that measures the network as it is when called; it draws no random numbers and changes nothing."""
    from softmax_rnn.analysis.terms import read_terms

    ids = first_tokens(rows, context)

    def probe() -> dict[str, float]:
        layers = [one.layer(EPSILON) for one in read_terms(network, ids, orders=ORDERS, context=context).layers]
        orders = [ORDERS if one.order_within is None else one.order_within for one in layers]
        return {
            "test_largest_score": max(max(-one.low, one.high) for one in layers),
            "test_dominant_order": max(one.dominant_order for one in layers),
            "test_order_within": max(orders),
        }

    return probe
