"""One thread for all tests: small shapes gain nothing from more, and the machine is shared."""

from __future__ import annotations

import pytest
import torch
from jaxtyping import install_import_hook

# Before the first import of the package: shapes that signatures state are checked in each call.
CHECKED = ["softmax_rnn.attention", "softmax_rnn.model", "softmax_rnn.analysis", "softmax_rnn.train"]
install_import_hook(CHECKED, "shapes.tensors_checked")
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def variants_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that a test adds to the table are gone after it."""
    from softmax_rnn.attention.variants import VARIANTS

    monkeypatch.setattr(VARIANTS, "_rows", dict(VARIANTS._rows))
