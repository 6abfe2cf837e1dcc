"""The Taylor terms of a causal language model on a text: statistics, ranges, truncation and advice, as one record.

>>> from transformers import LlamaConfig, LlamaForCausalLM
>>> config = LlamaConfig(vocab_size=9, hidden_size=8, intermediate_size=8, num_hidden_layers=2, num_attention_heads=2)
>>> reading = read_terms(LlamaForCausalLM(config), [1, 2, 3, 4, 5, 6, 7, 8], orders=4, context=4)
>>> len(reading.layers), reading.layers[0].heads(0.01)[0].pairs
(2, 20)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from softmax_rnn.analysis.advisor import Advice, LayerShape, advise, orders_for_budget
from softmax_rnn.analysis.capture import read_windows, visible_width
from softmax_rnn.analysis.coverage import Coverage
from softmax_rnn.analysis.cuts import ORDERS, TAYLOR_ORDERS, Cut, Cutter, lowest_order
from softmax_rnn.analysis.methods import METHODS, HeadRanges, find_method
from softmax_rnn.analysis.near_far import near_far_record
from softmax_rnn.analysis.statistics import SAMPLED_ROWS, TermStatistics
from softmax_rnn.attention.ranges.kinds import BoxRange, ExtremeKeys, FixedRange, MomentRange, NormRange, Range
from softmax_rnn.errors import InputError
from softmax_rnn.model.convert import refuse_what_cannot_be_converted

Progress = Callable[[str], None]

CAUSAL_RANGES: dict[str, Range] = {
    "norm": NormRange(),
    "box": BoxRange(),
    "moments": MomentRange(),
    "extreme_keys": ExtremeKeys(),
}
BY_LAYER = {"taylor": (8,), "extreme_keys_squared": (2, 4)}
"""Methods and orders with which single layers are cut."""
ADVISED_METHOD = "extreme_keys_squared"


@dataclass
class Reading:
    """What one pass over the text measured."""

    layers: list[TermStatistics]
    coverage: dict[str, Coverage] = field(default_factory=dict)
    seconds: float = 0.0

    def ranges(self) -> list[HeadRanges]:
        """The lowest and highest score of every head of every layer."""
        return [(tuple(one.sketch.low.tolist()), tuple(one.sketch.high.tolist())) for one in self.layers]


def read_terms(
    model: PreTrainedModel,
    token_ids: Sequence[int] | Tensor,
    *,
    orders: int = 40,
    context: int = 512,
    sampled_rows: int = SAMPLED_ROWS,
    progress: Progress = lambda item: None,
) -> Reading:
    """Statistics of every layer and head over the tokens, in windows of ``context``; the text may be of any length."""
    heads: int = model.config.num_attention_heads
    layers = [TermStatistics(heads, orders, sampled_rows) for _ in range(model.config.num_hidden_layers)]

    def observe(layer: int, q: Tensor, k: Tensor, v: Tensor) -> None:
        progress(f"layer {layer}")
        layers[layer].add(q, k, v)

    began = perf_counter()
    read_windows(model, token_ids, context, observe)
    return Reading(layers, seconds=perf_counter() - began)


def read_ranges(model: PreTrainedModel, token_ids: Sequence[int] | Tensor, reading: Reading, context: int) -> None:
    """How close the ranges that a causal state can supply come to the true ones; added to the reading."""
    ranges = reading.ranges()
    reading.coverage = {name: Coverage() for name in ("head", *CAUSAL_RANGES)}

    def observe(layer: int, q: Tensor, k: Tensor, v: Tensor) -> None:
        low, high = ranges[layer]
        for name, part in {"head": FixedRange(low=low, high=high), **CAUSAL_RANGES}.items():
            reading.coverage[name].add(part, q, k)

    if torch.as_tensor(token_ids).numel() > 8 and context > 8:
        read_windows(model, token_ids, context, observe)


def forward_seconds(model: PreTrainedModel, token_ids: Sequence[int], context: int) -> float:
    """The time of a plain pass of the model over the tokens, the better of two."""
    ids = torch.as_tensor(token_ids, device=model.device).flatten()
    seconds = []
    with torch.no_grad():
        for _ in range(2):
            began = perf_counter()
            for start in range(0, len(ids), context):
                model(input_ids=ids[None, start : start + context], use_cache=False)
            seconds.append(perf_counter() - began)
    return min(seconds)


def layer_shape(model: PreTrainedModel) -> LayerShape:
    """The sizes of a layer's attention."""
    config: Any = model.config
    dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    return LayerShape(config.num_attention_heads, kv_heads, dim, dim)


def truncation_record(
    cutter: Cutter,
    methods: Sequence[str] = tuple(METHODS),
    *,
    tolerance: float = 0.01,
    by_layer: dict[str, tuple[int, ...]] | None = None,
    progress: Progress = lambda item: None,
) -> dict[str, Any]:
    """The losses of every method, order after order, and of single layers."""
    for name in methods:
        find_method(name)
    cuts: list[Cut] = []
    lowest = []

    def report(cut: Cut) -> None:
        progress(f"{cut.method} order {cut.order}: loss {cut.loss:.4f}")

    for name in methods:
        orders, patience = _orders(name)
        measured = cutter.sweep(name, orders, tolerance, patience, report)
        cuts += measured
        method = METHODS[name]
        row = {"method": name, "title": method.title, "extra_state": method.extra_state, "causal": method.causal}
        lowest.append(row | {"order": lowest_order(measured, tolerance), "last_order": measured[-1].order})
    singles = []
    for name, orders in (BY_LAYER if by_layer is None else by_layer).items():
        for layer in range(cutter.layers):
            progress(f"{name}, only layer {layer}")
            singles += [cutter.cut(name, order, layer) for order in orders]
    return {
        "loss": cutter.softmax.loss,
        "perplexity": cutter.softmax.perplexity,
        "tokens": cutter.softmax.tokens,
        "context": cutter.context,
        "tolerance": tolerance,
        "cuts": [asdict(cut) for cut in cuts],
        "lowest": lowest,
        "by_layer": [asdict(cut) for cut in singles],
    }


def most_steps(model: PreTrainedModel, tokens: int, context: int, methods: Sequence[str]) -> int:
    """The most items the progress can have; sweeps that recover early have fewer."""
    layers: int = model.config.num_hidden_layers
    orders = sum(len([n for n in _orders(name)[0] if not n % METHODS[name].step]) for name in methods)
    return layers * -(-tokens // context) + 1 + orders + (len(BY_LAYER) * layers if methods else 0)


def _orders(method: str) -> tuple[tuple[int, ...], int | None]:
    """The orders of a sweep, and after how many within the tolerance it ends (None: never)."""
    return (TAYLOR_ORDERS, None) if method == "taylor" else (ORDERS, 2)


def advice_for_budget(record: dict[str, Any], shape: LayerShape, longest_context: int, budget: float) -> Advice:
    """The advice for an increase of the loss by ``budget`` (nats), from the losses of single layers."""
    increases: list[dict[int, float]] = []
    for cut in record["by_layer"]:
        if cut["method"] != ADVISED_METHOD:
            continue
        while len(increases) <= cut["layer"]:
            increases.append({})
        increases[cut["layer"]][cut["order"]] = cut["loss"] - record["loss"]
    if not increases:
        raise InputError(f"by_layer: expected single layers cut with {ADVISED_METHOD}, got none")
    orders = orders_for_budget(increases, budget)
    return advise(shape, orders, longest_context=longest_context, method=ADVISED_METHOD)


def terms_record(
    model: PreTrainedModel,
    token_ids: Sequence[int],
    *,
    orders: int = 40,
    context: int = 512,
    epsilon: float = 0.01,
    loss_ids: Sequence[int] | None = None,
    methods: Sequence[str] = tuple(METHODS),
    tolerance: float = 0.01,
    keep: Path | None = None,
    progress: Progress = lambda item: None,
) -> dict[str, Any]:
    """All of it as plain values: what ``softmax-rnn terms`` writes to ``terms.json``.

    Losses are measured on ``loss_ids``, which may be fewer tokens; without methods there are none. They are kept in
    the file ``keep`` one by one, and not measured again if they are there.
    """
    check_arguments(token_ids, epsilon, tolerance, methods)
    if methods:
        refuse_what_cannot_be_converted(model)
    width = visible_width(model)
    context = context if width is None else min(context, width)
    plain = forward_seconds(model, token_ids, context)
    reading = read_terms(model, token_ids, orders=orders, context=context, progress=progress)
    progress("ranges")
    read_ranges(model, token_ids, reading, context)
    shape = layer_shape(model)
    longest = int(getattr(model.config, "max_position_embeddings", None) or context)
    layers = [{"layer": i, **asdict(one.layer(epsilon))} for i, one in enumerate(reading.layers)]
    by_epsilon = advise(shape, [row["order_within"] for row in layers], longest_context=longest)
    value: dict[str, Any] = {
        "model": model.config.name_or_path or type(model).__name__,
        "tokens": len(token_ids),
        "context": context,
        "window": width,
        "orders": orders,
        "epsilon": epsilon,
        "shape": asdict(shape),
        "timing": {
            "forward_seconds": plain,
            "statistics_seconds": reading.seconds,
            "forwards_per_10_orders": reading.seconds / plain / (orders / 10),
        },
        "layers": layers,
        "heads": [
            {"layer": i, "head": h, **asdict(head)}
            for i, one in enumerate(reading.layers)
            for h, head in enumerate(one.heads(epsilon))
        ],
        "ranges": [{"range": name, **coverage.result()} for name, coverage in reading.coverage.items()],
        "epsilon_advice": by_epsilon.to_json(),
    }
    near_far = near_far_record(model, loss_ids or token_ids, min(len(loss_ids or token_ids), longest))
    if near_far is not None:
        value["near_far"] = near_far
    if methods:
        cutter = Cutter(model, loss_ids or token_ids, context, reading.ranges(), keep)
        value |= _losses(cutter, shape, methods, tolerance, longest, progress)
    return value


def _losses(
    cutter: Cutter, shape: LayerShape, methods: Sequence[str], tolerance: float, longest: int, progress: Progress
) -> dict[str, Any]:
    record = truncation_record(cutter, methods, tolerance=tolerance, progress=progress)
    budget = tolerance * record["loss"]
    advice = advice_for_budget(record, shape, longest, budget)
    loss, _ = cutter.loss(advice.specs(cutter.ranges))
    return {"truncation": record, "advice": advice.to_json(cutter.ranges) | {"budget": budget, "loss": loss}}


def check_arguments(token_ids: Sequence[int], epsilon: float, tolerance: float, methods: Sequence[str]) -> None:
    """Refuse what no work can be done with, before any."""
    if len(token_ids) < 2:
        raise InputError(f"text: expected at least 2 tokens, got {len(token_ids)}")
    for name, value in (("epsilon", epsilon), ("tolerance", tolerance)):
        if not value > 0:
            raise InputError(f"{name}: expected a positive number, got {value}")
    for name in methods:
        find_method(name)
