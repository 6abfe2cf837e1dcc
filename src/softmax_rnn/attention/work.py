"""A call on its way: its positions among all keys, and then what a structure contracts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from jaxtyping import Float, Int
from torch import Tensor

from softmax_rnn.attention import prologue
from softmax_rnn.attention.algebra import fixed_state_score
from softmax_rnn.attention.buffer import Buffers
from softmax_rnn.attention.call import Call
from softmax_rnn.attention.contraction import Contraction, Sums
from softmax_rnn.attention.fitting import UNKNOWN, KeySummary
from softmax_rnn.attention.forms import Form
from softmax_rnn.attention.parts.base import Along
from softmax_rnn.attention.state import GrowingState, State
from softmax_rnn.attention.visibility import Visibility, visibility

if TYPE_CHECKING:
    from softmax_rnn.attention.structures.whole import WholePast


@dataclass(frozen=True)
class Positions:
    """What the new positions know of the whole: which keys they see, how many, what parts carry along time."""

    call: Call
    state: State | None
    """What came before them, and is to come after them; None: nothing, and nothing is asked for."""
    past: WholePast
    """How the structure of the spec is computed."""
    new: Visibility
    """Among the new positions."""
    whole: Visibility
    """With the keys of a growing state in front of them."""
    listed: GrowingState | None
    """That state."""
    counts: Int[Tensor, "B T"]
    """How many keys of the segment there are up to each position."""
    places: Float[Tensor, "B T"]
    """The same as floats."""
    lengths: Float[Tensor, "B T"]
    """How many of them it sees."""
    running: dict[str, Float[Tensor, "B H T *more"]]

    @classmethod
    def of(cls, call: Call, state: State | None, past: WholePast) -> Positions:
        shape, device = call.shape, call.q.device
        new = whole = visibility(call.key_mask, call.segment_ids)
        counts = new.lengths(shape.batch, shape.time, device, None if state is None else state.lengths)
        listed, keys = None if state is None else past.listed(state), shape.time
        if listed is not None:
            whole = replace(new, key_mask=listed.real_and(new.key_mask, shape.time))
            keys += listed.time
        whole = past.seen(whole, shape.batch, keys, device)
        places, seen = counts.to(call.q.dtype), call.spec.over_time.seen(counts, new.key_mask)
        lengths = places if seen is counts else seen.to(call.q.dtype)
        running = {}
        if call.spec.running_parts:
            along = Along(call.spec, call.k, call.v, call.tensors, new, lengths)
            running = prologue.running(along, {} if state is None else state.running)
        return cls(call, state, past, new, whole, listed, counts, places, lengths, running)

    @property
    def keys(self) -> int:
        """How many keys there are, those of a growing state included."""
        return self.call.shape.time + (0 if self.listed is None else self.listed.time)

    @property
    def has_fixed_past(self) -> bool:
        """Whether keys may have been summed up."""
        return self.state is not None and self.past.has_sums(self.state, self.call.shape.time)


@dataclass(frozen=True)
class Work:
    """A contraction, and the form that computes it."""

    now: Positions
    job: Contraction
    buffers: Buffers
    """The memory of keys and values, where they stand in one."""
    form: Form

    @property
    def has_fixed_state(self) -> bool:
        """Whether the past is a state of fixed size, and not a list of keys."""
        return fixed_state_score(self.now.call.spec, self.now.call.shape.key_dim) is not None

    @property
    def summed(self) -> tuple[Any, KeySummary]:
        """What the state has summed up."""
        return (None, UNKNOWN) if self.now.state is None else self.now.state.summed

    def contract(self, job: Contraction, summed: tuple[Any, KeySummary]) -> tuple[Sums, Any, KeySummary]:
        """By the form: the sums after those of the past, the matrix after them, and what is known of the keys."""
        fitted = job.score.fit(job, summed[1], self.has_fixed_state)
        keep_state = self.now.state is not None
        return *self.form.run(fitted, summed[0], keep_state), fitted.summary if keep_state else UNKNOWN

    def carried(self) -> tuple[Tensor, dict[str, Tensor]]:
        """The fields that every state has."""
        return self.now.counts[:, -1], {slot: x[:, :, -1] for slot, x in self.now.running.items()}

    def lists(self) -> tuple[Any, ...]:
        """The fields of a `GrowingState`."""
        kept, job = self.now.call.kept, self.job
        stand = zip((job.k, job.v), self.buffers, strict=True)
        k, v = (kept(x) if b is None else b.memory[:, :, : x.shape[2]] for x, b in stand)
        decay = None if job.decay is None else job.decay.memory
        return *self.carried(), k, v, decay, job.visibility.key_mask, *self.buffers
