"""Which weights of a converted model are trained in a stage, and at which rate."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from softmax_rnn.linearise.handles import add_low_rank, add_scales
from softmax_rnn.linearise.models import attentions, shape_of
from softmax_rnn.linearise.settings import StageSettings

SCALE_RATE = 30.0
PART_RATE = 10.0
"""Scales and added parts start far from where they end up, so they learn faster than pretrained weights."""


def rate(name: str) -> float:
    """The learning rate of a weight in units of the stage's.

    >>> rate("layers.0.self_attn.parts.query_map"), rate("layers.0.mlp.up_proj.weight")
    (10.0, 1.0)
    """
    if name.endswith(".scale") and "parametrizations" in name:
        return SCALE_RATE
    return PART_RATE if ".parts." in f".{name}" else 1.0


def prepare(student: PreTrainedModel, layers: list[int], stage: StageSettings, seed: int) -> None:
    """Make exactly the weights of a stage trainable; ``layers`` are the converted ones."""
    for weight in student.parameters():
        weight.requires_grad_(stage.weights == "all" and stage.rank is None)
    modules = attentions(student)
    for number in layers:
        for name, weight in modules[number].named_parameters():
            # With a rank, low-rank updates are trained in place of the matrices.
            weight.requires_grad_(name.startswith("parts.") or (stage.weights != "parts" and stage.rank is None))
        project: Any = modules[number].o_proj
        add_scales(project, shape_of(modules[number])[0])
    if stage.rank is None or stage.weights == "parts":
        return
    torch.manual_seed(seed)
    inside = student if stage.weights == "all" else nn.ModuleList([modules[number] for number in layers])
    head = student.get_output_embeddings()
    for name, module in list(inside.named_modules()):
        if isinstance(module, nn.Linear) and module is not head and ".parts." not in f".{name}.":
            add_low_rank(module, stage.rank)
