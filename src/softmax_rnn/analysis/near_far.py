"""What window and far state of a model do by themselves: the loss of each alone, and how much weight is far.

Converted models are often found to use their window only; these numbers say so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from softmax_rnn.analysis.perplexity import counted_perplexity, evaluating
from softmax_rnn.attention.attend import attend
from softmax_rnn.attention.parts import Alone, NearFar
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.model.foreign import ForeignAttention
from softmax_rnn.model.spec_attention import SpecAttention

Measured = TypeVar("Measured")
BOTH = "both"
WAYS: dict[str, Alone | None] = {BOTH: None, "window alone": Alone.NEAR, "state alone": Alone.FAR}
"""Window alone: exp on the last keys and the sinks. State alone: the polynomial on the keys that left the window."""


def near_far_record(model: PreTrainedModel, token_ids: Sequence[int] | Tensor, context: int) -> dict[str, Any] | None:
    """The losses with both parts, with window and sinks alone and with the far part alone, in all layers that have
    them; and the part of the row sums that is far, layer by layer. None for a model without such layers.
    """
    modules = near_far_modules(model)
    if not modules:
        return None
    measured = by_part(modules, lambda: counted_perplexity(model, token_ids, context))
    losses = [
        {"parts": name, "loss": one.loss, "perplexity": one.perplexity, "nonpositive": nonpositive}
        for name, (one, nonpositive) in measured.items()
    ]
    shares = far_shares(model, modules, token_ids, context)
    layers = [{"layer": layer, "far_share": share} for layer, share in shares.items()]
    return {"losses": losses, "layers": layers}


def near_far_modules(model: PreTrainedModel) -> dict[int, SpecAttention | ForeignAttention]:
    """The attentions with a near and a far part, by layer."""
    modules = {}
    for module in model.modules():
        if isinstance(module, (SpecAttention, ForeignAttention)) and isinstance(module.spec.structure, NearFar):
            modules[module.layer_idx] = module
    return modules


def by_part(modules: dict[int, Any], measure: Callable[[], Measured]) -> dict[str, Measured]:
    """What ``measure`` gives with both parts in these modules and with each alone, by the names of `WAYS`."""
    before = {layer: module.spec for layer, module in modules.items()}
    measured = {}
    try:
        for name, alone in WAYS.items():
            for layer, module in modules.items():
                spec = before[layer]
                module.spec = replace(spec, structure=replace(spec.structure, alone=alone))
            measured[name] = measure()
    finally:
        for layer, module in modules.items():
            module.spec = before[layer]
    return measured


def far_shares(
    model: PreTrainedModel, modules: dict[int, Any], token_ids: Sequence[int] | Tensor, context: int
) -> dict[int, float | None]:
    """The mean of Σ_far w / Σ w over the queries that have far keys; None where the parts have a sum each."""
    ids = torch.as_tensor(token_ids, device=model.device).flatten()
    totals = {layer: [0.0, 0] for layer in modules}

    def look(module: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        assert isinstance(module, (SpecAttention, ForeignAttention))
        hidden = arguments[0] if arguments else options["hidden_states"]
        q, k, _ = module.project(hidden, options.get("position_embeddings"))  # pyright: ignore[reportArgumentType]
        share = _far_share(module.spec, q, k, module.parts(hidden))
        if share is not None:
            total = totals[module.layer_idx]
            total[0] += float(share.sum())
            total[1] += share.numel()

    handles = [module.register_forward_pre_hook(look, with_kwargs=True) for module in modules.values()]
    try:
        with evaluating(model):
            for start in range(0, len(ids), context):
                model(input_ids=ids[None, start : start + context], use_cache=False, logits_to_keep=1)
    finally:
        for handle in handles:
            handle.remove()
    return {layer: total / count if count else None for layer, (total, count) in totals.items()}


def _far_share(spec: AttentionSpec, q: Tensor, k: Tensor, tensors: dict[str, Tensor]) -> Tensor | None:
    """Row sums are outputs of values of 1 that nothing divides."""
    structure = spec.structure
    assert isinstance(structure, NearFar)
    if structure.divides_apart or q.shape[2] <= structure.near:
        return None
    bare = AttentionSpec(spec.feature_map, spec.score, spec.forget_gate, normaliser=None, structure=structure)
    ones = k.new_ones(*k.shape[:3], 1).double()
    given: dict[str, Any] = {name: x for name, x in tensors.items() if name in bare.tensors}
    both, near = (
        attend(replace(bare, structure=replace(structure, alone=alone)), q.double(), k.double(), ones, **given)
        for alone in (None, Alone.NEAR)
    )
    return (1 - near / both)[:, :, structure.near :]


def near_far_lines(record: dict[str, Any]) -> list[str]:
    """The record as text.

    >>> losses = [{"parts": "both", "loss": 2.5}, {"parts": "window alone", "loss": 2.51}]
    >>> near_far_lines({"losses": losses, "layers": [{"layer": 0, "far_share": 0.25}]})
    ['loss with both parts 2.5000, window alone 2.5100', 'weight that is far: 25.0 % on average, layer 0 most (25.0 %)']
    """
    said = ", ".join(f"{row['parts']} {row['loss']:.4f}" for row in record["losses"])
    lines = ["loss with " + said.replace("both ", "both parts ", 1)]
    shares = {row["layer"]: row["far_share"] for row in record["layers"] if row["far_share"] is not None}
    if shares:
        most = max(shares, key=lambda layer: shares[layer])
        mean = math.fsum(shares.values()) / len(shares)
        lines.append(
            f"weight that is far: {100 * mean:.1f} % on average, layer {most} most ({100 * shares[most]:.1f} %)"
        )
    return lines
