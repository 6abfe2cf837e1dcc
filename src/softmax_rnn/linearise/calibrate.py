"""The stage `calibrate`: fit the closed forms, keep the best one, choose the layers of a budget."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from softmax_rnn.analysis.perplexity import perplexity
from softmax_rnn.data.rows import IGNORED, Row, collate
from softmax_rnn.errors import InputError
from softmax_rnn.experiment.network import layer_bytes
from softmax_rnn.linearise.closed_form import METHODS, apply, head_sums
from softmax_rnn.linearise.constant_channel import divides_by_a_norm, with_constant_channel
from softmax_rnn.linearise.distil import divergence_sum
from softmax_rnn.linearise.layers import Choice, choose, costs
from softmax_rnn.linearise.models import RowReader, attentions, converted
from softmax_rnn.linearise.settings import CONSTANT, LineariseConfig
from softmax_rnn.model.convert import specs_of

UNCHANGED = "unchanged"
"""The student as it was converted: where that is close to the original already, a fit to few tokens can be worse."""
LAYER_TOKENS = 1024
"""Tokens on which the cost of each layer is measured."""


def calibrated(
    config: LineariseConfig, original: PreTrainedModel, student: PreTrainedModel, rows: Sequence[Row]
) -> tuple[PreTrainedModel, dict[str, Any]]:
    """The student with the closed form, or none, that is closest to the original on the last quarter of the rows."""
    if config.chooses_layers:
        # A budget that no choice of layers can meet is refused here, before the work.
        within_budget(config, original, student, [0.0] * len(specs_of(student)), 1.0)
    held = max(1, len(rows) // 4)
    fitted = rows[:-held] or rows
    constant = CONSTANT in config.methods and all(divides_by_a_norm(spec) for spec in specs_of(student))
    sums = head_sums(original, student, fitted, with_inputs=constant)
    weights = {UNCHANGED: _read_and_written(student)}
    for method in METHODS:
        if method in config.methods:
            apply(student, original, sums, method)
            weights[method] = _read_and_written(student)
    if constant:
        with_constant_channel(student, original, sums, fitted)
        weights[CONSTANT] = _read_and_written(student)
    tried = divergences(original, student, weights, rows[-held:])
    best = min(tried, key=lambda name: math.inf if math.isnan(tried[name]) else tried[name])
    student.load_state_dict(weights[best], strict=False)
    result: dict[str, Any] = {"method": best, "tried": tried, "tokens": len(rows) * config.context}
    if config.chooses_layers:
        student, result["layers"] = hybrid(config, original, student, rows[-held:])
    return student, result


def _read_and_written(student: PreTrainedModel) -> dict[str, Tensor]:
    """The value and output projections, which the closed forms change."""
    return {name: x.clone() for name, x in student.state_dict().items() if ".v_proj." in name or ".o_proj." in name}


@torch.no_grad()
def divergences(
    original: PreTrainedModel, student: PreTrainedModel, weights: dict[str, dict[str, Tensor]], rows: Sequence[Row]
) -> dict[str, float]:
    """The KL divergence to the original per token, with each of these weights in the student."""
    sums, tokens = dict.fromkeys(weights, 0.0), 0
    for row in rows:
        inputs = {name: x.to(original.device) for name, x in collate([row]).items()}
        counted = inputs.pop("targets") != IGNORED
        wanted = RowReader(original)(**inputs).logits
        for name, known in weights.items():
            student.load_state_dict(known, strict=False)
            sums[name] += float(divergence_sum(RowReader(student)(**inputs).logits, wanted, counted))
        tokens += int(counted.sum())
    return {name: total / max(tokens, 1) for name, total in sums.items()}


def within_budget(
    config: LineariseConfig, original: PreTrainedModel, student: PreTrainedModel, rises: Sequence[float], loss: float
) -> tuple[Choice, list[tuple[int, int]]]:
    """The layers to convert, and the bytes of each layer's state as it is and converted."""
    shape, context = original.config, config.budget_context
    sizes = [
        (layer_bytes(shape, old, context), layer_bytes(shape, new, context))
        for old, new in zip(specs_of(original), specs_of(student), strict=True)
    ]
    choice = choose(
        rises,
        loss=loss,
        keep_loss=config.keep_loss,
        count=config.convert_layers,
        sizes=sizes,
        state_bytes=config.state_bytes,
    )
    if not choice.layers:
        raise InputError("budget: no layer is converted within it; raise keep_loss, or lower state_bytes")
    return choice, sizes


def hybrid(
    config: LineariseConfig, original: PreTrainedModel, student: PreTrainedModel, rows: Sequence[Row]
) -> tuple[PreTrainedModel, dict[str, Any]]:
    """The model with only the layers within the budget converted, and how they were chosen."""
    ids = torch.cat([torch.as_tensor(row["input_ids"]) for row in rows])[: LAYER_TOKENS + 1].to(original.device)
    base, rises = costs(original, student, ids, config.context)
    choice, sizes = within_budget(config, original, student, rises, base)
    pairs = zip(specs_of(original), specs_of(student), strict=True)
    specs = [new if number in choice.layers else old for number, (old, new) in enumerate(pairs)]
    mixed = converted(original, specs, config.forget_bias, config.seed)
    for number in choice.layers:
        attentions(mixed)[number].load_state_dict(attentions(student)[number].state_dict())
    layers = [
        {"layer": n, "increase": rise, "converted": n in choice.layers, "bytes": size[0], "converted_bytes": size[1]}
        for n, (rise, size) in enumerate(zip(rises, sizes, strict=True))
    ]
    measured = perplexity(mixed, ids, config.context).loss
    facts = {"loss": base, "predicted": choice.predicted, "measured": measured, "tokens": len(ids) - 1}
    return mixed, facts | {"context": config.budget_context, "rows": layers}
