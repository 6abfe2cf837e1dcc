"""One thread for all tests: small shapes gain nothing from more, and the machine is shared."""

from __future__ import annotations

import pytest
import torch

from softmax_rnn.attention.variants import VARIANTS

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def variants_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that a test adds to the table are gone after it."""
    monkeypatch.setattr(VARIANTS, "_rows", dict(VARIANTS._rows))
