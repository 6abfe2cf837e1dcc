"""What every part of an attention has in common."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from softmax_rnn.errors import InputError


@dataclass(frozen=True)
class Part:
    """One exchangeable part. ``kind`` is its name in JSON; subclasses register themselves under it."""

    kind: ClassVar[str] = ""
    slot: ClassVar[str] = ""
    """The field of `AttentionSpec` that this part fits into."""
    registry: ClassVar[dict[str, dict[str, type[Part]]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.kind:
            Part.registry.setdefault(cls.slot, {})[cls.kind] = cls


def check_eps(eps: float) -> None:
    """An eps is 0 or more."""
    if not (math.isfinite(eps) and eps >= 0):
        raise InputError(f"eps: expected 0 or more, got {eps!r}")
