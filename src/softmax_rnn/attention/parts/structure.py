"""Structure over time: which part of the past a query sees, and how.

An attention is a sum of contractions over disjoint sets of keys that share values and epilogue. Without a structure
there is one set, all keys of the segment up to the query.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from softmax_rnn.attention.parts.base import Part
from softmax_rnn.attention.parts.feature_sum import FeatureSum
from softmax_rnn.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from softmax_rnn.attention.spec import AttentionSpec


@dataclass(frozen=True)
class Structure(Part):
    """Whatever is in the slot of the structure."""

    slot: ClassVar[str] = "structure"
    hides_the_rest: ClassVar[bool] = False
    """Whether keys outside a window have no weight at all."""
    step_by_step: ClassVar[bool] = False
    """Whether what a query sees depends on the weights of the earlier ones."""
    divides_apart: ClassVar[bool] = False
    """Whether each set of keys is divided by its own sum."""
    beside_exp: ClassVar[bool] = False
    """Whether some keys have exp in place of the score."""
    needs_own_state: ClassVar[str | None] = None
    """Why it cannot go on from a list of all keys."""

    @property
    def needs_row_sum(self) -> bool:
        """Whether it exists only where a row is divided by its sum."""
        return False

    @property
    def near(self) -> int:
        """How many keys a state keeps beside sums, or at most."""
        return 0

    @property
    def levels(self) -> int:
        """Into how many levels the past is cut."""
        return 0

    @property
    def wide_sums(self) -> bool:
        """Whether what it adds up cancels, so that the sums need float64."""
        return False

    @property
    def chunk(self) -> int | None:
        """How many positions leave one key."""
        return None

    def check(self, spec: AttentionSpec) -> None:
        """Refuse parts that need all earlier keys."""
        if isinstance(spec.normaliser, FeatureSum):
            raise InputError("structure: feature_sum divides by a sum over all keys; use row_sum")
        if spec.forget_gate is not None and spec.forget_gate.by_channel:
            raise InputError("structure: a decay per channel has no structure over time; use one per head")

    def seen(self, lengths: Tensor, real: Tensor | None) -> Tensor:
        """How many of the segment's ``lengths`` keys so far a query sees; ``real`` (B, T) is False at padding."""
        return lengths

    def pairs(self, pairs: int, queries: int) -> int:
        """How many of so many pairs of a query and an earlier key are seen."""
        return pairs

    def kept_numbers(self, key_dim: int, value_dim: int) -> int:
        """How many numbers a head's state keeps beside sums, or at most."""
        return self.near * (key_dim + value_dim)

    def weight_text(self) -> str:
        """What follows w in a formula."""
        return ""

    def text(self) -> str:
        """What is under the Σ of a formula."""
        return "all keys"

    def text_with(self, spec: AttentionSpec) -> str:
        """The same where it depends on the spec's other parts."""
        return self.text()


@dataclass(frozen=True)
class NearKeys(Structure):
    """The last ``width`` visible keys of a query, and the first ``sinks`` of its segment; padding does not count."""

    width: int
    sinks: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width < 1:
            raise InputError(f"width: expected 1 or more, got {self.width}")
        if self.sinks < 0:
            raise InputError(f"sinks: expected 0 or more, got {self.sinks}")

    @property
    def near(self) -> int:
        return self.width + self.sinks

    @property
    def spare(self) -> int:
        """How many keys more a decoding state keeps at least, so that it need not be cut at each step."""
        return max(1, min(64, self.width // 8))

    def text(self) -> str:
        sinks = f" and the first {self.sinks}" if self.sinks else ""
        return f"the last {self.width}{sinks} keys"


@dataclass(frozen=True)
class Window(NearKeys):
    """Only window and sinks are seen, by any score."""

    kind: ClassVar[str] = "window"
    hides_the_rest: ClassVar[bool] = True

    def pairs(self, pairs: int, queries: int) -> int:
        return min(pairs, queries * self.near)

    def seen(self, lengths: Tensor, real: Tensor | None) -> Tensor:
        """At most window and sinks."""
        return lengths.clamp(max=self.near)
