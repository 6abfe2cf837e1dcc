"""What decoding carries from step to step: values that go in and come out, nothing is kept anywhere.

A polynomial score has a state of fixed size, one matrix a head with the hidden states H^(n) of its orders below
each other. Exp and clamped scores have none: theirs is the growing list of keys and values.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from softmax_rnn.attention.algebra import fixed_state_score, n_features
from softmax_rnn.attention.arguments import check_device, check_state_sizes
from softmax_rnn.attention.parts import CumulativeGate, Polynomial
from softmax_rnn.attention.pointwise import keys_differ_by_head
from softmax_rnn.attention.spec import AttentionSpec, check_spec


@dataclass(frozen=True)
class State:
    """What both kinds of state know: how many keys were seen, and the mass of a cumulative gate."""

    grows: ClassVar[bool]
    lengths: Int[Tensor, " B"]
    gate_mass: Float[Tensor, "B H"] | None

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All tensors by name."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in found.items() if isinstance(value, Tensor)}

    @property
    def bytes(self) -> int:
        """The memory of the state."""
        return sum(x.numel() * x.element_size() for x in self.tensors.values())

    def select(self, rows: Int[Tensor, " N"]) -> State:
        """The state of some rows of the batch, in that order and as often as asked: what beam search does."""
        chosen = {name: x.index_select(0, rows.to(x.device)) for name, x in self.tensors.items()}
        return replace(self, **chosen, **dict.fromkeys(self.__dict__.keys() & {"key_room", "value_room"}))


SPARE_POSITIONS = 64
"""Room for so many steps, or for a quarter of what there is, at a time."""


class Room:
    """Memory with places to spare behind a growing tensor, so that a step writes one position and copies none.

    ``used`` is how far it has been written. A state that is shorter than that (an older one, kept by the caller)
    must not write here: it would overwrite what a newer one sees.
    """

    def __init__(self, memory: Float[Tensor, "B K C D"], used: int) -> None:
        self.memory = memory
        self.used = used

    @classmethod
    def append(
        cls, room: Room | None, old: Float[Tensor, "B K T D"], new: Float[Tensor, "B K t D"]
    ) -> tuple[Tensor, Room]:
        """Old and new positions as one tensor, and the room that it stands in."""
        before, after = old.shape[2], old.shape[2] + new.shape[2]
        fits = room is not None and room.used == before and room.memory.shape[2] >= after
        if room is None or not fits or room.memory.dtype != new.dtype:
            batch, heads, _, dim = old.shape
            memory = new.new_empty(batch, heads, max(after + SPARE_POSITIONS, after * 5 // 4), dim)
            memory[:, :, :before] = old
            room = cls(memory, before)
        room.memory[:, :, before:after] = new
        room.used = after
        return room.memory[:, :, :after], room


Rooms = tuple["Room | None", "Room | None"]


@dataclass(frozen=True)
class GrowingState(State):
    """Keys (after the feature map) and values (after the input gate) of all positions so far."""

    grows: ClassVar[bool] = True
    keys: Float[Tensor, "B K T D"]
    values: Float[Tensor, "B K T E"]
    decay: Float[Tensor, "B K T"] | None
    key_mask: Bool[Tensor, "B T"] | None
    key_room: Room | None = field(default=None, repr=False, compare=False)
    value_room: Room | None = field(default=None, repr=False, compare=False)

    def append(self, k: Float[Tensor, "B K t D"], v: Float[Tensor, "B K t E"]) -> tuple[Tensor, Tensor, Rooms]:
        """All keys and all values, and the rooms that they stand in."""
        old = self.keys.to(k.dtype), self.values.to(v.dtype)
        if torch.is_grad_enabled() and any(x.requires_grad for x in (*old, k, v)):
            return torch.cat([old[0], k], 2), torch.cat([old[1], v], 2), (None, None)
        keys, key_room = Room.append(self.key_room, old[0], k)
        values, value_room = Room.append(self.value_room, old[1], v)
        return keys, values, (key_room, value_room)

    @property
    def time(self) -> int:
        """Positions so far, padding included."""
        return self.keys.shape[2]


@dataclass(frozen=True)
class FixedState(State):
    """S = Σ_j decay · φ(k_j) [v_j, 1]ᵀ, and what the score needs to know of the keys."""

    grows: ClassVar[bool] = False
    matrix: Float[Tensor, "B K F U"]
    key_norm: Float[Tensor, "B K"] | None = None
    """The largest |k| so far, for scores that read it."""
    extent: Float[Tensor, "B K S"] | None = None
    """What the range of an exp on a range remembers of the keys."""

    def order(self, score: Polynomial, key_dim: int, n: int) -> Float[Tensor, "B K M U"]:
        """H^(n): the rows of the matrix that belong to order n of the score."""
        before = sum(n_features(replace_orders(score, m), key_dim) for m in score.orders if m < n)
        return self.matrix[:, :, before : before + n_features(replace_orders(score, n), key_dim)]


def replace_orders(score: Polynomial, n: int) -> Polynomial:
    """x^n alone."""
    return replace(score, coefficients=(0.0,) * n + (1.0,))


def init_state(
    spec: AttentionSpec,
    *,
    batch: int,
    heads: int,
    key_dim: int,
    value_dim: int | None = None,
    kv_heads: int | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> State:
    """The state before the first token.

    >>> from softmax_rnn.attention.variants import VARIANTS
    >>> init_state(VARIANTS["taylor_2"], batch=1, heads=2, key_dim=4).matrix.shape    # C(6, 2) = 15 features
    torch.Size([1, 2, 15, 5])
    """
    check_spec(spec)
    value_dim = key_dim if value_dim is None else value_dim
    check_state_sizes(heads, kv_heads, dtype, batch=batch, key_dim=key_dim, value_dim=value_dim)
    check_device(device)
    shared = heads if keys_differ_by_head(spec) else (kv_heads or heads)
    wide = dtype if dtype == torch.float64 else torch.float32

    def zeros(*shape: int, kind: torch.dtype = wide) -> Tensor:
        return torch.zeros(*shape, dtype=kind, device=device)

    lengths = zeros(batch, kind=torch.int64)
    mass = None
    if isinstance(spec.normaliser, CumulativeGate):
        mass = torch.full((batch, heads), torch.finfo(wide).min, dtype=wide, device=device)
    score = fixed_state_score(spec, key_dim)
    if score is not None:
        width = value_dim + spec.wants_row_sum
        kind = torch.float64 if spec.score.needs_wide_state else wide
        matrix = zeros(batch, shared, n_features(score, key_dim), width, kind=kind)
        extent = spec.score.empty_extent(key_dim)
        if extent is not None:
            extent = extent.to(lengths.device).expand(batch, shared, -1)
        key_norm = zeros(batch, shared) if spec.score.reads_key_norm else None
        return FixedState(lengths, mass, matrix, key_norm, extent)
    decay = None if spec.forget_gate is None else zeros(batch, shared, 0, kind=torch.float64)
    # The keys have the heads they were given; only values are gated head by head.
    return GrowingState(
        lengths, mass, zeros(batch, shared, 0, key_dim), zeros(batch, shared, 0, value_dim), decay, None
    )
