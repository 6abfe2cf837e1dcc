"""exp on a range: all forms give the same, states can be split, bounds are bounds, squares are never negative."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
import torch

from attention.compare import seeded
from softmax_rnn.attention.algebra import can_be_negative
from softmax_rnn.attention.attend import attend, extend, init_state, step
from softmax_rnn.attention.formula import formula
from softmax_rnn.attention.nonpositive import NonPositiveWarning
from softmax_rnn.attention.parts import L2Norm, RowSum
from softmax_rnn.attention.polynomials import clenshaw, derivative_rows
from softmax_rnn.attention.ranges.bounds import running_bounds
from softmax_rnn.attention.ranges.kinds import (
    BoxRange,
    ExpOnRange,
    ExtremeKeys,
    FixedRange,
    MeanPoint,
    MomentRange,
    NormRange,
    Range,
    TrueRange,
)
from softmax_rnn.attention.ranges.series import chebyshev_coefficients
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.visibility import Visibility
from softmax_rnn.errors import InputError

torch.set_num_threads(1)
pytestmark = pytest.mark.filterwarnings("ignore::softmax_rnn.attention.nonpositive.NonPositiveWarning")

B, H, K, T, D = 2, 4, 2, 19, 3
CAUSAL = [
    FixedRange(low=(-9.0,), high=(9.0,)),
    FixedRange(low=(-9.0, -8.0, -7.0, -9.0), high=(9.0, 8.0, 9.0, 9.0)),
    NormRange(),
    BoxRange(),
    MeanPoint(),
    MomentRange(),
    ExtremeKeys(),
]
RANGES = [*CAUSAL, TrueRange()]
POWERS = [(6, 2), (5, 1)]
CASES = [(part, *power) for part, power in itertools.product(RANGES, POWERS)]


def name(value: object) -> str:
    return value.kind if isinstance(value, Range) else str(value)


def inputs() -> dict[str, torch.Tensor]:
    return {
        "q": 2 * seeded(B, H, T, D, seed=1),
        "k": 1.5 * seeded(B, K, T, D, seed=2) + 0.5,
        "v": seeded(B, K, T, D, seed=3),
    }


def spec_of(part: Range, degree: int, power: int) -> AttentionSpec:
    return AttentionSpec(score=ExpOnRange(degree=degree, power=power, range=part))


def masks() -> dict[str, dict[str, torch.Tensor]]:
    real = torch.ones(B, T, dtype=torch.bool)
    real[0, :4] = False
    real[1, 9] = False
    segments = torch.tensor([0] * 5 + [1] * 8 + [2] * 6).expand(B, T)
    return {"plain": {}, "padded": {"key_mask": real}, "packed": {"segment_ids": segments}}


def gradients(spec: AttentionSpec, form: str, options: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    leaves = [x.requires_grad_() for x in inputs().values()]
    output = attend(spec, *leaves, form=form, **options)
    if "key_mask" in options:
        output = output * options["key_mask"][:, None, :, None]
    weight = seeded(*output.shape, seed=7)
    return [output.detach(), *torch.autograd.grad((output * weight).sum(), leaves)]


@pytest.mark.parametrize("masked", list(masks()))
@pytest.mark.parametrize(("part", "degree", "power"), CASES, ids=name)
def test_all_forms_agree_in_outputs_and_gradients(part, degree, power, masked):
    spec, options = spec_of(part, degree, power), masks()[masked]
    truth = gradients(spec, "parallel", options)
    forms = ["blockwise", "recurrent"] + (["chunked"] if part.causal_state else [])
    for form in forms:
        for got, expected in zip(gradients(spec, form, options), truth, strict=True):
            # The square root of the promise's 1e-10 where weights can cancel: a row sum near 0 magnifies rounding.
            limit = 1e-10 if power == 2 else 1e-7
            assert float((got - expected).abs().max()) <= limit * float(expected.abs().max()), form


@pytest.mark.parametrize("part", RANGES, ids=name)
@pytest.mark.parametrize("masked", ["plain", "padded"])
def test_a_sequence_can_be_split_anywhere(part, masked):
    spec, options = spec_of(part, 6, 2), masks()[masked]
    x = inputs()
    whole = attend(spec, *x.values(), **options)
    state = init_state(spec, batch=B, heads=H, kv_heads=K, key_dim=D, dtype=torch.float64)
    pieces = []
    for start, stop in ((0, 2), (2, 3), (3, 11), (11, T)):
        mask = {"key_mask": options["key_mask"][:, start:stop]} if options else {}
        output, state = extend(spec, *(one[:, :, start:stop] for one in x.values()), state, **mask)
        pieces.append(output)
    assert state.grows is not part.causal_state
    difference = torch.cat(pieces, 2) - whole
    if options:
        difference = difference * options["key_mask"][:, None, :, None]
    assert float(difference.abs().max()) < 1e-10


@pytest.mark.parametrize("part", CAUSAL, ids=name)
def test_float32_in_and_out(part):
    spec, x = spec_of(part, 4, 2), {name: one.float() for name, one in inputs().items()}
    truth = attend(spec, *(one.double() for one in x.values()), form="parallel")
    state = init_state(spec, batch=B, heads=H, kv_heads=K, key_dim=D)
    for t in range(T):
        output, state = step(spec, *(one[:, :, t] for one in x.values()), state)
        assert output.dtype == torch.float32
        assert float((output - truth[:, :, t]).abs().max()) <= 2e-5 * float(truth.abs().max())


@pytest.mark.parametrize(("part", "power"), [(TrueRange(), 1), (TrueRange(), 2), (MeanPoint(), 1), (MeanPoint(), 2)])
def test_high_degrees_are_softmax(part, power):
    x = inputs()
    softmax = attend(AttentionSpec(), *x.values())
    assert float((attend(spec_of(part, 80, power), *x.values()) - softmax).abs().max()) < 1e-9


@pytest.mark.parametrize("normaliser", [RowSum(), None])
def test_the_scale_of_the_weights_is_that_of_exp(normaliser):
    x = inputs()
    norm = None if normaliser else L2Norm()
    softmax = attend(AttentionSpec(normaliser=normaliser, output_norm=norm), *x.values())
    score = ExpOnRange(degree=60, range=TrueRange())
    got = attend(AttentionSpec(score=score, normaliser=normaliser, output_norm=norm), *x.values())
    assert float((got - softmax).abs().max()) < 1e-9
    plain = attend(AttentionSpec(normaliser=None), *x.values())
    got = attend(AttentionSpec(score=score, normaliser=None), *x.values())
    assert float(((got - plain) / plain.abs().amax(-1, keepdim=True)).abs().max()) < 1e-9


def true_ranges(x: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """By loops, for every head and query."""
    low, high = torch.empty(B, K, H // K, T, dtype=torch.float64), torch.empty(B, K, H // K, T, dtype=torch.float64)
    for b, h, t in itertools.product(range(B), range(H), range(T)):
        scores = [float(x["q"][b, h, t] @ x["k"][b, h // (H // K), j]) for j in range(t + 1)]
        low[b, h // 2, h % 2, t], high[b, h // 2, h % 2, t] = min(scores), max(scores)
    return low, high


@pytest.mark.parametrize("part", [NormRange(), BoxRange(), ExtremeKeys(0.0, 0.0), TrueRange()], ids=name)
def test_bounds(part):
    x = inputs()
    low, high = true_ranges(x)
    result = running_bounds(part, x["q"].unflatten(1, (K, -1)), x["k"], Visibility(), None)
    if isinstance(part, TrueRange):
        assert torch.allclose(result.low, low) and torch.allclose(result.high, high)
    elif isinstance(part, ExtremeKeys):
        assert bool((result.low >= low - 1e-12).all() and (result.high <= high + 1e-12).all())
    else:
        assert bool((result.low <= low + 1e-12).all() and (result.high >= high - 1e-12).all())


def test_moments_are_those_of_the_scores():
    x = inputs()
    q = x["q"].unflatten(1, (K, -1))
    result = running_bounds(MomentRange(1.0, 0.0), q, x["k"], Visibility(), None)
    for t in (0, 4, T - 1):
        scores = torch.einsum("bkgd,bkjd->bkgj", q[:, :, :, t], x["k"][:, :, : t + 1])
        assert torch.allclose(result.high[..., t], scores.mean(-1))
        deviation = scores.var(-1, correction=0).sqrt()
        assert torch.allclose(result.high[..., t] - result.low[..., t], deviation, atol=1e-6)


def test_squares_are_never_negative():
    x = inputs()
    for part in RANGES:
        assert not can_be_negative(spec_of(part, 4, 2)) and can_be_negative(spec_of(part, 3, 1))
        with warnings.catch_warnings():
            warnings.simplefilter("error", NonPositiveWarning)
            attend(spec_of(part, 4, 2), *x.values())


def test_chebyshev_coefficients_and_slopes():
    radius = torch.tensor([0.5, 12.0], dtype=torch.float64)
    rows = chebyshev_coefficients(radius, 30)
    t = torch.linspace(-1, 1, 21, dtype=torch.float64).expand(2, -1)
    assert torch.allclose(clenshaw(rows, t), torch.exp(radius[:, None] * (t - 1)), atol=1e-9)
    for row, r in zip(rows, radius, strict=True):
        expected = np.polynomial.chebyshev.chebval(t[0].numpy(), np.polynomial.chebyshev.chebder(row.numpy()))
        got = clenshaw(derivative_rows(row), t[0])
        assert np.allclose(got.numpy(), expected, atol=1e-12 * float(r) ** 2 + 1e-12)


@pytest.mark.parametrize("part", RANGES, ids=name)
def test_json(part):
    spec = spec_of(part, 6, 2)
    assert AttentionSpec.from_json(spec.to_json()) == spec and hash(spec) == hash(
        AttentionSpec.from_json(spec.to_json())
    )
    assert part.kind.replace("_", " ") in formula(spec)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"degree": 5, "power": 2}, "a multiple of power 2, got 5"),
        ({"degree": 0, "power": 1}, "degree: expected 1 to 170"),
        ({"degree": 4, "power": 0}, "power: expected 1 or more, got 0"),
        ({"degree": 4, "clamp": 1.0}, "clamp: a polynomial on a range has none"),
        ({"degree": 4, "range": "box"}, "range: expected one of fixed, norm"),
    ],
)
def test_wrong_options(options, said):
    with pytest.raises(InputError, match=said):
        ExpOnRange(**{"range": BoxRange(), **options})


def test_wrong_ranges():
    with pytest.raises(InputError, match="as many low as high ends, got 1 and 2"):
        FixedRange(low=(1.0,), high=(2.0, 3.0))
    with pytest.raises(InputError, match="low ≤ high"):
        FixedRange(low=(3.0,), high=(2.0,))
    with pytest.raises(InputError, match="expected 1 or 4 pairs of ends, one per query head, got 2"):
        attend(spec_of(FixedRange(low=(0.0, 0.0), high=(1.0, 1.0)), 4, 2), *inputs().values())
    with pytest.raises(InputError, match="the true range of a row needs all its keys"):
        attend(spec_of(TrueRange(), 4, 2), *inputs().values(), form="chunked")
