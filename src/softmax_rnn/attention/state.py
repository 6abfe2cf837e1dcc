"""What decoding carries from step to step: values that go in and come out, nothing is kept anywhere.

A polynomial score has a state of fixed size, one matrix per head with the hidden states H^(n) of its orders below
each other. Exp and clamped scores have none: theirs is the growing list of keys and values. A structure over time may
have a state of its own, which is beside it in `structures`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from softmax_rnn.attention.algebra import n_features
from softmax_rnn.attention.buffer import Buffer, Buffers
from softmax_rnn.attention.fitting import UNKNOWN, KeySummary
from softmax_rnn.attention.host_sync import traced
from softmax_rnn.attention.parts import Polynomial, power_score
from softmax_rnn.attention.visibility import gather
from softmax_rnn.errors import InputError

if TYPE_CHECKING:
    from softmax_rnn.attention.quick_step import QuickStep


@dataclass(frozen=True)
class State:
    """What all states know: how many keys were seen, and the values that parts carry along time.

    A field holds a tensor or several of them by name; `tensors` has them all, in files and graphs too.
    """

    kinds: ClassVar[list[type[State]]] = []
    grows: ClassVar[bool] = False
    comes_and_goes: ClassVar[bool] = False
    """Whether it has other tensors from step to step where the host may look at ``lengths``."""
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

    def __init_subclass__(cls) -> None:
        State.kinds.append(cls)

    @property
    def tensors(self) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for name in self.__match_args__:
            value = getattr(self, name)
            if isinstance(value, Tensor):
                found[name] = value
            elif isinstance(value, dict):
                found |= {f"{name}.{key}": x for key, x in value.items()}
        return found

    @staticmethod
    def from_tensors(tensors: Mapping[str, Tensor]) -> State:
        """The inverse of `tensors`: the first kind that has all of these fields and needs no other."""
        from softmax_rnn.attention import structures as structures  # so that theirs are known as well

        names = {"running", *(name.partition(".")[0] for name in tensors)}
        for kind in State.kinds:
            given = [one for one in fields(kind) if one.init]
            needed = {one.name for one in given if one.default is MISSING and one.default_factory is MISSING}
            if needed <= names <= {one.name for one in given}:
                return kind.of(tensors)
        raise InputError(f"state: no kind of state has the tensors {', '.join(tensors)}")

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Self:
        """The same, of a known kind."""
        values: dict[str, Any] = {"running": {}}
        for name, x in tensors.items():
            own, _, key = name.partition(".")
            if key:
                values.setdefault(own, {})[int(key) if key.isdigit() else key] = x
            else:
                values[own] = x
        return cls(**values)

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

    def select(self, rows: Int[Tensor, " N"]) -> Self:
        """The state of some rows of the batch, in that order and as often as asked: what beam search does."""
        return self.of({name: x.index_select(0, rows.to(x.device)) for name, x in self.tensors.items()})

    @property
    def summed(self) -> tuple[Any, KeySummary]:
        """The sums that a form goes on with, and what is known of their keys."""
        return None, UNKNOWN

    @property
    def listed(self) -> GrowingState | None:
        """Itself, where it holds a list of keys with something in it."""
        return None


@dataclass(frozen=True)
class GrowingState(State):
    """Keys (after the feature map) and values (after the input gate) of all positions so far."""

    grows: ClassVar[bool] = True
    keys: Float[Tensor, "B K T D"]
    values: Float[Tensor, "B K T E"]
    decay: Float[Tensor, "B K T"] | Float[Tensor, "B K T F"] | None = None
    """The running log decay per head, or the log decay of each step per channel."""
    key_mask: Bool[Tensor, "B T"] | None = None
    key_buffer: Buffer | None = field(default=None, repr=False, compare=False)
    value_buffer: Buffer | None = field(default=None, repr=False, compare=False)

    @property
    def time(self) -> int:
        """Positions that are kept, padding included."""
        return self.keys.shape[2]

    @property
    def listed(self) -> GrowingState | None:
        return self if self.time else None

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
    def real(self) -> Bool[Tensor, "B T"]:
        """Which keys are real."""
        if self.key_mask is not None:
            return self.key_mask
        return torch.ones(self.keys.shape[0], self.time, dtype=torch.bool, device=self.keys.device)

    def real_and(self, new: Bool[Tensor, "B t"] | None, time: int) -> Bool[Tensor, "B S"] | None:
        """The same, with those of ``time`` new ones behind them; None where all are."""
        if self.key_mask is None and new is None:
            return None
        real = self.real
        return torch.cat([real, real.new_ones(real.shape[0], time) if new is None else new], 1)

    def at(self, index: Int[Tensor, "B N"]) -> Self:
        """Some positions of every row, in new memory."""
        decay = None if self.decay is None else gather(self.decay, index, 2)
        mask = None if self.key_mask is None else self.key_mask.gather(1, index)
        kept = {"keys": gather(self.keys, index, 2), "values": gather(self.values, index, 2), "decay": decay}
        return replace(self, **kept, key_mask=mask, key_buffer=None, value_buffer=None)

    def without_last(self, count: int) -> Self:
        """The state before the last positions."""
        keep = self.time - count
        removed = count if self.key_mask is None else self.key_mask[:, keep:].sum(-1)
        return replace(
            self,
            lengths=self.lengths - removed,
            keys=self.keys[:, :, :keep],
            values=self.values[:, :, :keep],
            decay=None if self.decay is None else self.decay[:, :, :keep],
            key_mask=None if self.key_mask is None else self.key_mask[:, :keep],
        )


@dataclass(frozen=True)
class FixedState(State):
    """S = Σ_j decay · φ(k_j) [v_j, 1]ᵀ, and what the score needs to know of the keys."""

    matrix: Float[Tensor, "B K F U"]
    key_norm: Float[Tensor, "B K"] | None = None
    """The largest |k| so far, for scores that read it."""
    extent: Float[Tensor, "B K S"] | None = None
    """What the range of an exp on a range remembers of the keys."""

    @property
    def summed(self) -> tuple[Any, KeySummary]:
        return self.matrix, KeySummary(self.key_norm, self.extent)

    def order(self, score: Polynomial, key_dim: int, n: int) -> Float[Tensor, "B K M U"]:
        """H^(n): the rows of the matrix that belong to order n of the score."""
        before = sum(n_features(power_score(m), key_dim) for m in score.orders if m < n)
        return self.matrix[:, :, before : before + n_features(power_score(n), key_dim)]
