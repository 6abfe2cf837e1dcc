"""A call of attention after the edge: every tensor checked, in the dtype of the computation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

from softmax_rnn.attention.arguments import (
    Shape,
    check_key_mask,
    check_nonpositive,
    check_qkv,
    check_segment_ids,
    check_tensors,
)
from softmax_rnn.attention.host_sync import may_sync, traced
from softmax_rnn.attention.nonpositive import OnNonPositive
from softmax_rnn.attention.spec import AttentionSpec, check_spec
from softmax_rnn.attention.start import Start
from softmax_rnn.attention.state import State
from softmax_rnn.errors import InputError


@dataclass(frozen=True)
class Call:
    """A checked call: tensors in the dtype of the computation."""

    spec: AttentionSpec
    shape: Shape
    q: Tensor
    k: Tensor
    v: Tensor
    tensors: dict[str, Tensor]
    """What the parts of the spec declare, by name."""
    key_mask: Tensor | None
    segment_ids: Tensor | None
    nonpositive: OnNonPositive
    dtype: torch.dtype

    @property
    def needs_grad(self) -> bool:
        """Whether a backward pass may follow."""
        tensors = (self.q, self.k, self.v, *self.tensors.values())
        return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)

    @property
    def use(self) -> tuple[object, ...]:
        """What a state must fit: the spec, and the sizes but for time."""
        s = self.shape
        return self.spec.text, s.batch, s.heads, s.kv_heads, s.key_dim, s.value_dim

    @property
    def half(self) -> torch.dtype | None:
        """The half-precision dtype of the caller's tensors, where it is one."""
        return self.dtype if self.dtype in (torch.bfloat16, torch.float16) else None

    def kept(self, x: Tensor) -> Tensor:
        """Keys or values as a state keeps them: in half precision where they came in it.

        float16 ends at 65504, so it keeps only what no feature map, decay or gate has changed. The values that a write
        rule makes are sums over the past, which stay float32.
        """
        spec = self.spec
        if self.half is None or spec.write_rule is not None:
            return x
        changed = any(part is not None for part in (spec.feature_map, spec.forget_gate, spec.input_gate))
        return x if changed and self.half == torch.float16 else x.to(self.half)

    def fresh_state(self) -> State:
        """The state before the first position."""
        return Start(self.spec, self.shape, self.q.dtype, self.q.device).state()

    def timed(self) -> Iterator[tuple[str, Tensor, int | None]]:
        """Each declared tensor with the axis that runs along time."""
        for name, x in self.tensors.items():
            yield name, x, self.spec.declared[name].time_axis

    def span(self, place: slice) -> Call:
        """The call for some of the positions."""
        return replace(
            self,
            shape=replace(self.shape, time=place.stop - place.start),
            q=self.q[:, :, place],
            k=self.k[:, :, place],
            v=self.v[:, :, place],
            tensors={
                name: x if axis is None else x.narrow(axis, place.start, place.stop - place.start)
                for name, x, axis in self.timed()
            },
            key_mask=None if self.key_mask is None else self.key_mask[:, place],
        )


def check_call(
    spec: AttentionSpec,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    given: Mapping[str, object],
    key_mask: Tensor | None,
    segment_ids: Tensor | None,
    nonpositive: str,
) -> Call:
    """Check everything that a user gave, once."""
    check_spec(spec)
    shape = check_qkv(q, k, v)
    check_key_mask(key_mask, shape, q.device)
    check_segment_ids(segment_ids, shape, q.device)
    wide = working_dtype(spec, q, k)
    tensors = check_tensors(spec, shape, wide, q.device, given)
    policy = check_nonpositive(nonpositive)
    call = Call(spec, shape, q.to(wide), k.to(wide), v.to(wide), tensors, key_mask, segment_ids, policy, q.dtype)
    return call if key_mask is None else _clean_padding(call, key_mask)


def working_dtype(spec: AttentionSpec, q: Tensor, k: Tensor) -> torch.dtype:
    """float32 or wider; float64 where products of features are seen to leave float32."""
    if q.dtype == torch.float64:
        return torch.float64
    phi = spec.feature_map
    wide = phi is not None and (phi.always_float64 or (may_sync(q) and phi.needs_float64(q, k)))
    return torch.float64 if wide else torch.float32


def _clean_padding(call: Call, key_mask: Tensor) -> Call:
    """Padding may hold anything: its keys, values and non-finite numbers become 0."""

    def clean(x: Tensor, axis: int) -> Tensor:
        where = ~key_mask.view(*key_mask.shape[:1], *[1] * (axis - 1), -1, *[1] * (x.dim() - axis - 1))
        return x.masked_fill(where & ~x.isfinite(), 0)

    tensors = {name: x if axis is None else clean(x, axis) for name, x, axis in call.timed()}
    padding = ~key_mask[:, None, :, None]
    k, v = call.k.masked_fill(padding, 0), call.v.masked_fill(padding, 0)
    return replace(call, q=clean(call.q, 2), k=k, v=v, tensors=tensors)


def check_state(call: Call, state: State) -> None:
    """The state belongs to the spec and to the shapes of the call; a traced one has symbols in place of sizes."""
    use = getattr(state, "use", None)  # absent where something else than a state came
    if traced(call.q) or (use is not None and use == call.use and state.lengths.device == call.q.device):
        return
    kind, expected = _expected_state(call.spec, call.shape)
    if type(state) is not kind:
        came = type(state).__name__
        raise InputError(f"state: this spec has a {kind.__name__}, got a {came}; make it with init_state")
    tensors = state.tensors
    for name, size in expected.items():
        came = tensors.get(name)
        if came is None or _without_time(name, tuple(came.shape)) != _without_time(name, size):
            shape = None if came is None else tuple(came.shape)
            raise InputError(f"state: its {name} has shape {shape}, the call needs {size}")
        if came.device != call.q.device:
            raise InputError(f"state: expected the device of q, {call.q.device}, got {came.device}")


@cache
def _expected_state(spec: AttentionSpec, shape: Shape) -> tuple[type[State], dict[str, tuple[int, ...]]]:
    fresh = Start(spec, shape, torch.float32, "meta").state()
    return type(fresh), {name: tuple(x.shape) for name, x in fresh.tensors.items()}


def _without_time(name: str, size: tuple[int, ...]) -> tuple[int, ...]:
    """The shape, without the axis along which a growing state grows."""
    return size[:2] + size[3:] if name in ("keys", "values", "decay") else size
