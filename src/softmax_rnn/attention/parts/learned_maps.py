"""Feature maps with learned matrices, one per head, the query's and the key's apart."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from softmax_rnn.attention.parts.base import Declaration, Parameter, Projection
from softmax_rnn.attention.parts.feature_maps import FeatureMap, Side, spread
from softmax_rnn.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor


def orthonormal(shape: tuple[int, ...]) -> Tensor:
    """The identity where a matrix is square; otherwise rows (or columns) that are orthonormal, others for each head."""
    import torch

    *heads, rows, columns = shape
    if rows == columns:
        return torch.eye(rows).expand(shape).clone()
    generator = torch.Generator().manual_seed(0)
    size = max(rows, columns)
    drawn = torch.linalg.qr(torch.randn(*heads, size, size, generator=generator)).Q
    return drawn[..., :rows, :columns].contiguous()


def matrices(name: str, rows: int | None) -> tuple[Declaration, Declaration]:
    """query_NAME and key_NAME: matrices of this many rows per head; None: as many as columns."""
    size = "D" if rows is None else str(rows)
    made = Parameter(orthonormal)
    return Declaration(f"query_{name}", f"H {size} D", made), Declaration(f"key_{name}", f"K {size} D", made)


def times_matrix(x: Tensor, side: Side, name: str) -> Tensor:
    """W x, W the matrix of the side."""
    return x @ side.tensors[f"{'query' if side.is_query else 'key'}_{name}"].mT


def _check_rows(name: str, rows: int | None) -> None:
    if rows is not None and rows < 1:
        raise InputError(f"{name}: expected 1 or more, or None (the dimension of a head), got {rows}")


@dataclass(frozen=True)
class Hedgehog(FeatureMap):
    """φ(x) = softmax([factor · Wx, −factor · Wx]) over all features, W = I at the start.

    With ``joint=False`` the two halves have a softmax each, as in LoLCATs (factor 1, 64 rows).
    """

    kind: ClassVar[str] = "hedgehog"
    lowest_product: ClassVar[float | None] = 0.0
    rows: int | None = None
    factor: float = 2.0
    joint: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_rows("rows", self.rows)

    @property
    def tensors(self) -> tuple[Declaration, ...]:
        """query_map and key_map: W."""
        return matrices("map", self.rows)

    def width(self, dim: int) -> int:
        return 2 * (dim if self.rows is None else self.rows)

    def features(self, x: Tensor, side: Side) -> Tensor:
        import torch

        y = self.factor * times_matrix(x, side, "map")
        if self.joint:
            return torch.cat([y, -y], -1).softmax(-1)
        return torch.cat([y.softmax(-1), (-y).softmax(-1)], -1)

    def needs_float64(self, q: Tensor, k: Tensor) -> bool:
        """Where the smallest features would leave float32 with W = I."""
        return self.factor * (spread(q) + spread(k)) > 60.0

    def text(self, x: str) -> str:
        return f"softmax(±{self.factor:g}W{x})" if self.joint else f"[softmax(±{self.factor:g}W{x})]"


@dataclass(frozen=True)
class LearnedRelu(FeatureMap):
    """φ(x) = relu(Wx + b), W = I and b = 0 at the start: T2R's map."""

    kind: ClassVar[str] = "learned_relu"
    lowest_product: ClassVar[float | None] = 0.0
    rows: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_rows("rows", self.rows)

    @property
    def tensors(self) -> tuple[Declaration, ...]:
        """query_map and key_map, W; query_map_bias and key_map_bias, b."""
        size = "D" if self.rows is None else str(self.rows)
        biases = (Declaration(f"{side}_map_bias", f"{heads} {size}", Parameter()) for side, heads in _SIDES)
        return (*matrices("map", self.rows), *biases)

    def width(self, dim: int) -> int:
        return dim if self.rows is None else self.rows

    def features(self, x: Tensor, side: Side) -> Tensor:
        bias = side.tensors["query_map_bias" if side.is_query else "key_map_bias"]
        return (times_matrix(x, side, "map") + bias[:, None]).relu()

    def text(self, x: str) -> str:
        return f"relu(W{x}+b)"


_SIDES = (("query", "H"), ("key", "K"))


@dataclass(frozen=True)
class LearnedNorm(FeatureMap):
    """φ(x) = γ ⊙ LN(x) + β, γ = 1 and β = 0 at the start, shared by heads and sides: ReBased's map in front of a
    square.
    """

    kind: ClassVar[str] = "learned_norm"
    eps: float = 1e-5

    @property
    def tensors(self) -> tuple[Declaration, ...]:
        """map_weight γ and map_bias β."""
        return Declaration("map_weight", "D", Parameter(1.0)), Declaration("map_bias", "D", Parameter(0.0))

    def features(self, x: Tensor, side: Side) -> Tensor:
        import torch

        weight, bias = side.tensors["map_weight"], side.tensors["map_bias"]
        return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, self.eps)

    def text(self, x: str) -> str:
        return f"(γ⊙LN({x})+β)"


@dataclass(frozen=True)
class Projected(FeatureMap):
    """φ(P x), P a learned projection to ``dim`` dimensions with orthonormal rows at the start; φ absent: P x itself.

    Based and ReBased compare 16 numbers per head.
    """

    kind: ClassVar[str] = "projected"
    dim: int = 16
    feature_map: FeatureMap | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_rows("dim", self.dim)

    @property
    def lowest_product(self) -> float | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        return None if self.feature_map is None else self.feature_map.lowest_product

    @property
    def highest_product(self) -> float | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        return None if self.feature_map is None else self.feature_map.highest_product

    @property
    def tensors(self) -> tuple[Declaration, ...]:
        """query_projection and key_projection, and what φ declares, for vectors of the new dimension."""
        inner = () if self.feature_map is None else self.feature_map.tensors
        axes = ([str(self.dim) if axis == "D" else axis for axis in one.axes.split()] for one in inner)
        return (
            *matrices("projection", self.dim),
            *(replace(one, axes=" ".join(names)) for one, names in zip(inner, axes, strict=True)),
        )

    def width(self, dim: int) -> int:
        return self.dim if self.feature_map is None else self.feature_map.width(self.dim)

    def features(self, x: Tensor, side: Side) -> Tensor:
        x = times_matrix(x, side, "projection")
        return x if self.feature_map is None else self.feature_map.features(x, side)

    def text(self, x: str) -> str:
        return f"P{x}" if self.feature_map is None else self.feature_map.text(f"P{x}")


def exponential(raw: Tensor) -> Tensor:
    """eʳ."""
    return raw.exp()


@dataclass(frozen=True)
class GatedKeys(FeatureMap):
    """φ(q) = q, φ(k_j) = e^r_j k_j, r one number per key head: an input gate that a row sum sees as well (mLSTM)."""

    kind: ClassVar[str] = "gated_keys"

    @property
    def tensors(self) -> tuple[Declaration, ...]:
        """key_gate: e^r."""
        return (Declaration("key_gate", "B K T", Projection(exponential, typical=-1.0)),)

    def features(self, x: Tensor, side: Side) -> Tensor:
        return x if side.is_query else x * side.tensors["key_gate"][..., None]

    def text(self, x: str) -> str:
        return x if x == "q" else f"eʳ{x}"
