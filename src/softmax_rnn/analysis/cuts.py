"""A trained model whose softmax is cut at an order: its loss, for the whole model or for one layer at a time.

`Cutter` keeps one model and swaps its attention. Methods (`analysis.methods`) differ in the coefficients, not in the
size of the state. Nothing is trained.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

import torch
from torch import Tensor
from transformers import PreTrainedModel

from softmax_rnn.analysis.cut_file import CutFile
from softmax_rnn.analysis.methods import HeadRanges, find_method, method_spec
from softmax_rnn.analysis.one_layer import LayerInputs, can_start_inside
from softmax_rnn.analysis.perplexity import counted, counted_perplexity
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.errors import InputError
from softmax_rnn.model.convert import convert
from softmax_rnn.model.modeling import SoftmaxRNNForCausalLM

ORDERS = (2, 4, 6, 8, 10, 12, 16, 20, 24, 32, 48)
TAYLOR_ORDERS = (*(n + odd for n in (2, 4, 8, 12, 20, 40, 60, 80, 100, 120) for odd in (-1, 0)), 140, 170)
"""Even and odd ones; 171! is not a float."""


@dataclass(frozen=True)
class Cut:
    """The loss of the model with exp replaced by a polynomial, in all layers (``layer`` None) or in one."""

    method: str
    order: int
    layer: int | None
    loss: float
    perplexity: float
    loss_ratio: float
    """To the loss of softmax."""
    nonpositive: int
    """Row sums that were not positive."""
    seconds: float


class Cutter:
    """A model, a text, and the loss of softmax on it; cuts in the file ``keep`` are not measured again."""

    def __init__(
        self,
        model: PreTrainedModel,
        token_ids: Sequence[int] | Tensor,
        context: int = 256,
        ranges: Sequence[HeadRanges] | None = None,
        keep: Path | None = None,
    ) -> None:
        self.ids, self.context, self.ranges = token_ids, context, ranges
        self.layers: int = model.config.num_hidden_layers
        self.model = convert(model, "softmax")
        self.inputs: LayerInputs | None = None
        self.softmax = counted_perplexity(self.model, token_ids, context)[0]
        about = {
            "model": str(model.config.name_or_path),
            "text": _hash([int(one) for one in token_ids]),
            "ranges": _hash(ranges),
            "context": context,
            "loss": self.softmax.loss,
        }
        self.kept = CutFile(keep, about)

    def loss(self, specs: Sequence[AttentionSpec]) -> tuple[float, int]:
        """The loss with these specs, one per layer, and the number of row sums that are not positive."""
        self.model, self.inputs = convert(self.model, specs), None
        measured, nonpositive = counted_perplexity(self.model, self.ids, self.context)
        return measured.loss, nonpositive

    def _one_layer(self, layer: int, specs: Sequence[AttentionSpec]) -> tuple[float, int]:
        """The loss with one layer cut; the layers before it are computed once for all layers."""
        ids = torch.as_tensor(self.ids, device=self.model.device).flatten()
        if specs[layer].tensors or not can_start_inside(self.model, len(ids)):
            return self.loss(specs)
        if self.inputs is None:
            self.model = convert(self.model, "softmax").eval()
            assert isinstance(self.model, SoftmaxRNNForCausalLM)
            self.inputs = LayerInputs(self.model, ids, self.context)
        inputs = self.inputs
        measured, nonpositive = counted(lambda: inputs.loss(layer, specs[layer]))
        return measured.loss, nonpositive

    def spec(self, method: str, order: int, layer: int) -> AttentionSpec:
        """The method's spec of a layer, with the measured ranges of its heads."""
        return method_spec(method, order, None if self.ranges is None else self.ranges[layer])

    def cut(self, method: str, order: int, layer: int | None = None) -> Cut:
        """Cut all layers, or only one."""
        if layer is not None and not 0 <= layer < self.layers:
            raise InputError(f"layer: expected 0 to {self.layers - 1}, got {layer}")
        known = self.kept.find(method, order, layer)
        if known is not None:
            return Cut(**known)
        began = perf_counter()
        specs = [
            self.spec(method, order, i) if layer is None or layer == i else AttentionSpec() for i in range(self.layers)
        ]
        loss, nonpositive = self.loss(specs) if layer is None else self._one_layer(layer, specs)
        perplexity = math.exp(loss) if loss < 700 else math.inf
        ratio = loss / self.softmax.loss
        cut = Cut(method, order, layer, loss, perplexity, ratio, nonpositive, perf_counter() - began)
        self.kept.add(asdict(cut))
        return cut

    def recovers(self, cut: Cut, tolerance: float) -> bool:
        """Whether the loss is at most this part above, or below, that of softmax."""
        return abs(cut.loss_ratio - 1) <= tolerance

    def sweep(
        self,
        method: str,
        orders: Iterable[int],
        tolerance: float = 0.01,
        patience: int | None = 2,
        progress: Callable[[Cut], None] = lambda cut: None,
    ) -> list[Cut]:
        """Order after order, until the loss has been within ``tolerance`` so many times in a row (None: all)."""
        step, cuts, inside = find_method(method).step, [], 0
        for order in orders:
            if order % step:
                continue
            cut = self.cut(method, order)
            progress(cut)
            cuts.append(cut)
            inside = inside + 1 if self.recovers(cut, tolerance) else 0
            if patience is not None and inside >= patience:
                break
        return cuts


def lowest_order(cuts: Sequence[Cut], tolerance: float = 0.01) -> int | None:
    """The smallest order from which on every cut that was measured is within the tolerance; None if the last is not.

    >>> cuts = [Cut("taylor", n, None, 3.0, 20.0, r, 0, 0.0) for n, r in ((2, 2.0), (4, 1.005), (6, 1.0))]
    >>> lowest_order(cuts), lowest_order(cuts, 0.001)
    (4, 6)
    """
    lowest = None
    for cut in sorted(cuts, key=lambda one: -one.order):
        if not abs(cut.loss_ratio - 1) <= tolerance:
            break
        lowest = cut.order
    return lowest


def _hash(values: object) -> str:
    return hashlib.sha256(str(values).encode()).hexdigest()
