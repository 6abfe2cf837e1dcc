"""Row sums that are not positive are counted and reported."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor

from attention.cases import step_by_step
from attention.numbers import line
from softmax_rnn.attention.attend import attend
from softmax_rnn.attention.nonpositive import NonPositiveError, NonPositiveWarning
from softmax_rnn.attention.parts import RowSum, power_score, taylor_score
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.variants import VARIANTS


def opposite(scores: list[float]) -> dict[str, Tensor]:
    return line(scores, 1, torch.float64)


def test_row_sums_that_are_not_positive_are_counted():
    # 1 + x: the row sums are 3, 3 − 4 = −1, −1 + 2 = 1, 1 − 1 = 0.
    with pytest.warns(NonPositiveWarning, match="^2 of 4 row sums are not positive .*can be negative"):
        attend(VARIANTS["taylor_1"], **opposite([2.0, -5.0, 1.0, -2.0]))


@pytest.mark.parametrize("form", ["parallel", "blockwise", "chunked", "recurrent"])
@pytest.mark.parametrize("name", ["taylor_1", "taylor_3", "power_1", "power_3"])
def test_every_form_reports(name, form):
    spec = VARIANTS[name]
    tensors = opposite([0.5, -9.0, -9.0])
    with pytest.warns(NonPositiveWarning, match="^2 of 3 row sums") as caught:
        attend(spec, **tensors, form=form)
    assert len(caught) == 1
    with pytest.raises(NonPositiveError, match=r"^2 of 3 row sums"):
        attend(spec, **tensors, form=form, nonpositive="error")


def test_the_80_terms_turn_negative_and_say_so():
    spec = VARIANTS["softmax_taylor_80terms"]
    with pytest.raises(NonPositiveError, match=r"^1 of 2 row sums"):
        attend(spec, **line([0.0, -60.0], 4, torch.float64), nonpositive="error")
    even = attend(VARIANTS["taylor_80"], **line([0.0, -60.0], 4, torch.float64), nonpositive="error")
    assert bool(even.isfinite().all())


def test_the_warning_points_at_the_caller():
    with pytest.warns(NonPositiveWarning) as caught:
        attend(VARIANTS["taylor_1"], **opposite([2.0, -5.0]))
    assert caught[0].filename == __file__


def test_a_row_of_weights_that_are_all_zero_is_reported_as_such():
    spec = AttentionSpec(score=power_score(2))
    with pytest.warns(NonPositiveWarning, match="^2 of 2 row sums .*all weights of the row are 0"):
        out = attend(spec, **opposite([0.0, 0.0]))
    assert bool((out == 0).all())


def test_step_by_step_reports_too():
    spec = VARIANTS["taylor_1"]
    with pytest.warns(NonPositiveWarning, match="^1 of 1 row sums") as caught:
        step_by_step(spec)(**opposite([2.0, -5.0, 1.0]))
    assert len(caught) == 1


def test_padding_is_never_counted():
    mask = torch.tensor([[False, True, True]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        attend(VARIANTS["taylor_1"], **opposite([-9.0, 2.0, 1.0]), key_mask=mask)
        # A query that is padding is nobody's output, wherever its score would lead.
        attend(VARIANTS["taylor_1"], **flipped_last_query(), key_mask=torch.tensor([[True, True, False]]))


def flipped_last_query() -> dict[str, Tensor]:
    tensors = opposite([2.0, 1.0, 1.0])
    tensors["q"][:, :, -1] *= -9
    return tensors


@pytest.mark.parametrize(
    "spec",
    [
        AttentionSpec(score=taylor_score(2)),
        AttentionSpec(score=taylor_score(1), normaliser=RowSum(minimum=1.0)),
        AttentionSpec(score=taylor_score(1), normaliser=None),
    ],
    ids=["even order", "minimum", "no row sum"],
)
def test_no_report_where_nothing_can_go_wrong(spec):
    out = attend(spec, **opposite([2.0, -5.0, 1.0]), nonpositive="error")
    assert bool(out.isfinite().all())
