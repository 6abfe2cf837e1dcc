"""NaN and inf at later positions do not reach earlier ones: in the recurrent form never, in blocks not beyond one."""

from __future__ import annotations

import pytest
import torch

from attention.cases import TIMED, T, attention, inputs
from attention.compare import assert_close
from softmax_rnn.attention.forms import blockwise, chunked
from softmax_rnn.attention.ranges.kinds import BoxRange, ExpOnRange
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.variants import VARIANTS

pytestmark = pytest.mark.filterwarnings("ignore::softmax_rnn.attention.nonpositive.NonPositiveWarning")

BLOCK = 16
LATER = 16
NAMES = {
    "recurrent": (
        "softmax",
        "gated_softmax",
        "gated_softmax_decay",
        "cumulative_gated_softmax",
        "linear_elu",
        "taylor_2",
        "linear_cosine",
        "exp on a box",
    ),
    "blockwise": ("softmax", "gated_softmax_decay", "taylor_2", "gated_relu_no_in_gate_no_norm"),
    "chunked": ("linear_elu", "taylor_2", "linear_cosine", "power_attention_2"),
}
CASES = [(form, name) for form, names in NAMES.items() for name in names]


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf], ids=str)
@pytest.mark.parametrize(("form", "name"), CASES)
def test_earlier_rows_do_not_change(monkeypatch, form, name, bad):
    monkeypatch.setattr(blockwise, "BLOCK", {"cpu": BLOCK})
    monkeypatch.setattr(chunked, "chunk_length", lambda features: BLOCK)
    spec = AttentionSpec(score=ExpOnRange(degree=4, range=BoxRange())) if name == "exp on a box" else VARIANTS[name]
    tensors = inputs(spec)
    clean = attention(spec, form=form)(**tensors)
    for broken in tensors.keys() & set(TIMED):
        changed = dict(tensors)
        changed[broken] = tensors[broken].clone()
        changed[broken][:, :, LATER:] = bad
        got = attention(spec, form=form)(**changed)
        assert_close(got[:, :, :LATER], clean[:, :, :LATER])
        assert got.shape[2] == T
