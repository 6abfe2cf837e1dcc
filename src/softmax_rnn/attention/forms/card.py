"""Times on a CUDA or ROCm card, from its roofline: enough to tell forms apart, never measured by this project.

The rates are those of an A100 at half of its peak; what counts here are ratios.
"""

from __future__ import annotations

from softmax_rnn.attention.situation import Situation

# Nanoseconds: a multiply-add pair of bfloat16 on tensor cores, the same of float32, a byte, a launch.
PRODUCT = 1.3e-5
WIDE_PRODUCT = 8e-5
BYTE = 6.5e-4
LAUNCH = 5_000.0
WALK = 10.0
"""One more key for a program that walks over keys alone: with few queries there are too few programs."""


def on_card(situation: Situation) -> bool:
    """Whether the call runs on a card."""
    return situation.device == "cuda"


def time_on_card(situation: Situation, launches: float, products: float, numbers: float, keys: float = 0) -> float:
    """Nanoseconds of launches, multiply-add pairs, numbers through memory, and keys that one program walks over."""
    rate = PRODUCT if situation.half else WIDE_PRODUCT
    size = 2 if situation.half else 4
    backward = 3.5 if situation.needs_grad else 1
    return backward * (launches * LAUNCH + max(products * rate, numbers * size * BYTE, keys * WALK))
