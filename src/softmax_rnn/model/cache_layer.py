"""What one layer keeps while decoding: an attention state and the tail of its convolution, or Mamba-2's states."""

from __future__ import annotations

from typing import Any, NoReturn

from jaxtyping import Bool, Int
from torch import Tensor
from transformers.cache_utils import CacheLayerMixin, LinearAttentionLayer

from softmax_rnn.attention.parts import Structure
from softmax_rnn.attention.state import State
from softmax_rnn.attention.structures import past_of
from softmax_rnn.errors import InputError

_TAIL, _SUMS = "tail", "sums"


class SpecLayer(CacheLayerMixin):
    """The state of an attention layer, ``None`` before its first position."""

    supports_early_init = False

    def __init__(self, structure: Structure) -> None:
        super().__init__()
        self.structure = structure
        self.state: State | None = None
        self.tail: Tensor | None = None
        """The last inputs of the short convolution or the token shift (B, W − 1, C)."""
        self.sums: Tensor | None = None
        """The running keys and values of the chunk (B, C)."""
        self.length = 0

    @property
    def lengths(self) -> Int[Tensor, " B"] | None:
        """Real positions of every row."""
        return None if self.state is None else self.state.lengths

    @property
    def tensors(self) -> dict[str, Tensor]:
        tensors = {} if self.state is None else dict(self.state.tensors)
        block = {_TAIL: self.tail, _SUMS: self.sums}
        return tensors | {name: x for name, x in block.items() if x is not None}

    def restore(self, length: int, tensors: dict[str, Tensor]) -> None:
        """The inverse of `tensors`."""
        self.state = State.from_tensors({name: x for name, x in tensors.items() if name not in (_TAIL, _SUMS)})
        self.tail, self.sums = tensors.get(_TAIL), tensors.get(_SUMS)
        self.length = length

    def select(self, rows: Int[Tensor, " N"]) -> None:
        """Some rows of the batch."""
        if self.state is not None:
            self.state = self.state.select(rows)
        if self.tail is not None:
            self.tail = self.tail.index_select(0, rows.to(self.tail.device))
        if self.sums is not None:
            self.sums = self.sums.index_select(0, rows.to(self.sums.device))

    def check_croppable(self, count: int) -> None:
        """A growing list of keys can be cut; what is summed up cannot be taken apart again, nor dropped keys found."""
        state, refusal = self.state, None
        if state is not None:
            refusal = past_of(self.structure).cannot_lose(state, count)
        keeps_more = self.tail is not None or self.sums is not None or (state is not None and state.running)
        if keeps_more and (state is None or state.grows):
            refusal = "this layer keeps running values (a convolution, a shift, a cumulative gate, a scan)"
        if refusal is not None:
            raise InputError(f"crop: {refusal}")

    def crop(self, tokens_to_remove: int) -> None:
        """Cut the last positions off a growing state."""
        count = abs(tokens_to_remove)
        self.check_croppable(count)
        listed = None if self.state is None else self.state.listed
        if count and listed is not None:
            self.state = listed.without_last(count)
            self.length -= count

    def reset(self) -> None:
        """Back to before the first position."""
        self.state, self.tail, self.sums, self.length = None, None, None, 0

    def get_seq_length(self) -> int:
        """Positions so far, padding included."""
        return self.length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """The number of keys and the position of the first."""
        return self.length + query_length, 0

    def get_max_length(self) -> int:
        """No maximum."""
        return -1

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to do: the state is made with the first positions."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: attention that keeps keys and values itself is not ours."""
        raise InputError("past_key_values: a SpecCache needs attention with a spec; convert the model first")


class MambaLayer(LinearAttentionLayer):
    """transformers' states of a Mamba-2 mixer, with a count of the positions."""

    def __init__(self) -> None:
        super().__init__()
        self.length = 0
        self.lengths: Int[Tensor, " B"] | None = None

    def advance(self, time: int, real: Bool[Tensor, "B T"]) -> None:
        """Count the positions that the mixer has taken in."""
        self.length += time
        count = real.sum(-1)
        self.lengths = count if self.lengths is None else self.lengths + count

    @property
    def tensors(self) -> dict[str, Tensor]:
        tensors = {"lengths": self.lengths, "conv": self.conv_states[0], "recurrent": self.recurrent_states[0]}
        return {name: x for name, x in tensors.items() if x is not None}

    def restore(self, length: int, tensors: dict[str, Tensor]) -> None:
        """The inverse of `tensors`."""
        self.length, self.lengths = length, tensors["lengths"]
        self.lazy_initialization(conv_states=tensors["conv"], recurrent_states=tensors["recurrent"])
        self.conv_states[0], self.recurrent_states[0] = tensors["conv"], tensors["recurrent"]
        self.has_previous_state[0] = True

    def select(self, rows: Int[Tensor, " N"]) -> None:
        """Some rows of the batch."""
        for states in (self.conv_states, self.recurrent_states):
            if states[0] is not None:
                states[0] = states[0].index_select(0, rows.to(states[0].device))
        if self.lengths is not None:
            self.lengths = self.lengths.index_select(0, rows.to(self.lengths.device))

    def check_croppable(self, count: int) -> None:
        """Mamba-2's state is a sum over all positions."""
        raise InputError("crop: a Mamba-2 state holds sums over all positions; the last ones cannot be removed")

    def reset(self) -> None:
        """Back to before the first position."""
        super().reset()
        self.length, self.lengths = 0, None
