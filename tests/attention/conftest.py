"""What several tests of the core ask for."""

from __future__ import annotations

import pytest

from softmax_rnn.attention.forms import chunked


@pytest.fixture
def many_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of 4 positions: nearly all keys are seen through the state."""
    monkeypatch.setattr(chunked, "chunk_length", lambda features: 4)
