"""A call of attention after the edge: every tensor checked, in the dtype of the computation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

from softmax_rnn.attention.arguments import (
    Shape,
    check_extras,
    check_key_mask,
    check_nonpositive,
    check_qkv,
    check_segment_ids,
)
from softmax_rnn.attention.nonpositive import OnNonPositive
from softmax_rnn.attention.parts import EluPlusOne
from softmax_rnn.attention.pointwise import Extras
from softmax_rnn.attention.spec import AttentionSpec, check_spec
from softmax_rnn.attention.state import GrowingState, State, init_state
from softmax_rnn.errors import InputError


@dataclass(frozen=True)
class Call:
    """A checked call: tensors in the dtype of the computation."""

    spec: AttentionSpec
    shape: Shape
    q: Tensor
    k: Tensor
    v: Tensor
    extras: Extras
    key_mask: Tensor | None
    segment_ids: Tensor | None
    nonpositive: OnNonPositive
    dtype: torch.dtype

    @property
    def needs_grad(self) -> bool:
        """Whether a backward pass may follow."""
        tensors = (self.q, self.k, self.v, *vars(self.extras).values())
        return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)

    def span(self, place: slice) -> Call:
        """The call for some of the positions."""
        return replace(
            self,
            shape=replace(self.shape, time=place.stop - place.start),
            q=self.q[:, :, place],
            k=self.k[:, :, place],
            v=self.v[:, :, place],
            extras=self.extras.span(place),
            key_mask=None if self.key_mask is None else self.key_mask[:, place],
        )


def check_call(
    spec: AttentionSpec,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    given: dict[str, Tensor | None],
    key_mask: Tensor | None,
    segment_ids: Tensor | None,
    nonpositive: str,
) -> Call:
    """Check everything that a user gave, once."""
    check_spec(spec)
    shape = check_qkv(q, k, v)
    check_key_mask(key_mask, shape, q.device)
    check_segment_ids(segment_ids, shape, q.device)
    wide = _working_dtype(spec, q, k)
    like = torch.empty(0, dtype=wide, device=q.device)
    extras = check_extras(spec, shape, like, given)
    if key_mask is not None:
        q, extras = _clean_padding(key_mask, q, extras)
    return Call(
        spec,
        shape,
        q.to(wide),
        k.to(wide),
        v.to(wide),
        extras,
        key_mask,
        segment_ids,
        check_nonpositive(nonpositive),
        q.dtype,
    )


LOWEST_ELU = -30.0


def _working_dtype(spec: AttentionSpec, q: Tensor, k: Tensor) -> torch.dtype:
    """float32 or wider; float64 where the product of two features exp(x) would leave float32."""
    if q.dtype == torch.float64:
        return torch.float64
    if isinstance(spec.feature_map, EluPlusOne) and min(float(q.detach().min()), float(k.detach().min())) < LOWEST_ELU:
        return torch.float64
    return torch.float32


def _clean_padding(key_mask: Tensor, q: Tensor, extras: Extras) -> tuple[Tensor, Extras]:
    """What stands at padding may be anything: 0 in place of numbers that are not finite, which would spread."""
    padding = ~key_mask[:, None]

    def clean(x: Tensor) -> Tensor:
        where = padding if x.dim() == padding.dim() else padding[..., None]
        return x.masked_fill(where & ~x.isfinite(), 0)

    timed = {"input_gate": extras.input_gate, "output_gate": extras.output_gate, "forget_gate": extras.forget_gate}
    return clean(q), replace(extras, **{name: clean(x) for name, x in timed.items() if x is not None})


def check_state(call: Call, state: State) -> None:
    """The state belongs to the spec and to the shapes of the call."""
    kind, expected = _expected_state(call.spec, call.shape)
    if type(state) is not kind:
        came = type(state).__name__
        raise InputError(f"state: this spec has a {kind.__name__}, got a {came}; make it with init_state")
    for name, size in expected.items():
        came = state.tensors.get(name)
        if came is None or _without_time(tuple(came.shape), kind) != _without_time(size, kind):
            found = None if came is None else tuple(came.shape)
            raise InputError(f"state: its {name} has shape {found}, the call needs {size}")
        if came.device != call.q.device:
            raise InputError(f"state: expected the device of q, {call.q.device}, got {came.device}")


@cache
def _expected_state(spec: AttentionSpec, shape: Shape) -> tuple[type[State], dict[str, tuple[int, ...]]]:
    fresh = init_state(
        spec,
        batch=shape.batch,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        key_dim=shape.key_dim,
        value_dim=shape.value_dim,
        device="meta",
    )
    return type(fresh), {name: tuple(x.shape) for name, x in fresh.tensors.items()}


def _without_time(size: tuple[int, ...], kind: type[State]) -> tuple[int, ...]:
    """The shape, without the axis along which a growing state grows."""
    return size[:2] + size[3:] if kind is GrowingState else size
