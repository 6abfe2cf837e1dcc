"""The checks themselves can fail, and hold for a sample of the table."""

import pytest
import torch

from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.bench import verify
from softmax_rnn.bench.inputs import random_inputs


@pytest.mark.parametrize(
    "name", ["softmax", "gated_softmax_decay", "taylor_1", "two_mamba", "linear_cosine", "gated_deltanet"]
)
def test_every_form_of_a_sample_passes(name):
    checks = list(verify.check_variant(name))
    assert len(checks) >= 6
    assert all(check.passed for check in checks)


def test_a_wrong_output_fails(monkeypatch):
    attend = verify.attend

    def slightly_wrong(spec, *, form, **tensors):
        return attend(spec, form=form, **tensors) * (1 if form == "parallel" else 1 + 1e-4)

    monkeypatch.setattr(verify, "attend", slightly_wrong)
    failed = {check.form for check in verify.check_variant("linear_elu") if not check.passed}
    assert failed == {"blockwise", "chunked", "recurrent"}


def test_orders_come_closer_and_stay_within_the_bound():
    checks = list(verify.check_orders((2, 10, 20, 30)))
    measured = [check.measured for check in checks]
    assert measured == sorted(measured, reverse=True)
    assert all(check.measured <= max(check.bound, 1e-15) for check in checks)


def test_inputs_are_the_same_numbers_in_every_dtype():
    spec = VARIANTS["gated_softmax"]
    wide, narrow = (random_inputs(spec, heads=2, time=5, dtype=dtype) for dtype in (torch.float64, torch.float32))
    assert set(wide) == {"q", "k", "v", *spec.tensors}
    assert all(torch.equal(wide[name], narrow[name].double()) for name in wide)
