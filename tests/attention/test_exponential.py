"""e^x in place: as many digits as x has."""

from __future__ import annotations

import pytest
import torch

from softmax_rnn.attention.exponential import exp_


@pytest.mark.parametrize(("dtype", "rounding"), [(torch.float32, 2.0**-24), (torch.float64, 2.0**-53)])
def test_exp_loses_no_more_than_the_rounding_of_x(dtype, rounding):
    x = torch.linspace(-40, 40, 10001, dtype=torch.float64).to(dtype)
    truth = torch.exp(x.double())
    error = (exp_(x.clone()).double() - truth).abs() / truth
    assert bool((error <= (4 + 2 * x.abs()) * rounding).all())


def test_what_is_no_number_stays_so():
    x = torch.tensor([-torch.inf, -200.0, torch.inf, torch.nan])
    y = exp_(x)
    assert y is x and y[:3].tolist() == [0.0, 0.0, torch.inf] and bool(y[3].isnan())
