"""The edge: arguments are checked here, once, and never again inside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields

import torch
from torch import Tensor

from softmax_rnn.attention.host_sync import may_sync
from softmax_rnn.attention.nonpositive import OnNonPositive
from softmax_rnn.attention.parts import Part
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.errors import InputError, unknown_name


@dataclass(frozen=True)
class Shape:
    """The sizes of a call."""

    batch: int
    heads: int
    kv_heads: int
    time: int
    key_dim: int
    value_dim: int

    def letters(self, spec: AttentionSpec) -> dict[str, int]:
        """The sizes by the letters of the declarations."""
        return {
            "B": self.batch,
            "H": self.heads,
            "K": self.kv_heads,
            "T": self.time,
            "D": self.key_dim,
            "E": self.value_dim,
            "F": spec.width(self.key_dim),
        }


def _shape_text(x: Tensor) -> str:
    return f"({', '.join(map(str, x.shape))})"


def check_qkv(q: Tensor, k: Tensor, v: Tensor) -> Shape:
    """Shapes, dtypes and devices of the three main tensors."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, Tensor):
            raise InputError(f"{name}: expected a tensor, got {type(x).__name__}")
        if x.dim() != 4:
            raise InputError(f"{name}: expected 4 axes (batch, heads, time, dim), got shape {_shape_text(x)}")
        if not x.is_floating_point():
            raise InputError(f"{name}: expected a floating-point tensor, got {x.dtype}")
        if x.dtype != q.dtype:
            raise InputError(f"{name}: expected the dtype of q, {q.dtype}, got {x.dtype}")
        if x.device != q.device:
            raise InputError(f"{name}: expected the device of q, {q.device}, got {x.device}")
    batch, heads, time, key_dim = q.shape
    kv_heads, value_dim = k.shape[1], v.shape[-1]
    if min(batch, heads, time, key_dim, value_dim, kv_heads) == 0:
        axis = (
            next(n for n, size in zip(("batch", "heads", "time", "dim"), q.shape, strict=True) if size == 0)
            if (0 in q.shape)
            else "k or v"
        )
        raise InputError(f"q: expected at least one entry on every axis, got none in {axis}: {_shape_text(q)}")
    if k.shape != (batch, kv_heads, time, key_dim):
        raise InputError(f"k: expected shape ({batch}, heads of k, {time}, {key_dim}), got {_shape_text(k)}")
    if v.shape[:3] != k.shape[:3]:
        raise InputError(f"v: expected shape ({batch}, {kv_heads}, {time}, value dim), got {_shape_text(v)}")
    if heads % kv_heads:
        raise InputError(f"k: its {kv_heads} heads must divide the {heads} heads of q")
    # Of a traced graph batch and time may be symbols, which serve any number; the others are its own.
    return Shape(batch, int(heads), int(kv_heads), time, int(key_dim), int(value_dim))


def check_state_sizes(heads: int, kv_heads: int | None, dtype: torch.dtype, **sizes: int) -> None:
    """What a state is made of: numbers of 1 or more, heads that share keys evenly, a dtype for them."""
    for name, size in {"heads": heads, "kv_heads": kv_heads, **sizes}.items():
        if size is not None and (not isinstance(size, (int, torch.SymInt)) or size < 1):
            raise InputError(f"{name}: expected a whole number of 1 or more, got {size!r}")
    if kv_heads is not None and heads % kv_heads:
        raise InputError(f"kv_heads: expected a divisor of the {heads} heads, got {kv_heads}")
    if not dtype.is_floating_point:
        raise InputError(f"dtype: expected a floating-point dtype, got {dtype}")


def check_device(device: torch.device | str | None) -> None:
    """A device that torch knows and that is there."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"device: {str(device)!r} cannot be used: {reason}") from error


def check_tensors(
    spec: AttentionSpec, shape: Shape, dtype: torch.dtype, device: torch.device, given: Mapping[str, object]
) -> dict[str, Tensor]:
    """The tensors that the spec declares are there, no others, and they fit."""
    for name, value in given.items():
        if value is not None and name not in spec.declared:
            if name not in _known_tensors():
                raise unknown_name(
                    "argument", name, dict.fromkeys([*spec.declared, *_OPTIONS, *sorted(_known_tensors())])
                )
            needed = ", ".join(spec.tensors) or "none"
            raise InputError(f"{name}: this spec does not use it (tensors that it needs: {needed})")
    sizes = shape.letters(spec)
    return {
        name: _checked_tensor(name, given.get(name), declared.shape(sizes), device).to(dtype)
        for name, declared in spec.declared.items()
    }


_OPTIONS = ("key_mask", "segment_ids", "form", "nonpositive", "state")


def _known_tensors() -> set[str]:
    """The tensors of all parts with their default options."""
    kinds = [kind for slot in Part.registry.values() for kind in slot.values()]
    plain = [kind for kind in kinds if all(one.default is not MISSING for one in fields(kind))]
    return {declared.name for kind in plain for declared in kind().tensors}


def _checked_tensor(name: str, x: object, size: tuple[int, ...], device: torch.device) -> Tensor:
    if x is None:
        raise InputError(f"{name}: this spec needs it, as a tensor of shape {size}")
    if not isinstance(x, Tensor) or x.shape != size or not x.is_floating_point():
        came = f"{x.dtype} of shape {_shape_text(x)}" if isinstance(x, Tensor) else type(x).__name__
        raise InputError(f"{name}: expected a floating-point tensor of shape {size}, got {came}")
    if x.device != device:
        raise InputError(f"{name}: expected the device of q, {device}, got {x.device}")
    return x


def check_key_mask(key_mask: Tensor | None, shape: Shape, device: torch.device) -> None:
    """A mask is boolean and has one entry a position."""
    if key_mask is None:
        return
    if not isinstance(key_mask, Tensor) or key_mask.dtype != torch.bool:
        came = key_mask.dtype if isinstance(key_mask, Tensor) else type(key_mask).__name__
        raise InputError(f"key_mask: expected a boolean tensor (True = real), got {came}")
    _check_positions("key_mask", key_mask, shape, device)


def check_segment_ids(segment_ids: Tensor | None, shape: Shape, device: torch.device) -> None:
    """Ids are whole numbers, and each segment is contiguous."""
    if segment_ids is None:
        return
    if not isinstance(segment_ids, Tensor) or segment_ids.is_floating_point() or segment_ids.is_complex():
        came = segment_ids.dtype if isinstance(segment_ids, Tensor) else type(segment_ids).__name__
        raise InputError(f"segment_ids: expected a tensor of whole numbers, got {came}")
    _check_positions("segment_ids", segment_ids, shape, device)
    changes = (segment_ids[:, 1:] != segment_ids[:, :-1]).sum(-1)
    ordered = segment_ids.sort(-1).values
    distinct = (ordered[:, 1:] != ordered[:, :-1]).sum(-1)
    if not may_sync(segment_ids):
        torch._assert_async((changes == distinct).all(), "segment_ids: each segment must be contiguous")  # pyright: ignore[reportPrivateImportUsage]
    elif bool((changes != distinct).any()):
        row = int((changes != distinct).nonzero()[0])
        raise InputError(f"segment_ids: each segment must be contiguous, row {row} returns to an earlier id")


def _check_positions(name: str, x: Tensor, shape: Shape, device: torch.device) -> None:
    if x.shape != (shape.batch, shape.time):
        raise InputError(f"{name}: expected shape ({shape.batch}, {shape.time}), got {_shape_text(x)}")
    if x.device != device:
        raise InputError(f"{name}: expected the device of q, {device}, got {x.device}")


def check_nonpositive(value: str | OnNonPositive) -> OnNonPositive:
    """warn or error."""
    try:
        return OnNonPositive(value)
    except ValueError:
        raise unknown_name("value of nonpositive", value, [choice.value for choice in OnNonPositive]) from None
