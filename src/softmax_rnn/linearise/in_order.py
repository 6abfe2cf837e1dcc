"""Calibration through the depth: each layer's output projection makes up for what the layers before it have changed.

One pass of the original keeps its residual stream behind every attention, r = x + y. One pass of the new model over the
same rows follows: at a layer with heads o′ and a stream x′ of its own, the matrix W′ minimises

    Σ_t |W′ o′ − (r − x′)|² + λ |W′ − W|²        W as the scales have left it

and the pass goes on with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from softmax_rnn.data.rows import Row, collate
from softmax_rnn.linearise.calibrate import ridge_of
from softmax_rnn.linearise.models import RowReader, attentions, each_attention, heads_of, shape_of


def can_be_refitted(model: PreTrainedModel) -> bool:
    """Whether a block adds what its attention gives to the stream as it is; Gemma 2 and 3 normalise it first."""
    decoder: Any = model.get_decoder()
    return not any(hasattr(block, "pre_feedforward_layernorm") for block in decoder.layers)


@torch.no_grad()
def refit_in_order(original: PreTrainedModel, student: PreTrainedModel, rows: Sequence[Row]) -> None:
    """Change the output projections of the student, the first layer first."""
    wanted = _streams(original, rows)
    batch = {name: x.to(student.device) for name, x in collate(rows).items() if name != "targets"}
    real = batch.get("attention_mask")
    keep = slice(None) if real is None else real.flatten().bool()
    with ExitStack() as stack:
        heads = [stack.enter_context(heads_of(one)) for one in attentions(student)]
        before = _inputs(student, stack)

        def fit(layer: int, module: nn.Module, output: Tensor) -> Tensor:
            project: Any = module.o_proj
            made = heads[layer].pop()
            bias = 0 if project.bias is None else project.bias
            aim = (wanted[layer].to(before[layer].device) - before.pop(layer) - bias).flatten(0, 1)[keep].double()
            seen = made.flatten(0, 1)[keep].double()
            gram = seen.T @ seen
            ridge = ridge_of(gram, shape_of(module)[0])
            right = seen.T @ aim + ridge @ project.weight.double().T
            project.weight.copy_(torch.linalg.solve(gram + ridge, right).T)
            heads[layer].clear()
            return nn.functional.linear(made, project.weight, project.bias)

        for layer, module in enumerate(attentions(student)):
            stack.enter_context(_replaced_output(module, layer, fit))
        RowReader(student.eval())(**batch, last_only=True)


def _streams(original: PreTrainedModel, rows: Sequence[Row]) -> list[Tensor]:
    """The residual stream behind each attention, (rows, T, hidden) per layer, row by row."""
    found: list[list[Tensor]] = [[] for _ in attentions(original)]
    with ExitStack() as stack:
        before = _inputs(original, stack)

        def show(layer: int, module: Any, arguments: Any, options: Any, output: Tensor) -> None:
            found[layer].append((before.pop(layer) + output).float().cpu())

        stack.enter_context(each_attention(original, show))
        for row in rows:
            batch = {name: x.to(original.device) for name, x in collate([row]).items() if name != "targets"}
            RowReader(original)(**batch, last_only=True)
    return [torch.cat(one) for one in found]


def _inputs(model: PreTrainedModel, stack: ExitStack) -> dict[int, Tensor]:
    """The input of each block, as it comes by."""
    decoder: Any = model.get_decoder()
    seen: dict[int, Tensor] = {}
    for layer, block in enumerate(decoder.layers):
        handle = block.register_forward_pre_hook(lambda _, given, layer=layer: seen.update({layer: given[0]}))
        stack.callback(handle.remove)
    return seen


def _replaced_output(module: nn.Module, layer: int, fit: Any) -> Any:
    def hook(one: nn.Module, given: Any, output: Any) -> Any:
        if isinstance(output, tuple):
            return (fit(layer, one, output[0]), *output[1:])
        return fit(layer, one, output)

    stack = ExitStack()
    stack.callback(module.register_forward_hook(hook).remove)
    return stack
