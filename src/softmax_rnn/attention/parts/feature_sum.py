"""A denominator of features without their rotation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from softmax_rnn.attention.parts.base import Along, check_eps
from softmax_rnn.attention.parts.feature_maps import Side
from softmax_rnn.attention.parts.normalisers import Normaliser

if TYPE_CHECKING:
    from torch import Tensor

    from softmax_rnn.attention.epilogue import Output, Rows
    from softmax_rnn.attention.spec import AttentionSpec


@dataclass(frozen=True)
class FeatureSum(Normaliser):
    """÷ (scale · φ(q_i)·Σ_j φ(k_j) + eps), φ without its rotation: weights can be negative and need not sum to 1.

    Σ φ(k) is a state of F numbers beside the matrix. ``per_key`` adds eps for each key: an eps beside the mean of
    the features. A forget gate has no effect on it.
    """

    kind: ClassVar[str] = "feature_sum"
    running_axes: ClassVar[str] = "K F"
    eps: float = 0.0
    per_key: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_eps(self.eps)

    def running_start(self) -> float | None:
        return 0.0

    def running(self, along: Along, before: Tensor | None) -> Tensor | None:
        """Σ φ(k) over the keys that each position sees (B, K, T, F)."""
        from softmax_rnn.attention.prologue import running_sum

        keys = _features(along.spec, along.k, Side(False, along.tensors, along.lengths))
        return running_sum(keys, along.seen, before)

    def normalise(self, output: Output, rows: Rows) -> Output:
        """÷ φ(q)·Σ φ(k); sums that are not positive are reported."""
        queries = _features(rows.spec, rows.q, Side(True, rows.tensors, rows.lengths))
        summed = rows.running[self.slot]
        grouped = queries.unflatten(1, (summed.shape[1], -1))
        total = (grouped * summed[:, :, None]).sum(-1).flatten(1, 2)
        scale = rows.spec.score.scale
        total = total * (queries.shape[-1] ** -0.5 if scale is None else scale)
        if self.eps:
            total = total + (self.eps * rows.lengths[:, None] if self.per_key else self.eps)
        total = rows.reported(total)
        return output.over(total * output.in_units(1.0))

    def text(self) -> str:
        eps = "" if not self.eps else f" + {self.eps:g}n" if self.per_key else f" + {self.eps:g}"
        return f" / (φ(q)·Σ φ(k){eps})"


def _features(spec: AttentionSpec, x: Tensor, side: Side) -> Tensor:
    plain = None if spec.feature_map is None else spec.feature_map.unrotated
    return x if plain is None else plain.features(x, side)
