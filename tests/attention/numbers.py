"""Inputs for tests of numbers: exact scores of any size, and which variants run in which forms."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from attention.cases import HKV, NAMES, B, H, allowed_forms, inputs, is_quick, literal_form
from attention.compare import seeded
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.variants import VARIANTS

quiet = pytest.mark.filterwarnings("ignore::softmax_rnn.attention.nonpositive.NonPositiveWarning")
TIME = 9


def cases(names: list[str] = NAMES, *, literal: bool = True, **where) -> list[Any]:
    """Names with the forms that serve them; those that another stands for are slow.

    ``literal``: also the form that the others are compared with.
    """
    pairs = [(name, form) for name in names for form in allowed_forms(VARIANTS[name], **where)]
    if not literal:
        pairs = [(name, form) for name, form in pairs if form != literal_form(VARIANTS[name])]
    return [
        pytest.param(*pair, marks=[] if is_quick(*pair) else [pytest.mark.slow], id="-".join(pair)) for pair in pairs
    ]


def every_form(names: list[str], **where) -> list[tuple[str, str]]:
    """These names with all forms that serve them."""
    return [(name, form) for name in names for form in allowed_forms(VARIANTS[name], **where)]


def whole_numbers(*shape: int, seed: int, largest: int) -> Tensor:
    """Their dot products are exact in float32 as well, however large."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-largest, largest + 1, shape, generator=generator).double()


def huge_inputs(spec: AttentionSpec, dtype: torch.dtype, largest: int) -> dict[str, Tensor]:
    """D = 4, so that 1/√d = ½: scores of whole numbers are exact; up to 2 · largest² in size."""
    tensors = inputs(spec, time=TIME, key_dim=4)
    tensors["q"] = whole_numbers(B, H, TIME, 4, seed=0, largest=largest)
    tensors["k"] = whole_numbers(B, HKV, TIME, 4, seed=1, largest=largest)
    return {name: x.to(dtype) for name, x in tensors.items()}


def exact_scores(tensors: dict[str, Tensor]) -> Tensor:
    q, k = tensors["q"].double(), tensors["k"].double()
    return q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT * q.shape[-1] ** -0.5


def line(scores: list[float], dim: int, dtype: torch.dtype) -> dict[str, Tensor]:
    """A last query whose scores are given, with d = 1 or 4 (both have an exact 1/√d)."""
    k = torch.zeros(1, 1, len(scores), dim, dtype=torch.float64)
    k[0, 0, :, 0] = torch.tensor(scores, dtype=torch.float64) * dim**0.5
    q = torch.zeros_like(k)
    q[..., 0] = 1.0
    return {"q": q.to(dtype), "k": k.to(dtype), "v": seeded(1, 1, len(scores), 3, seed=5).to(dtype)}
