"""Monomials of degree 2 in the order of a circle: x_i x_{i+d}, indices modulo D, for d = 0 … D/2.

For each d they are x times a window of D entries of [x, x]. All windows lie in the same memory, so one product makes
the features of all d, where the order of index lists takes one per index. For even D the last window is half as long.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from softmax_rnn.attention.constants import constant
from softmax_rnn.attention.features import SymmetricFeatures, suffix_starts
from softmax_rnn.attention.parts import Polynomial


def walk_features(score: Polynomial, dim: int) -> SymmetricFeatures:
    """The features of a walk over chunks, in the order that is made fastest."""
    return CircularFeatures(score, dim) if score.degree == 2 else SymmetricFeatures(score, dim)


class CircularFeatures(SymmetricFeatures):
    """The same features of a polynomial of degree 2 in another order."""

    def key(self, k: Float[Tensor, "G D C"], out: Tensor | None = None) -> Float[Tensor, "G F C"]:
        return self._made(k, [1.0] * 3, 1.0, out)

    def query(
        self, q: Float[Tensor, "G D C"], rows: Float[Tensor, "G C O"] | None, out: Tensor | None = None
    ) -> Float[Tensor, "G F C"]:
        return self._made(q, self._factors(rows), 2.0, out)

    def key_backward(self, k: Tensor, grad: Float[Tensor, "G F C"]) -> Float[Tensor, "G D C"]:
        return self._pulled(k, grad, [1.0] * 3, 1.0)

    def query_backward(
        self, q: Tensor, grad: Float[Tensor, "G F C"], rows: Float[Tensor, "G C O"] | None
    ) -> Float[Tensor, "G D C"]:
        return self._pulled(q, grad, self._factors(rows), 2.0)

    def arranged(self, state: Float[Tensor, "N F U"]) -> Float[Tensor, "N F U"]:
        return state.index_select(1, circular_places(self.score.orders, self.dim, state.device)[0])

    def in_order(self, state: Float[Tensor, "N F U"]) -> Float[Tensor, "N F U"]:
        return state.index_select(1, circular_places(self.score.orders, self.dim, state.device)[1])

    def _factors(self, rows: Float[Tensor, "G C O"] | None) -> list[float] | list[Tensor]:
        """What multiplies each order."""
        if rows is None:
            return [*self.score.coefficients]
        return [rows[..., n, None].mT for n in range(3)]

    def _made(self, x: Tensor, factors: list[float] | list[Tensor], mixed: float, out: Tensor | None) -> Tensor:
        """Monomials times the factor of their order; those of two different indices times ``mixed`` as well."""
        size, (count, dim, columns) = self.count, x.shape
        out = x.new_empty(count, size, columns) if out is None else out
        x = x.contiguous()
        if 0 in self.score.orders:
            out[:, :1] = factors[0]
        if 1 in self.score.orders:
            start = 0 in self.score.orders
            torch.mul(x, factors[1], out=out[:, start : start + dim])
        place, windows = out[:, size - dim * (dim + 1) // 2 :], (dim + 1) // 2
        scaled = x * (factors[2] * mixed)
        shifted = torch.cat([x, x], 1).as_strided(
            (count, windows, dim, columns), (2 * dim * columns, columns, columns, 1)
        )
        torch.mul(scaled[:, None], shifted, out=place[:, : windows * dim].unflatten(1, (windows, dim)))
        if dim % 2 == 0:
            half = dim // 2
            torch.mul(scaled[:, :half], x[:, half:], out=place[:, windows * dim :])
        if mixed != 1:
            place[:, :dim].div_(mixed)
        return out

    def _pulled(self, x: Tensor, grad: Tensor, factors: list[float] | list[Tensor], mixed: float) -> Tensor:
        """The gradient of x from that of ``_made``, which is overwritten."""
        dim, x = self.dim, x.contiguous()
        place, windows = grad[:, self.count - dim * (dim + 1) // 2 :], (dim + 1) // 2
        if mixed != 1:
            place[:, :dim].div_(mixed)
        twice = torch.cat([x, x], 1)
        first, second = torch.zeros_like(x), torch.zeros_like(twice)
        for d in range(windows):
            piece = place[:, d * dim : (d + 1) * dim]
            first.addcmul_(piece, twice[:, d : d + dim])
            second[:, d : d + dim].addcmul_(piece, x)
        if dim % 2 == 0:
            half, piece = dim // 2, place[:, windows * dim :]
            first[:, :half].addcmul_(piece, x[:, half:])
            first[:, half:].addcmul_(piece, x[:, :half])
        first.add_(second[:, :dim]).add_(second[:, dim:]).mul_(factors[2] * mixed)
        if 1 in self.score.orders:
            start = 0 in self.score.orders
            first.add_(grad[:, start : start + dim] * factors[1])
        return first


@constant
def circular_places(
    orders: tuple[int, ...], dim: int, device: torch.device
) -> tuple[Int[Tensor, " F"], Int[Tensor, " F"]]:
    """Where each feature stands among those in the order of index lists, and the other way round."""
    lower = sum((1, dim)[n] for n in orders if n < 2)
    starts = suffix_starts(dim, 2)
    pairs = [sorted((i, (i + d) % dim)) for d in range(dim // 2 + 1) for i in range(dim)]
    pairs = pairs[: dim * (dim + 1) // 2]  # of the last window of an even dim, half
    places = torch.tensor([*range(lower), *(lower + starts[i] + j - i for i, j in pairs)])
    return places.to(device), torch.argsort(places).to(device)
