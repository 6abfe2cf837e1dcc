"""What decoding carries from step to step: values that go in and come out, nothing is kept anywhere.

A polynomial score has a state of fixed size, one matrix per head with the hidden states H^(n) of its orders below
each other. Exp and clamped scores have none: theirs is the growing list of keys and values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from softmax_rnn.attention.algebra import fixed_state_score, n_features
from softmax_rnn.attention.arguments import check_device, check_state_sizes
from softmax_rnn.attention.buffer import Buffer, Buffers
from softmax_rnn.attention.host_sync import may_sync, traced
from softmax_rnn.attention.levels import LevelSums
from softmax_rnn.attention.parts import ChunkEnds, KeptKeys, Levels, NearFar, NearKeys, Part, Polynomial
from softmax_rnn.attention.parts.base import axes_shape
from softmax_rnn.attention.spec import AttentionSpec, check_spec
from softmax_rnn.errors import InputError

if TYPE_CHECKING:
    from softmax_rnn.attention.quick_step import QuickStep


@dataclass(frozen=True)
class State:
    """What both kinds of state know: how many keys were seen, and the values that parts carry along time."""

    grows: ClassVar[bool]
    lengths: Int[Tensor, " B"]
    running: dict[str, Float[Tensor, "B H *more"]]
    """By the slot of the part."""
    fresh: bool = field(default=False, init=False, repr=False, compare=False)
    """Whether it is known to be empty without reading ``lengths``; a changed copy is not."""
    use: tuple[object, ...] | None = field(default=None, init=False, repr=False, compare=False)
    """The spec and the sizes that it was made for, where they are known."""
    fed: int | None = field(default=None, init=False, repr=False, compare=False)
    """How many positions it has seen, padding included, where that is known without a look at ``lengths``."""
    quick: QuickStep | None = field(default=None, init=False, repr=False, compare=False)
    """What its steps have in common, where they can be taken in few calls."""
    largest_key: float = field(default=0.0, init=False, repr=False, compare=False)
    """Where `quick` asks for it: no |k| so far is larger."""

    @property
    def tensors(self) -> dict[str, Tensor]:
        values = {name: getattr(self, name) for name in self.__match_args__}
        named = {name: value for name, value in values.items() if isinstance(value, Tensor)}
        return named | {f"{_RUNNING}{slot}": x for slot, x in self.running.items()} | self._stacked

    @property
    def _stacked(self) -> dict[str, Tensor]:
        return {}

    @staticmethod
    def from_tensors(tensors: Mapping[str, Tensor], *, fresh: bool = False) -> State:
        if any(name.startswith(_LEVEL) for name in tensors):
            return LevelState.from_stacked(tensors)
        if "mass" in tensors:
            kind: type[State] = KeptState
        else:
            kind = GrowingState if "matrix" not in tensors else NearFarState if "keys" in tensors else FixedState
        values: dict[str, Any] = {name: tensors.get(name) for name in kind.__match_args__}
        values["running"] = {name.removeprefix(_RUNNING): x for name, x in tensors.items() if _RUNNING in name}
        state = kind(**values)
        if fresh:
            state.mark(fresh)
        return state

    def mark(self, fresh: bool) -> None:
        """Note whether it is known to be empty."""
        object.__setattr__(self, "fresh", fresh)

    def made_for(self, use: tuple[object, ...], fed: int | None) -> Self:
        """The same; `use` says which calls it fits, so that they need not check it."""
        object.__setattr__(self, "use", use)
        object.__setattr__(self, "fed", fed)
        return self

    def taken(self, quick: QuickStep | None, largest_key: float = 0.0) -> Self:
        """The same; the next step can be a quick one."""
        object.__setattr__(self, "quick", quick)
        object.__setattr__(self, "largest_key", largest_key)
        return self

    def overwrite(self, after: State) -> None:
        """Take over the numbers of a later state, each where the earlier one stands."""
        tensors = after.tensors
        for name, x in self.tensors.items():
            x.copy_(tensors[name])
        self.mark(fresh=False)
        self.taken(after.quick, after.largest_key)

    @property
    def bytes(self) -> int:
        return sum(x.numel() * x.element_size() for x in self.tensors.values())

    def select(self, rows: Int[Tensor, " N"]) -> State:
        """The state of some rows of the batch, in that order and as often as asked: what beam search does."""
        return State.from_tensors({name: x.index_select(0, rows.to(x.device)) for name, x in self.tensors.items()})


_RUNNING = "running."
_LEVEL, _FACTOR = "level.", "factor."


def running_starts(spec: AttentionSpec, sizes: Mapping[str, int]) -> Iterator[tuple[Part, float, tuple[int, ...]]]:
    """The parts that carry values along time, where these start, and their shape without the batch."""
    for part in spec.parts:
        start = part.running_start()
        if start is not None:
            yield part, start, axes_shape(part.running_axes, sizes)


@dataclass(frozen=True)
class GrowingState(State):
    """Keys (after the feature map) and values (after the input gate) of all positions so far."""

    grows: ClassVar[bool] = True
    keys: Float[Tensor, "B K T D"]
    values: Float[Tensor, "B K T E"]
    decay: Float[Tensor, "B K T"] | Float[Tensor, "B K T F"] | None
    """The running log decay per head, or the log decay of each step per channel."""
    key_mask: Bool[Tensor, "B T"] | None
    key_buffer: Buffer | None = field(default=None, repr=False, compare=False)
    value_buffer: Buffer | None = field(default=None, repr=False, compare=False)

    def append(
        self, k: Float[Tensor, "B K t D"], v: Float[Tensor, "B K t E"], kept: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor, Buffers]:
        """All keys and all values in the dtype of the new ones, and the buffers in which they are kept."""
        needs_grad = torch.is_grad_enabled() and any(x.requires_grad for x in (self.keys, self.values, k, v))
        if needs_grad or traced(k):
            joined = [torch.cat([old.to(new.dtype), new], 2) for old, new in ((self.keys, k), (self.values, v))]
            return joined[0], joined[1], (None, None)
        keys, key_buffer = Buffer.append(self.key_buffer, self.keys, kept(k))
        values, value_buffer = Buffer.append(self.value_buffer, self.values, kept(v))
        return keys.to(k.dtype), values.to(v.dtype), (key_buffer, value_buffer)

    @property
    def time(self) -> int:
        """Positions that are kept, padding included."""
        return self.keys.shape[2]

    def trimmed(self, structure: NearKeys) -> GrowingState:
        """Without keys that no later query sees, once there are enough of them to be worth a copy."""
        most = structure.near + 2 * structure.spare
        if self.time <= most:
            return self
        window = structure.width + structure.spare
        if self.key_mask is None:
            index = torch.arange(self.time, device=self.keys.device)
            index = torch.cat([index[: structure.sinks], index[-window:]]).expand(self.keys.shape[0], -1)
            return replace(self, **self._gather(index))
        from_start, real = self.key_mask.cumsum(-1), self.key_mask
        from_end = from_start[:, -1:] - from_start + real
        # The newest positions stay, real or not, so that they can be taken back one by one.
        newest = torch.arange(self.time, device=real.device) >= self.time - structure.spare
        keep = (real & ((from_start <= structure.sinks) | (from_end <= window))) | newest
        may_read = may_sync(keep)
        index = keep.byte().argsort(dim=-1, stable=True)[:, -(int(keep.sum(-1).max()) if may_read else most) :]
        mask = real.gather(1, index) & keep.gather(1, index)
        return replace(self, **self._gather(index), key_mask=None if may_read and bool(mask.all()) else mask)

    def can_lose(self, count: int, structure: NearKeys) -> bool:
        """Whether the state without its last positions is still whole: no key that they hid has been dropped."""
        real = self.key_mask
        kept = self.lengths.new_full(self.lengths.shape, self.time) if real is None else real.sum(-1)
        last = kept.new_full(kept.shape, count) if real is None else real[:, self.time - count :].sum(-1)
        complete = kept >= self.lengths
        return bool((complete | (kept - last >= structure.near)).all())

    def _gather(self, index: Int[Tensor, "B N"]) -> dict[str, Any]:
        """Some positions of every row, in new memory."""
        heads, place = self.keys.shape[1], index[:, None]

        def of(x: Tensor) -> Tensor:
            return x.gather(2, place[..., None].expand(-1, heads, -1, x.shape[-1]))

        decay = None if self.decay is None else self.decay.gather(2, place.expand(-1, heads, -1))
        buffers = {"key_buffer": None, "value_buffer": None}
        return {"keys": of(self.keys), "values": of(self.values), "decay": decay, **buffers}


@dataclass(frozen=True)
class NearFarState(GrowingState):
    """Keys and values of window and sinks, and the sums over those that left; it grows until the window is full."""

    matrix: Float[Tensor, "B K F U"] | None = None
    key_norm: Float[Tensor, "B K"] | None = None
    """The largest |k| of the sums, for scores that read it."""
    extent: Float[Tensor, "B K S"] | None = None
    key_sum: Float[Tensor, "B K D"] | None = None
    """Σ k of those that left, where the far part is expanded at their mean."""


@dataclass(frozen=True)
class KeptState(State):
    """Keys and values of sinks, kept keys and window, each in its place, with their masses; the far sums beside."""

    grows: ClassVar[bool] = False
    keys: Float[Tensor, "B K N D"]
    values: Float[Tensor, "B K N E"]
    mass: Float[Tensor, "B K N"]
    """The sum of the weights that each key has had so far."""
    matrix: Float[Tensor, "B K F U"] | None = None
    key_sum: Float[Tensor, "B K D"] | None = None
    """Σ k of the folded ones, where the polynomial is expanded at their mean."""


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


@dataclass(frozen=True)
class LevelState(State):
    """The sums over the blocks of a past by level, about log₂ of its length many, and what the score knows of it."""

    grows: ClassVar[bool] = False
    stack: LevelSums
    """At most as many as there are levels but the first; about half of the binary digits of the length are 1."""
    key_norm: Float[Tensor, "B K"] | None = None
    extent: Float[Tensor, "B K S"] | None = None

    @property
    def _stacked(self) -> dict[str, Tensor]:
        sums = {f"{_LEVEL}{level}": x for level, x in self.stack.sums.items()}
        return sums | {f"{_FACTOR}{level}": x for level, x in self.stack.factors.items()}

    def overwrite(self, after: State) -> None:
        """The same; levels that come for the first time get a place."""
        assert isinstance(after, LevelState)
        for level in after.stack.sums.keys() - self.stack.sums.keys():
            self.stack.sums[level] = torch.empty_like(after.stack.sums[level])
        super().overwrite(after)

    @classmethod
    def from_stacked(cls, tensors: Mapping[str, Tensor]) -> LevelState:
        """The inverse of `tensors`."""

        def under(prefix: str) -> dict[str, Tensor]:
            return {name.removeprefix(prefix): x for name, x in tensors.items() if name.startswith(prefix)}

        sums, factors = ({int(level): x for level, x in under(prefix).items()} for prefix in (_LEVEL, _FACTOR))
        known = (tensors.get("key_norm"), tensors.get("extent"))
        return cls(tensors["lengths"], under(_RUNNING), LevelSums(sums, factors), *known)


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
    state = _empty(spec, batch, heads, key_dim, value_dim, kv_heads, dtype, device)
    state.mark(fresh=True)
    object.__setattr__(state, "fed", 0)
    return state


def _empty(
    spec: AttentionSpec,
    batch: int,
    heads: int,
    key_dim: int,
    value_dim: int,
    kv_heads: int | None,
    dtype: torch.dtype,
    device: torch.device | str | None,
) -> State:
    shared = heads if spec.differs_by_head else (kv_heads or heads)
    wide = dtype if dtype == torch.float64 else torch.float32

    def zeros(*shape: int, kind: torch.dtype = wide) -> Tensor:
        return torch.zeros(*shape, dtype=kind, device=device)

    lengths = zeros(batch, kind=torch.int64)
    features = spec.width(key_dim)
    sizes = {"H": heads, "K": kv_heads or heads, "D": key_dim, "E": value_dim, "F": features}
    running = {
        part.slot: torch.full((batch, *shape), max(start, torch.finfo(wide).min), dtype=wide, device=device)
        for part, start, shape in running_starts(spec, sizes)
    }
    score = fixed_state_score(spec, key_dim)
    if isinstance(spec.structure, KeptKeys):
        if score is None and spec.polynomial is not None:
            raise InputError("structure: the folded keys of kept_keys need a state of fixed size; lower the degree")
        size = (batch, shared, spec.structure.near)
        centred = spec.structure.centred
        kind = torch.float64 if spec.score.needs_wide_state or centred else wide
        matrix = None if score is None else zeros(*size[:2], n_features(score, key_dim), value_dim + 1, kind=kind)
        key_sum = zeros(*size[:2], key_dim, kind=torch.float64) if centred else None
        places = (zeros(*size, key_dim), zeros(*size, value_dim), zeros(*size))
        return KeptState(lengths, running, *places, matrix, key_sum)
    if score is not None:
        width = value_dim + spec.wants_row_sum
        centred = isinstance(spec.structure, NearFar) and spec.structure.centred
        kind = torch.float64 if spec.score.needs_wide_state or centred else wide
        matrix = zeros(batch, shared, n_features(score, features), width, kind=kind)
        extent = spec.score.empty_extent(features)
        if extent is not None:
            extent = extent.to(lengths.device).expand(batch, shared, -1)
        key_norm = zeros(batch, shared) if spec.score.reads_key_norm else None
        if spec.structure is None or isinstance(spec.structure, ChunkEnds):
            return FixedState(lengths, running, matrix, key_norm, extent)
        if isinstance(spec.structure, Levels):
            return LevelState(lengths, running, LevelSums({1: matrix}), key_norm, extent)
        width = features if spec.feature_map is None else key_dim + features
        keys, values = zeros(batch, shared, 0, width), zeros(batch, shared, 0, value_dim)
        decay = None if spec.forget_gate is None else zeros(batch, shared, 0, kind=torch.float64)
        key_sum = zeros(batch, shared, features, kind=torch.float64) if centred else None
        return NearFarState(lengths, running, keys, values, decay, None, None, None, matrix, key_norm, extent, key_sum)
    if isinstance(spec.structure, NearFar):
        raise InputError("structure: the far keys of near_far need a state of fixed size; lower the degree")
    decay = None
    if spec.forget_gate is not None:
        by_channel = spec.forget_gate.by_channel
        decay = zeros(batch, shared, 0, features) if by_channel else zeros(batch, shared, 0, kind=torch.float64)
    # The keys have the heads they were given; only values are gated head by head.
    return GrowingState(
        lengths, running, zeros(batch, shared, 0, features), zeros(batch, shared, 0, value_dim), decay, None
    )
