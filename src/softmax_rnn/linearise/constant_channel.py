"""A closed form for attentions with a norm in place of the denominator: one channel of the values is made constant.

    y = Σ_j w_j v_j,  u·v_j = c for every j        ⇒        |y| = c Σ_j w_j · √(1 + |o|²/c²)

with o = Σ_j w_j v_j / Σ_j w_j without its part along u. So for a large c the norm of y is c times the row sum, and
c y/|y| is nearly what the denominator would have given. Nothing is added to the attention: a head gives up one of its
channels, the one that its outputs and its output projection can best do without, and c u aᵀ takes its place in the
value projection. a·h is the linear function of the layer's input that is closest to 1; with a bias, the channel is
exactly constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from softmax_rnn.attention.parts import L2Norm, RMSNorm
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.data.rows import Row
from softmax_rnn.linearise.closed_form import HeadSums, head_sums, scaled
from softmax_rnn.linearise.models import attentions, shape_of

SIZE = 16.0
"""c, in units of the root mean square of |o|: the row sum is then exact within 0.2 % for outputs of usual size."""
RIDGE = 1e-3
"""In units of the mean square of a layer's inputs."""
TURNS = 20
"""Steps of the iteration for u; it settles in a few."""


def divides_by_a_norm(spec: AttentionSpec | None) -> bool:
    """Whether each head is divided by the size of its own output, and nothing rewrites its values."""
    if spec is None or spec.write_rule is not None or spec.skip is not None:
        return False
    norm = spec.output_norm
    return isinstance(norm, L2Norm) or (isinstance(norm, RMSNorm) and not norm.across_heads)


@torch.no_grad()
def with_constant_channel(
    student: PreTrainedModel, original: PreTrainedModel, sums: Sequence[HeadSums], rows: Sequence[Row]
) -> None:
    """Give every head a constant channel, and then its scale."""
    make_constant(student, original, sums)
    for one, old, known in zip(
        attentions(student), attentions(original), head_sums(original, student, rows), strict=True
    ):
        project: Any = one.o_proj
        before: Any = old.o_proj
        project.weight.copy_(scaled(known, before.weight.float(), shape_of(one)[0], project.weight))


@torch.no_grad()
def make_constant(student: PreTrainedModel, original: PreTrainedModel, sums: Sequence[HeadSums]) -> None:
    """Give every head a constant channel that its output projection does not read."""
    for one, old, known in zip(attentions(student), attentions(original), sums, strict=True):
        value: Any = one.v_proj
        project: Any = one.o_proj
        before: Any = old.o_proj
        heads, dim = shape_of(one)
        groups = value.out_features // dim
        output = before.weight.double().unflatten(1, (groups, heads // groups, dim))
        sizes = torch.stack([block.to(output) for block in known.old_blocks(heads)]).unflatten(0, (groups, -1))
        weight, new = value.weight.double(), output.clone()
        steady = known.constant(RIDGE).to(output)
        for group in range(groups):
            u = spare_direction(output[:, group].movedim(1, 0), sizes[group])
            c = SIZE * float(sizes[group].diagonal(dim1=-2, dim2=-1).sum(-1).mean() / known.count) ** 0.5
            rows, away = slice(group * dim, (group + 1) * dim), torch.eye(dim).to(output) - torch.outer(u, u)
            weight[rows] = away @ weight[rows]
            if value.bias is None:
                weight[rows] += c * torch.outer(u, steady)
            else:
                value.bias[rows] = (away @ value.bias[rows].double() + c * u).to(value.bias)
            new[:, group] = output[:, group] @ away
        value.weight.copy_(weight)
        project.weight.copy_(new.flatten(1))


def spare_direction(projects: Tensor, sizes: Tensor) -> Tensor:
    """The unit vector u that loses least, Σ_h |W_h u|² · uᵀC_h u, for W (heads, hidden, E) and C (heads, E, E).

    >>> sizes = torch.diag(torch.tensor([4.0, 1.0, 9.0], dtype=torch.float64))[None]
    >>> spare_direction(torch.eye(3, dtype=torch.float64)[None], sizes).abs().round(decimals=3).tolist()
    [0.0, 1.0, 0.0]
    """
    grams = projects.mT @ projects
    u = torch.linalg.eigh(grams.sum(0)).eigenvectors[:, 0]
    for _ in range(TURNS):
        # A product is least where its factors, each weighted by the other one, are.
        read, seen = (torch.einsum("i,hij,j->h", u, x, u)[:, None, None] for x in (grams, sizes))
        u = torch.linalg.eigh((grams * seen + sizes * read).sum(0)).eigenvectors[:, 0]
    return u
