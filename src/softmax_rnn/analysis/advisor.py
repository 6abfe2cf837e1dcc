"""Which order each layer needs, what its state costs, and from which context on it is worth it.

A head of dimension D with all orders up to N has F = C(D+N, N) features and a state of F × (E + 1) numbers. A cache of
keys and values has D + E numbers per token. So the fixed state is smaller from

    context = F (E + 1) / (D + E)        tokens on, twice that where the sums need float64,

and a step, in which K key heads write their state and H query heads read it, takes fewer operations from about 1 + K/H
times F (E + 1) / (D + E) on.
With D = 64 order 2 pays from 1,090 tokens on, order 3 from 24,300, order 4 from 413,000.

>>> shape = LayerShape(heads=9, kv_heads=3, key_dim=64, value_dim=64)
>>> advise(shape, [2, 4, None], longest_context=8192).verdicts
['order 2 from 1,090 tokens on', 'keep softmax', 'keep softmax']
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import ceil, comb
from typing import Any

from softmax_rnn.analysis.methods import HeadRanges, find_method, method_spec, needs_wide_state
from softmax_rnn.attention.algebra import MAX_STATE_DEGREE, MAX_STATE_FEATURES
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.errors import InputError


@dataclass(frozen=True)
class LayerShape:
    """The sizes of a layer's attention, and the bytes of a number in its cache."""

    heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    bytes_per_number: int = 4

    @property
    def cache_bytes(self) -> int:
        """Keys and values of one token."""
        return self.kv_heads * (self.key_dim + self.value_dim) * self.bytes_per_number

    def state_numbers(self, order: int) -> int:
        """The numbers of the states of all heads, for orders 0 to this one."""
        return self.kv_heads * comb(self.key_dim + order, order) * (self.value_dim + 1)

    def state_flops(self, order: int) -> int:
        """Operations of a step: each key head adds to its state, each query head reads it."""
        features = comb(self.key_dim + order, order)
        return 2 * features * (self.value_dim + 1) * (self.kv_heads + self.heads) + 2 * features * (
            self.kv_heads + self.heads
        )

    def cache_flops(self, context: int) -> int:
        """Operations of a step of softmax attention over so many tokens."""
        return 2 * self.heads * context * (self.key_dim + self.value_dim)


@dataclass(frozen=True)
class LayerAdvice:
    """What to do with a layer; ``order`` None: no order that was tried is near enough."""

    layer: int
    order: int | None
    keep_softmax: bool
    reason: str
    features: int | None = None
    state_bytes: int | None = None
    flops_per_token: int | None = None
    smaller_from: int | None = None
    """Tokens of context from which on the state has fewer bytes than the cache."""
    faster_from: int | None = None
    """Tokens of context from which on a step takes fewer operations."""

    @property
    def verdict(self) -> str:
        """A few words."""
        if self.keep_softmax or self.smaller_from is None or self.order is None:
            return "keep softmax"
        return f"order {self.order} from {self.smaller_from:,} tokens on"


@dataclass(frozen=True)
class Advice:
    """The advice for all layers of a model."""

    method: str
    longest_context: int
    cache_bytes_per_token: int
    layers: tuple[LayerAdvice, ...]

    @property
    def verdicts(self) -> list[str]:
        """A few words for each layer."""
        return [one.verdict for one in self.layers]

    @property
    def summary(self) -> str:
        """One sentence for the whole model."""
        changed = [one for one in self.layers if not one.keep_softmax]
        if not changed:
            return "Keep softmax in every layer: no fixed state beats the cache of keys and values within the context."
        kept = len(self.layers) - len(changed)
        if not kept:
            return "A fixed state pays in every layer."
        return f"A fixed state pays in {len(changed)} of {len(self.layers)} layers; keep softmax in the other {kept}."

    def specs(self, ranges: Sequence[HeadRanges] | None = None) -> list[AttentionSpec]:
        """The spec of each layer, as `convert` takes them."""
        specs = []
        for one in self.layers:
            if one.keep_softmax or one.order is None:
                specs.append(AttentionSpec())
            else:
                specs.append(method_spec(self.method, one.order, None if ranges is None else ranges[one.layer]))
        return specs

    def to_json(self, ranges: Sequence[HeadRanges] | None = None) -> dict[str, Any]:
        """Plain values; ``specs`` is what `convert` reads from a file."""
        layers = [asdict(one) | {"verdict": one.verdict} for one in self.layers]
        specs = [spec.to_dict() for spec in self.specs(ranges)]
        return asdict(self) | {"summary": self.summary, "layers": layers, "specs": specs}


def advise(shape: LayerShape, orders: Sequence[int | None], *, longest_context: int, method: str = "taylor") -> Advice:
    """The advice for layers that need these orders, for contexts up to ``longest_context`` tokens."""
    find_method(method)
    if longest_context < 1:
        raise InputError(f"longest_context: expected 1 or more, got {longest_context}")
    rows = tuple(_layer(shape, i, order, longest_context, method) for i, order in enumerate(orders))
    return Advice(method, longest_context, shape.cache_bytes * len(rows), rows)


def _layer(shape: LayerShape, layer: int, order: int | None, longest: int, method: str) -> LayerAdvice:
    if order is None:
        return LayerAdvice(layer, None, True, "no order that was tried is near enough to softmax")
    features = comb(shape.key_dim + order, order)
    size = shape.state_numbers(order) * (8 if needs_wide_state(method, order) else shape.bytes_per_number)
    flops = shape.state_flops(order)
    smaller, faster = ceil(size / shape.cache_bytes), ceil(flops / shape.cache_flops(1))
    reasons = {
        f"order {order} is above {MAX_STATE_DEGREE}, where a sum over features has no digits left": order
        > MAX_STATE_DEGREE,
        f"{features:,} features per head are more than {MAX_STATE_FEATURES:,}": features > MAX_STATE_FEATURES,
        f"its state is smaller than the cache only from {smaller:,} tokens on": smaller > longest,
    }
    against = next((reason for reason, holds in reasons.items() if holds), None)
    reason = against or f"a state of {features:,} features per head, smaller than the cache from {smaller:,} tokens on"
    return LayerAdvice(layer, order, against is not None, reason, features, size, flops, smaller, faster)


def orders_for_budget(increases: Sequence[dict[int, float]], budget: float) -> list[int | None]:
    """The lowest order of each layer whose own increase of the loss is at most its even part of the budget.

    ``increases`` gives, layer by layer, order → loss with only this layer cut, minus the loss of softmax.

    >>> orders_for_budget([{2: 0.5, 4: 0.01}, {2: 0.02, 4: 0.0}, {2: 1.0}], budget=0.06)
    [4, 2, None]
    """
    if not budget > 0:
        raise InputError(f"budget: expected a positive increase of the loss, got {budget}")
    part = budget / max(len(increases), 1)
    return [min((n for n, rise in layer.items() if rise <= part), default=None) for layer in increases]
