"""Recipes: the settings that a run has where its file says nothing.

``paper`` is the recipe of arXiv 2507.23632; ``cpu`` suits the nano and micro sizes on two cores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True)
class Recipe:
    """Settings by name, and the clipping of variants with a gate."""

    what: str
    settings: Mapping[str, Any]
    data: Mapping[str, Any] = field(default_factory=dict)
    """Settings of a text."""
    clip_gated: float | None = None
    """The clipping of variants with learned gates; the others have none."""


RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        "cpu": Recipe(
            "4 layers on bytes in a minute or two",
            {
                "size": "nano",
                "context": 256,
                "steps": 400,
                "batch_size": 16,
                "learning_rate": 2e-3,
                "warmup_steps": 40,
                "schedule": "linear",
                "eval_every": 100,
                "checkpoint_every": 100,
                "clip": 1.0,
                "precision": "fp32",
            },
            {"source": "shakespeare"},
        ),
        "paper": Recipe(
            "the paper's: 100k steps of 36 × 1024 tokens of FineWeb",
            {
                "size": "small",
                "context": 1024,
                "steps": 100_000,
                "batch_size": 36,
                "learning_rate": 1e-4,
                "warmup_steps": 10_000,
                "decay_steps": 1_000_000,
                "schedule": "linear",
                "beta1": 0.9,
                "beta2": 0.999,
                "epsilon": 1e-7,
                "weight_decay": 0.01,
                "decay_all": True,
                "precision": "bf16",
                "eval_every": 10_000,
                "checkpoint_every": 1_000,
                "log_every": 100,
            },
            {
                "source": "HuggingFaceFW/fineweb",
                "config": "CC-MAIN-2024-51",
                "tokenizer": "meta-llama/Llama-2-7b-hf",
                "layout": "padded",
                "test_fraction": 0.001,
                "streaming": True,
            },
            clip_gated=1.0,
        ),
    }
)
