"""Memory behind a growing tensor."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

SPARE_POSITIONS = 64
"""A buffer grows by this many positions, or by a quarter of what there is."""


class Buffer:
    """Memory with places to spare behind a growing tensor, so that a step writes one position and copies none.

    ``used`` is how far it has been written. A state that is shorter than that (an older one, kept by the caller)
    must not write here: it would overwrite what a newer one sees.
    """

    def __init__(self, memory: Float[Tensor, "B K C D"], used: int) -> None:
        self.memory = memory
        self.used = used

    @classmethod
    def append(
        cls, buffer: Buffer | None, old: Float[Tensor, "B K T D"], new: Float[Tensor, "B K t D"]
    ) -> tuple[Tensor, Buffer]:
        """Old and new positions as one tensor, and the buffer that holds it."""
        before, after = old.shape[2], old.shape[2] + new.shape[2]
        fits = buffer is not None and buffer.used == before and buffer.memory.shape[2] >= after
        if buffer is None or not fits or buffer.memory.dtype != new.dtype:
            batch, heads, _, dim = old.shape
            memory = new.new_empty(batch, heads, max(after + SPARE_POSITIONS, after * 5 // 4), dim)
            memory[:, :, :before] = old
            buffer = cls(memory, before)
        buffer.memory[:, :, before:after] = new
        buffer.used = after
        return buffer.memory[:, :, :after], buffer


Buffers = tuple["Buffer | None", "Buffer | None"]
