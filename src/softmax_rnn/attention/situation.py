"""What the choice of a form depends on besides the spec."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Situation:
    """Sizes, and what is known of masks and of the past."""

    batch: int = 1
    heads: int = 16
    kv_heads: int = 16
    queries: int = 1024
    keys: int = 1024
    key_dim: int = 64
    value_dim: int = 64
    needs_grad: bool = False
    has_fixed_past: bool = False
    """The past is a state of fixed size: its keys are gone."""
    holes: bool = False
    """Padding lies between real keys of a segment."""
    unread: bool = False
    """There are masks that the host may not read: keys are hidden by numbers, pair by pair."""
    traced: bool = False
    """A graph is made that must serve other lengths as well."""
    device: str = "cpu"
    """As torch names it: ROCm's cards are "cuda" too."""
    dtype: str = "float32"
    """In which the call is computed."""
    half: bool = False
    """Whether the caller's tensors are half precision."""
    pairs: int | None = None
    """Pairs of a query and a key that it sees, per head, over the batch; None for the full triangle."""

    @property
    def visible_pairs(self) -> int:
        """Pairs that count."""
        if self.pairs is not None:
            return self.pairs
        past = self.keys - self.queries
        return self.batch * (self.queries * past + self.queries * (self.queries + 1) // 2)


TYPICAL = Situation()
