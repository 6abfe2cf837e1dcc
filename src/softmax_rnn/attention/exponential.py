"""e^x in place, as fast as the platform can.

>>> import torch
>>> exp_(torch.zeros(2))
tensor([1., 1.])
"""

from __future__ import annotations

import math

from torch import Tensor

_LOG2_E = math.log2(math.e)


def exp_(x: Tensor) -> Tensor:
    """e^x = 2^(x log₂ e) in place, up to |x| more roundings; on a CPU torch's exp can take three times as long."""
    return x.mul_(_LOG2_E).exp2_() if x.is_cpu else x.exp_()
