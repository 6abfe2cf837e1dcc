"""Stage 2: each layer's attention learns to give the original's output from the original's input.

    loss of a layer = Σ_t |y′_t − y_t|² / unit        unit: its mean |y|² on some rows; mean over the converted layers

Layers are independent: every one reads what the original's layer reads. Activations inside an attention are recomputed
in the backward pass, so those of only one layer are in memory at a time. Weights that do not learn are the original's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from softmax_rnn.data.rows import IGNORED, Row, Rows, collate
from softmax_rnn.linearise.models import RowReader, attention_output, attentions, each_attention
from softmax_rnn.train.batches import Batch
from softmax_rnn.train.objective import Objective
from softmax_rnn.train.processes import Share, together_sum


class LayerErrors(nn.Module):
    """The converted attentions of a student, by layer; a call returns the squared error of each at every position."""

    def __init__(self, original: PreTrainedModel, student: PreTrainedModel, layers: Sequence[int]) -> None:
        super().__init__()
        modules = attentions(student)
        self.attentions = nn.ModuleDict({str(layer): modules[layer] for layer in layers})
        # In a list, so that the original is not registered as a submodule.
        self._original = [original]
        self._no_split_modules = list({type(one).__name__ for one in self.attentions.values()})

    def gradient_checkpointing_enable(self) -> None:
        """Activations are always recomputed."""

    def forward(self, **row: Tensor) -> SimpleNamespace:
        """``errors`` and ``sizes``, (layers, B, T): |y′ − y|² and |y|²."""
        errors: list[Tensor] = []
        sizes: list[Tensor] = []

        def show(layer: int, module: Any, arguments: tuple[Any, ...], options: dict[str, Any], output: Tensor) -> None:
            if str(layer) not in self.attentions:
                return
            new, old = self.attentions[str(layer)], output.float()

            def error(*given: Any) -> Tensor:
                return (attention_output(new, given, options).float() - old).square().sum(-1)

            if self.training:
                with torch.enable_grad():
                    errors.append(checkpoint(error, *arguments, use_reentrant=False))  # pyright: ignore[reportArgumentType]
            else:
                errors.append(error(*arguments))
            sizes.append(old.square().sum(-1))

        original = self._original[0]
        with torch.no_grad(), each_attention(original, show):
            RowReader(original)(**row, logits_to_keep=1)
        return SimpleNamespace(errors=torch.stack(errors), sizes=torch.stack(sizes))


class Matching(Objective):
    """The error of attention outputs in units of each layer, which are the same for all batches and processes."""

    def __init__(self, units: Sequence[float]) -> None:
        self.units = torch.tensor(list(units)).clamp(min=1e-30)

    def loss_sum(self, network: Callable[..., Any], batch: Batch) -> Tensor:
        """The mean over layers of Σ_t |y′ − y|² / unit."""
        out, counted = network(**_inputs(batch)), batch["targets"] != IGNORED
        return (out.errors[:, counted].sum(-1) / self.units.to(out.errors.device)).mean()

    def measure(
        self, network: nn.Module, rows: Rows | Sequence[Row], batch_size: int, share: Share, device: torch.device
    ) -> dict[str, Any]:
        """The error of each layer over all rows; ``test_loss`` is their mean."""
        errors = layer_errors(network, rows, batch_size, share, device)
        return {"test_loss": sum(errors) / len(errors), "test_error_by_layer": errors}


@torch.no_grad()
def layer_units(network: nn.Module, rows: Sequence[Row], device: torch.device | str = "cpu") -> list[float]:
    """The mean |y|² of each layer of `LayerErrors` over the counted positions of the rows."""
    training, sums, count = network.training, 0.0, 0
    network.eval()
    for row in rows:
        batch = {name: x.to(device) for name, x in collate([row]).items()}
        counted = batch["targets"] != IGNORED
        sums = sums + network(**_inputs(batch)).sizes[:, counted].double().sum(-1)
        count += int(counted.sum())
    network.train(training)
    return (torch.as_tensor(sums) / max(count, 1)).tolist()


@torch.no_grad()
def layer_errors(
    network: nn.Module,
    rows: Rows | Sequence[Row],
    batch_size: int = 1,
    share: Share | None = None,
    device: torch.device | str = "cpu",
) -> list[float]:
    """Σ |y′ − y|² / Σ |y|² of each layer over the rows; with a share, each process computes its part of them."""
    share, training = share or Share(), network.training
    network.eval()
    sums: Tensor | None = None
    for start in range(0, -(-len(rows) // share.processes), batch_size):
        places = range(start * share.processes + share.rank, len(rows), share.processes)[:batch_size]
        # A process without a row reads one that does not count: all processes must call a sharded network together.
        batch = collate([rows[place] for place in places] or [rows[0]])
        batch = {name: x.to(device) for name, x in batch.items()}
        out, counted = network(**_inputs(batch)), batch["targets"] != IGNORED
        part = torch.stack([x[:, counted].double().sum(-1) for x in (out.errors, out.sizes)])
        part = part if places else torch.zeros_like(part)
        sums = part if sums is None else sums + part
    network.train(training)
    assert sums is not None
    errors, sizes = together_sum(sums)
    return (errors / sizes.clamp(min=1e-300)).tolist()


def _inputs(batch: Batch) -> Batch:
    return {name: x for name, x in batch.items() if name != "targets"}
