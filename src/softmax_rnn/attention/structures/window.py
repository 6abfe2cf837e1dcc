"""Window and sinks: the other keys are hidden, and leave the state."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from softmax_rnn.attention.host_sync import may_sync
from softmax_rnn.attention.parts import NearKeys
from softmax_rnn.attention.state import GrowingState, State
from softmax_rnn.attention.structures.whole import WholePast
from softmax_rnn.attention.visibility import Visibility


@dataclass(frozen=True)
class WindowPast(WholePast):
    """The last keys and the first ones."""

    structure: NearKeys

    def seen(self, whole: Visibility, batch: int, keys: int, device: torch.device) -> Visibility:
        return whole.within(self.structure.width, self.structure.sinks, batch, keys, device)

    def trimmed(self, state: GrowingState) -> GrowingState:
        most = self.structure.near + 2 * self.structure.spare
        if state.time <= most:
            return state
        sinks, window = self.structure.sinks, self.structure.width + self.structure.spare
        if state.key_mask is None:
            index = torch.arange(state.time, device=state.keys.device)
            index = torch.cat([index[:sinks], index[-window:]]).expand(state.keys.shape[0], -1)
            return state.at(index)
        from_start, real = state.key_mask.cumsum(-1), state.key_mask
        from_end = from_start[:, -1:] - from_start + real
        # The newest positions stay, real or not, so that they can be taken back one by one.
        newest = torch.arange(state.time, device=real.device) >= state.time - self.structure.spare
        keep = (real & ((from_start <= sinks) | (from_end <= window))) | newest
        may_read = may_sync(keep)
        index = keep.byte().argsort(dim=-1, stable=True)[:, -(int(keep.sum(-1).max()) if may_read else most) :]
        mask = real.gather(1, index) & keep.gather(1, index)
        return replace(state.at(index), key_mask=None if may_read and bool(mask.all()) else mask)

    def cannot_lose(self, state: State, count: int) -> str | None:
        """A key that the last positions hid may have been dropped."""
        listed = state.listed
        if listed is None:
            return None
        real = listed.key_mask
        kept = listed.lengths.new_full(listed.lengths.shape, listed.time) if real is None else real.sum(-1)
        last = kept.new_full(kept.shape, count) if real is None else real[:, listed.time - count :].sum(-1)
        complete = kept >= listed.lengths
        if bool((complete | (kept - last >= self.structure.near)).all()):
            return None
        return f"keys that left the window are gone, so {count} positions cannot be removed"
