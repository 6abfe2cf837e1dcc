"""Stage 1, without gradients: the scale of each head in closed form, and the ranges that polynomials need.

Both attentions of a layer read what the original's layer reads. With o the outputs of the original's heads, o′ those of
the new one's and W the output projection, the sums

    A = Σ_t o′ o′ᵀ        B = Σ_t o′ oᵀ

hold all that least squares needs. One number per head, all together, minimises Σ_t |W (s ⊙ o′) − W o|² and is
multiplied into the columns of W; for an L2 norm, which keeps softmax's direction, it is about the mean of |o|. A whole
matrix in place of W minimises Σ_t |W′ o′ − W o|² + λ |W′ − W diag(s)|²; the last term keeps it near the scales where
few tokens say little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from softmax_rnn.analysis.capture import read_windows
from softmax_rnn.attention.ranges.kinds import ExpOnRange, FixedRange
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.data.rows import Row, collate
from softmax_rnn.linearise.models import RowReader, attention_output, attentions, each_attention, heads_of, shape_of

METHODS = ("scales", "matrix")
"""Closed forms of the output projection alone."""
RIDGE = 0.03
"""λ, in units of the mean square of a head's outputs."""


@dataclass
class HeadSums:
    """A and B of a layer; for a constant channel also Σ_t o oᵀ and, of the layer's inputs h, Σ_t h hᵀ and Σ_t h."""

    new: Tensor
    mixed: Tensor
    old: Tensor
    inputs: Tensor
    input_sum: Tensor
    count: int = 0

    @classmethod
    def empty(cls, width: int, hidden: int) -> HeadSums:
        """Before the first token; a hidden size of 0 leaves out what only a constant channel needs."""
        sizes = (width, width, width if hidden else 0, hidden)
        new, mixed, old, inputs = (torch.zeros(n, n, dtype=torch.float64) for n in sizes)
        return cls(new, mixed, old, inputs, torch.zeros(hidden, dtype=torch.float64))

    def add(self, new: Tensor, old: Tensor, inputs: Tensor) -> None:
        """More positions, (tokens, heads · E) and (tokens, hidden)."""
        new, old, inputs = (x.double().cpu() for x in (new, old, inputs))
        self.new += new.T @ new
        self.mixed += new.T @ old
        self.old += (kept := old[:, : len(self.old)]).T @ kept
        self.inputs += inputs.T @ inputs
        self.input_sum += inputs.sum(0)
        self.count += len(new)

    def old_blocks(self, heads: int) -> list[Tensor]:
        """Σ_t o oᵀ of each head."""
        dim = self.old.shape[0] // heads
        return [self.old[first : first + dim, first : first + dim] for first in range(0, heads * dim, dim)]

    def constant(self, ridge: float) -> Tensor:
        """a, so that a·h is closest to 1 over the inputs."""
        size = ridge * self.inputs.diagonal().mean() * torch.eye(len(self.inputs), dtype=torch.float64)
        return torch.linalg.solve(self.inputs + size, self.input_sum)


@torch.no_grad()
def head_sums(
    original: PreTrainedModel, student: PreTrainedModel, rows: Sequence[Row], with_inputs: bool = False
) -> list[HeadSums]:
    """One pass of the original over the rows, with each new attention computed beside the old one."""
    new = attentions(student)
    hidden: int = original.config.hidden_size if with_inputs else 0
    sums = [HeadSums.empty(one.o_proj.in_features, hidden) for one in new]  # pyright: ignore[reportAttributeAccessIssue, reportArgumentType]
    old_heads: list[list[Tensor]] = []
    real: list[Tensor | None] = []

    def show(layer: int, module: Any, arguments: tuple[Any, ...], options: dict[str, Any], output: Tensor) -> None:
        with heads_of(new[layer]) as seen:
            attention_output(new[layer], arguments, options)
        before = old_heads[layer].pop()
        keep = slice(None) if real[0] is None else real[0].flatten().bool()
        inputs = arguments[0] if arguments else options["hidden_states"]
        sums[layer].add(*(x.flatten(0, 1)[keep].float() for x in (seen[0], before, inputs[..., :hidden])))

    contexts = [heads_of(one) for one in attentions(original)]
    try:
        old_heads = [one.__enter__() for one in contexts]
        with each_attention(original, show):
            for row in rows:
                batch = {name: x.to(original.device) for name, x in collate([row]).items() if name != "targets"}
                real[:] = [batch.get("attention_mask")]
                RowReader(original)(**batch, logits_to_keep=1)
    finally:
        for one in contexts:
            one.__exit__(None, None, None)
    return sums


def scales(sums: HeadSums, original: Tensor, heads: int, new: Tensor | None = None) -> Tensor:
    """One scale per head; together they minimise Σ_t |W′ (s ⊙ o′) − W o|², where W′ is W unless another is given."""
    dim = sums.new.shape[0] // heads
    original = original.double().cpu()
    new = original if new is None else new.double().cpu()
    products = new.T @ new
    pairs = ((products, sums.new), (products if new is original else new.T @ original, sums.mixed))
    gram, right = ((x * y).reshape(heads, dim, heads, dim).sum((1, 3)) for x, y in pairs)
    # Any scale fits a head whose output is 0; the smallest solution gives it 0.
    return torch.linalg.lstsq(gram, right.sum(1), driver="gelsd").solution


def scaled(sums: HeadSums, original: Tensor, heads: int, new: Tensor | None = None) -> Tensor:
    """The output projection, the original's unless another is given, with the scales of its heads in its columns."""
    factors = scales(sums, original, heads, new).repeat_interleave(sums.new.shape[0] // heads)
    return (original if new is None else new) * factors.to(original)


def ridge_of(gram: Tensor, heads: int) -> Tensor:
    """λ for each column: in units of the mean square of its head's outputs."""
    dim = gram.shape[0] // heads
    size = gram.diagonal().reshape(heads, dim).mean(-1).clamp(min=1e-30)
    return RIDGE * torch.diag(size.repeat_interleave(dim))


def refitted(sums: HeadSums, original: Tensor, heads: int) -> Tensor:
    """The ridge solution in place of the output projection."""
    near, ridge = scaled(sums, original, heads).double().cpu(), ridge_of(sums.new, heads)
    right = sums.mixed @ original.double().cpu().T + ridge @ near.T
    return torch.linalg.solve(sums.new + ridge, right).T.to(original)


@torch.no_grad()
def apply(student: PreTrainedModel, original: PreTrainedModel, sums: Sequence[HeadSums], method: str) -> None:
    """Replace the output projections of all layers."""
    for one, old, known in zip(attentions(student), attentions(original), sums, strict=True):
        weight: Any = one.o_proj.weight  # pyright: ignore[reportAttributeAccessIssue]
        first: Any = old.o_proj.weight.float()  # pyright: ignore[reportAttributeAccessIssue, reportCallIssue]
        heads = shape_of(one)[0]
        weight.copy_(scaled(known, first, heads) if method == "scales" else refitted(known, first, heads))


def needs_ranges(spec: AttentionSpec) -> bool:
    """Whether the score is a polynomial on a fixed range, which has to be measured."""
    return isinstance(spec.score, ExpOnRange) and isinstance(spec.score.range, FixedRange)


def score_ranges(model: PreTrainedModel, ids: Sequence[int], context: int) -> list[tuple[list[float], list[float]]]:
    """The lowest and the highest score of each query head, layer by layer, on a text."""
    layers: int = model.config.num_hidden_layers
    ends: list[tuple[Tensor, Tensor] | None] = [None] * layers

    def observe(layer: int, q: Tensor, k: Tensor, v: Tensor) -> None:
        scores = q @ k.repeat_interleave(q.shape[0] // k.shape[0], 0).transpose(-1, -2)
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        low = scores.masked_fill(future, torch.inf).amin((-1, -2)).double().cpu()
        high = scores.masked_fill(future, -torch.inf).amax((-1, -2)).double().cpu()
        before = ends[layer]
        ends[layer] = (low, high) if before is None else (low.minimum(before[0]), high.maximum(before[1]))

    read_windows(model, list(ids), context, observe)
    return [(low.tolist(), high.tolist()) for low, high in (end for end in ends if end is not None)]


def with_ranges(specs: Sequence[AttentionSpec], ranges: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Any:
    """The specs, fixed ranges filled in with each head's lowest and highest measured score."""
    with_measured = []
    for spec, (low, high) in zip(specs, ranges, strict=True):
        if needs_ranges(spec):
            score: Any = spec.score
            measured = FixedRange(low=tuple(low), high=tuple(high))
            spec = replace(spec, score=replace(score, range=measured))
        with_measured.append(spec)
    return tuple(with_measured)
