"""Every variant in every form that it allows, against the literal form in float64: outputs and gradients."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch
from torch import Tensor

from softmax_rnn.analysis.remainder import output_error
from softmax_rnn.attention.algebra import can_be_negative
from softmax_rnn.attention.attend import attend
from softmax_rnn.attention.nonpositive import NonPositiveWarning
from softmax_rnn.attention.plan import FORMS, Situation
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.table.taylor import taylor
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.bench.inputs import Tensors, random_inputs

TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-5}
SHAPE: dict[str, Any] = {"batch": 2, "heads": 4, "kv_heads": 2, "time": 70, "key_dim": 8, "value_dim": 6}


@dataclass(frozen=True)
class Check:
    """The worst relative errors of one variant in one form and dtype, over plain and masked inputs."""

    variant: str
    form: str
    dtype: str
    output_error: float
    gradient_error: float
    tolerance: float

    @property
    def passed(self) -> bool:
        """Whether both errors are within the tolerance."""
        return self.output_error <= self.tolerance and self.gradient_error <= self.tolerance


@dataclass(frozen=True)
class OrderCheck:
    """Taylor order N against softmax: the largest difference of outputs in units of the largest |v|."""

    order: int
    radius: float
    measured: float
    bound: float


Result = tuple[Tensor, dict[str, Tensor]]


def relative_error(result: Result, truth: Result) -> tuple[float, float]:
    """Largest differences of outputs and of gradients, relative to the largest true value of each tensor.

    A gradient can vanish by cancellation (that of a gate in front of a norm does), so no tensor's size counts as
    less than a tenth of the largest gradient of the call.
    """
    output = float((result[0] - truth[0]).abs().max() / truth[0].abs().max())
    largest = max(float(x.abs().max()) for x in truth[1].values())
    gradients = [
        float((result[1][name] - x).abs().max()) / max(float(x.abs().max()), 0.1 * largest)
        for name, x in truth[1].items()
    ]
    return output, max(gradients)


def run(spec: AttentionSpec, tensors: Tensors, masks: Tensors, form: str, wanted: Tensor | None = None) -> Result:
    """Outputs, and the gradients of Σ outputs · wanted."""
    leaves: Tensors = {name: x.detach().clone().requires_grad_() for name, x in tensors.items()}
    output = attend(spec, **leaves, **masks, form=form)
    if wanted is None:
        wanted = torch.randn(output.shape, generator=torch.Generator().manual_seed(1)).to(output)
    grads = torch.autograd.grad((output * wanted.to(output)).sum(), list(leaves.values()), allow_unused=True)
    filled = [torch.zeros_like(x) if g is None else g for g, x in zip(grads, leaves.values(), strict=True)]
    return output.detach().cpu(), {name: x.cpu() for name, x in zip(leaves, filled, strict=True)}


def masks() -> Iterator[Tensors]:
    """No mask; left padding in one row and right padding in the other, with packed segments."""
    yield {}
    batch, time = SHAPE["batch"], SHAPE["time"]
    key_mask = torch.ones(batch, time, dtype=torch.bool)
    key_mask[0, :5] = False
    key_mask[1, -7:] = False
    segments = (torch.arange(time) >= torch.tensor([[time // 3], [time // 2]])).long()
    yield {"key_mask": key_mask, "segment_ids": segments}


def check_variant(name: str, device: str = "cpu", forms: Iterable[str] = tuple(FORMS)) -> Iterator[Check]:
    """The checks of one variant on a device, against the literal form on the CPU."""
    spec = VARIANTS[name]
    # Where weights can be negative a row sum can be near 0 and no form could be accurate: keep scores small there.
    shape: dict[str, Any] = SHAPE | {"query_scale": 0.5 if can_be_negative(spec) else 2.0}
    situation = Situation(2, 4, 2, SHAPE["time"], SHAPE["time"], SHAPE["key_dim"], SHAPE["value_dim"], device=device)
    truths: list[Result] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NonPositiveWarning)
        for mask in masks():
            truths.append(run(spec, random_inputs(spec, **shape, dtype=torch.float64), mask, "parallel"))
        for form, dtype in product(forms, TOLERANCE):
            tolerance = TOLERANCE[dtype]
            if FORMS[form].refuse(spec, replace(situation, dtype=_name(dtype))) is None:
                tensors = _there(random_inputs(spec, **shape, dtype=dtype), device)
                pairs = [(_there(mask, device), truth) for mask, truth in zip(masks(), truths, strict=True)]
                errors = [relative_error(run(spec, tensors, mask, form), truth) for mask, truth in pairs]
                output, gradient = max(e[0] for e in errors), max(e[1] for e in errors)
                yield Check(name, form, _name(dtype), output, gradient, tolerance)


def _there(tensors: Tensors, device: str) -> Tensors:
    return {name: x.to(device) for name, x in tensors.items()}


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def check_orders(orders: Iterable[int] = (1, 2, 4, 6, 8, 10, 15, 20, 30, 40)) -> Iterator[OrderCheck]:
    """Taylor orders against softmax on one input, in float64."""
    softmax = VARIANTS["softmax"]
    tensors = random_inputs(softmax, heads=4, time=64, key_dim=16, dtype=torch.float64)
    scores = torch.einsum("bhid,bhjd->bhij", tensors["q"], tensors["k"]) / 4
    radius = float(scores.abs().max())
    truth, largest = attend(softmax, **tensors), float(tensors["v"].abs().max())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NonPositiveWarning)
        for order in orders:
            measured = float((attend(taylor(order), **tensors) - truth).abs().max()) / largest
            yield OrderCheck(order, radius, measured, output_error(order, radius))


def verify(
    names: Iterable[str], progress: Callable[[str], None] = lambda name: None, device: str = "cpu"
) -> list[Check]:
    """All checks of these variants; ``progress`` is called with each name before its turn."""
    checks: list[Check] = []
    for name in names:
        progress(name)
        checks.extend(check_variant(name, device))
    return checks
