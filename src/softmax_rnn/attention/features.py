"""The symmetric monomials that turn a polynomial of a dot product into a dot product.

Letters: D key dimension, F features, C positions of a chunk, n order, N highest order.

(q·k)^n = Σ over monomials m of degree n of multinomial(m) · m(q) · m(k), where a monomial is an index list
i₁ ≤ … ≤ iₙ and m(x) = x_{i₁} ⋯ x_{iₙ}: C(D+n−1, n) of them instead of D^n. The monomials of degree n that
begin with index i are x_i times those of degree n−1 that begin with i or later, which are contiguous;
so they are built from contiguous slices, with the positions as the last axis and without a gather.
"""

from __future__ import annotations

from functools import cache
from math import comb, factorial

import torch
from jaxtyping import Float
from torch import Tensor

from softmax_rnn.attention.constants import constant
from softmax_rnn.attention.parts import Polynomial


@cache
def suffix_starts(dim: int, degree: int) -> tuple[int, ...]:
    """Where the monomials of ``degree`` whose first index is ≥ i begin, for i = 0 … dim."""
    total = comb(dim + degree - 1, degree)
    starts = [total - comb(dim - i + degree - 1, degree) for i in range(dim)]
    return (*starts, total)


@constant
def factor_places(dim: int, degree: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """For each monomial of ``degree``: its first index, and the place of the rest among those of one degree less."""
    starts = suffix_starts(dim, degree - 1)
    first = [torch.full((starts[-1] - starts[i],), i) for i in range(dim)]
    rest = [torch.arange(starts[i], starts[-1]) for i in range(dim)]
    return torch.cat(first).to(device), torch.cat(rest).to(device)


def _products(
    x: Float[Tensor, "G D C"], lower: Float[Tensor, "G L C"], degree: int, out: Float[Tensor, "G M C"]
) -> Float[Tensor, "G M C"]:
    """The monomials of ``degree`` from those of one degree less, written to ``out``."""
    if x.shape[2] == 1:
        # One position: slices would be single numbers, two look-ups of all of them are faster.
        first, rest = factor_places(x.shape[1], degree, x.device)
        return torch.mul(x[:, first], lower[:, rest], out=out)
    starts, ends = suffix_starts(x.shape[1], degree - 1), suffix_starts(x.shape[1], degree)
    for i in range(x.shape[1]):
        torch.mul(x[:, i : i + 1], lower[:, starts[i] :], out=out[:, ends[i] : ends[i + 1]])
    return out


def _differentiable_products(x: Tensor, lower: Tensor, degree: int) -> Tensor:
    starts = suffix_starts(x.shape[1], degree - 1)
    return torch.cat([x[:, i : i + 1] * lower[:, starts[i] :] for i in range(x.shape[1])], dim=1)


def monomials(x: Float[Tensor, "G D C"], degree: int) -> list[Float[Tensor, "G M C"]]:
    """The monomials of each degree 0 … ``degree``, positions last.

    >>> [m.flatten().tolist() for m in monomials(torch.tensor([[[2.0], [3.0]]]), 2)]
    [[1.0], [2.0, 3.0], [4.0, 6.0, 9.0]]
    """
    levels = [x.new_ones(x.shape[0], 1, x.shape[2]), x][: degree + 1]
    while len(levels) <= degree:
        levels.append(_differentiable_products(x, levels[-1], len(levels)))
    return levels


def monomials_backward(
    x: Float[Tensor, "G D C"], levels: list[Tensor], grads: dict[int, Tensor]
) -> Float[Tensor, "G D C"]:
    """The gradient of x from the gradients of some of its `monomials`; these are overwritten."""
    dim = x.shape[1]
    grad_x = torch.zeros_like(x)
    grad = grads.get(max(grads))
    for degree in range(max(grads), 1, -1):
        assert grad is not None
        lower = grads.get(degree - 1)
        grad_lower = torch.zeros_like(levels[degree - 1]) if lower is None else lower
        starts, ends = suffix_starts(dim, degree - 1), suffix_starts(dim, degree)
        for i in range(dim):
            piece = grad[:, ends[i] : ends[i + 1]]
            grad_x[:, i] += torch.einsum("gmc,gmc->gc", piece, levels[degree - 1][:, starts[i] :])
            grad_lower[:, starts[i] :].addcmul_(x[:, i : i + 1], piece)
        grad = grad_lower
    return grad_x.add_(grad) if grad is not None and max(grads) >= 1 else grad_x


@constant
def multinomials(dim: int, degree: int) -> Float[Tensor, " M"]:
    """n! / Π multiplicities! for each monomial, in the order of `monomials`: how often it occurs in (Σ x_i)^n."""
    # Of the index list's run of equal first indices only the length r matters: r! ⋯ in the denominator.
    # counts[i] lists, per monomial beginning with i, (length of the first run, product of all run factorials).
    runs = [[(1, 1)] for _ in range(dim)]
    for _ in range(1, degree):
        longer = []
        for i in range(dim):
            same = [(run + 1, product * (run + 1)) for run, product in runs[i]]
            later = [(1, product) for j in range(i + 1, dim) for _, product in runs[j]]
            longer.append(same + later)
        runs = longer
    if degree == 0:
        return torch.ones(1, dtype=torch.float64)
    values = [factorial(degree) / product for row in runs for _, product in row]
    return torch.tensor(values, dtype=torch.float64)


class SymmetricFeatures:
    """Features of the two sides of a polynomial score: Σ_n c_n (q·k)^n = query(q) · key(k).

    The multinomials and the coefficients are applied on the query's side, so a state is made of bare monomials
    and fits any polynomial of the same orders.
    """

    def __init__(self, score: Polynomial, dim: int) -> None:
        self.score = score
        self.dim = dim
        self.sizes = [comb(dim + n - 1, n) for n in score.orders]

    @property
    def count(self) -> int:
        """F."""
        return sum(self.sizes)

    @property
    def are_the_input(self) -> bool:
        """Whether f(x) = x, so that φ changes nothing."""
        return self.score.orders == (1,) and self.score.coefficients[1] == 1

    def key(self, k: Float[Tensor, "G D C"], out: Tensor | None = None) -> Float[Tensor, "G F C"]:
        """The monomials of the score's orders, one after another; ``out`` is memory to write them to."""
        if self.score.orders == (1,):
            return k
        if torch.is_grad_enabled() and k.requires_grad:
            levels = monomials(k, self.score.degree)
            return torch.cat([levels[n] for n in self.score.orders], dim=1)
        return self._fill(k, k.new_empty(k.shape[0], self.count, k.shape[2]) if out is None else out)

    def _fill(self, k: Float[Tensor, "G D C"], out: Float[Tensor, "G F C"]) -> Float[Tensor, "G F C"]:
        k = k.contiguous()
        start, lower = 0, k
        for n in range(self.score.degree + 1):
            size = comb(self.dim + n - 1, n)
            kept = n in self.score.orders
            place = out[:, start : start + size] if kept else k.new_empty(k.shape[0], size, k.shape[2])
            if n == 0:
                place.fill_(1)
            elif n == 1:
                place.copy_(k)
            else:
                _products(k, lower, n, place)
            lower = place
            start += size if kept else 0
        return out

    def query(
        self, q: Float[Tensor, "G D C"], rows: Float[Tensor, "G C O"] | None, out: Tensor | None = None
    ) -> Float[Tensor, "G F C"]:
        """The monomials of q times multinomial and coefficient; ``rows`` gives each query its own coefficients."""
        return self.weighed(self.key(q, out), rows, in_place=out is not None)

    def weighed(
        self, features: Float[Tensor, "G F C"], rows: Float[Tensor, "G C O"] | None, in_place: bool = False
    ) -> Float[Tensor, "G F C"]:
        """Monomials of queries times multinomial and coefficient."""
        if rows is None and self.are_the_input:
            return features
        column = weight_column(self.score, self.dim, rows is None, features.dtype, features.device)
        own = in_place and self.score.orders != (1,)  # of order 1 alone the features are the input itself
        features = features.mul_(column) if own else features * column
        if rows is None:
            return features
        parts = torch.split(features, self.sizes, dim=1)
        weighed = [part * rows[..., n, None].mT for n, part in zip(self.score.orders, parts, strict=True)]
        return torch.cat(weighed, dim=1)

    def side_by_side(self, x: Float[Tensor, "G D R"]) -> Float[Tensor, "G F R"]:
        """The monomials of few columns: two look-ups per order, where slices would be small."""
        if self.score.orders == (1,):
            return x
        levels = [x.new_ones(x.shape[0], 1, x.shape[2]), x]
        for n in range(2, self.score.degree + 1):
            first, rest = factor_places(self.dim, n, x.device)
            levels.append(x.index_select(1, first) * levels[-1].index_select(1, rest))
        return torch.cat([levels[n] for n in self.score.orders], dim=1)

    def arranged(self, state: Float[Tensor, "N F U"]) -> Float[Tensor, "N F U"]:
        """A copy of a state with its rows in the order of these features."""
        return state.clone()

    def in_order(self, state: Float[Tensor, "N F U"]) -> Float[Tensor, "N F U"]:
        """The other way round: the order of `monomials`, in which states are handed on."""
        return state

    def key_backward(self, k: Tensor, grad: Float[Tensor, "G F C"]) -> Float[Tensor, "G D C"]:
        """The gradient of k from that of ``key(k)``."""
        if self.score.orders == (1,):
            return grad
        k = k.contiguous()
        levels = monomials(k, max(self.score.degree - 1, 0))
        parts = torch.split(grad, self.sizes, dim=1)
        return monomials_backward(k, levels, dict(zip(self.score.orders, parts, strict=True)))

    def query_backward(
        self, q: Tensor, grad: Float[Tensor, "G F C"], rows: Float[Tensor, "G C O"] | None
    ) -> Float[Tensor, "G D C"]:
        """The gradient of q from that of ``query(q, rows)``."""
        return self.key_backward(q, self.weighed(grad, rows))


@constant
def weight_column(
    score: Polynomial, dim: int, with_coefficients: bool, dtype: torch.dtype, device: torch.device
) -> Float[Tensor, "F 1"]:
    """multinomial · coefficient of each feature; without the coefficients when each query has its own."""
    columns = [multinomials(dim, n) * (score.coefficients[n] if with_coefficients else 1.0) for n in score.orders]
    return torch.cat(columns).unsqueeze(1).to(dtype=dtype, device=device)
