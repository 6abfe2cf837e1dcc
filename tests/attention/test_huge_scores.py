"""Scores of any size: exp of exact huge scores, polynomials row by row in 100 digits."""

from __future__ import annotations

from collections.abc import Callable

import mpmath
import pytest
import torch
from torch import Tensor

from attention.cases import HKV, H, attention, inputs, literal_form, some, step_by_step
from attention.compare import DTYPES, assert_close, assert_same, run, seeded
from attention.numbers import TIME, cases, every_form, exact_scores, huge_inputs, line, quiet
from softmax_rnn.attention.attend import attend
from softmax_rnn.attention.parts import Polynomial
from softmax_rnn.attention.variants import VARIANTS

EXP_TRUTHS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "softmax": lambda p, v: p @ v,
    "gated_softmax_no_gate_L2norm_nodivS_noclamp": lambda p, v: torch.nn.functional.normalize(p @ v, dim=-1, eps=0.0),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("name", "form"), every_form(list(EXP_TRUTHS)))
def test_exp_of_huge_scores(name, form, dtype):
    spec = VARIANTS[name]
    tensors = huge_inputs(spec, dtype, 100)
    scores = exact_scores(tensors)
    assert scores.abs().max() > 1e4
    probability = scores.masked_fill(~torch.ones(TIME, TIME).tril().bool(), -torch.inf).softmax(-1)
    truth = EXP_TRUTHS[name](probability, tensors["v"].double().repeat_interleave(H // HKV, 1))
    assert_close(attend(spec, **tensors, form=form), truth)


@quiet
@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.float64, marks=pytest.mark.slow)], ids=str)
@pytest.mark.parametrize(("name", "form"), cases(key_dim=4))
def test_huge_scores_give_finite_outputs_and_gradients(name, form, dtype):
    spec = VARIANTS[name]
    got = run(attention(spec, form=form), huge_inputs(spec, dtype, 100))
    assert bool(got.output.isfinite().all())
    assert all(bool(g.isfinite().all()) for g in got.grads.values())


@quiet
@pytest.mark.parametrize(("name", "form"), cases(key_dim=4, literal=False))
def test_forms_agree_on_huge_scores(name, form):
    spec = VARIANTS[name]
    tensors = huge_inputs(spec, torch.float64, 100)
    truth = run(attention(spec, form=literal_form(spec)), tensors)
    assert_same(run(attention(spec, form=form), tensors), truth, torch.float64)


@quiet
@pytest.mark.parametrize("name", some())
def test_steps_agree_on_huge_scores(name):
    spec = VARIANTS[name]
    tensors = huge_inputs(spec, torch.float64, 100)
    truth = attend(spec, **tensors, form=literal_form(spec))
    assert_close(step_by_step(spec)(**tensors), truth)


# ---- polynomials, row by row in 100 digits

POLYNOMIALS = [
    "softmax_taylor_80terms",
    "taylor_1",
    "taylor_2",
    "taylor_4",
    "taylor_80",
    "power_2",
    "power_attention_4",
]


def exact_rows(coefficients: list[mpmath.mpf], scores: Tensor, values: Tensor) -> Tensor:
    """Σ_j P(x_ij) v_j / Σ_j P(x_ij) for one head, without rounding; 0 where all weights are 0."""
    out = torch.zeros_like(values)
    for i in range(len(scores)):
        weights = [mpmath.polyval(coefficients[::-1], mpmath.mpf(x)) for x in scores[i, : i + 1].tolist()]
        for e in range(values.shape[1]):
            top = mpmath.fsum(w * mpmath.mpf(v) for w, v in zip(weights, values[: i + 1, e].tolist(), strict=True))
            out[i, e] = float(top / (mpmath.fsum(weights) or 1))
    return out


def exact_coefficients(score: Polynomial) -> list[mpmath.mpf]:
    if score.is_taylor:
        return [1 / mpmath.factorial(n) for n in range(score.degree + 1)]
    return [mpmath.mpf(c) for c in score.coefficients]


def polynomial_truth(score: Polynomial, tensors: dict[str, Tensor]) -> Tensor:
    with mpmath.workdps(400):
        scores, values = exact_scores(tensors), tensors["v"].double().repeat_interleave(H // HKV, 1)
        coefficients = exact_coefficients(score)
        rows = [
            [exact_rows(coefficients, scores[b, h], values[b, h]) for h in range(scores.shape[1])]
            for b in range(scores.shape[0])
        ]
    return torch.stack([torch.stack(heads) for heads in rows])


def one_head(tensors: dict[str, Tensor], time: int = 5) -> dict[str, Tensor]:
    """Two query heads on one key head, one sequence: few enough pairs for mpmath."""
    few = {name: x[:1, : 2 if name == "q" or name.endswith("gate") else 1, :time] for name, x in tensors.items()}
    return few | ({"forget_gate": torch.zeros_like(few["forget_gate"])} if "forget_gate" in few else {})


@quiet
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("largest", [2, 4, 100], ids=["up to 8", "up to 32", "up to 2e4"])
@pytest.mark.parametrize(("name", "form"), every_form(POLYNOMIALS, key_dim=4))
def test_polynomials_of_any_score(name, form, largest, dtype):
    spec = VARIANTS[name]
    tensors = one_head(huge_inputs(spec, dtype, largest))
    score = spec.score
    assert isinstance(score, Polynomial)
    assert_close(attend(spec, **tensors, form=form), polynomial_truth(score, tensors))


LINES = {
    "±1e4": [1e4, -1e4, 0.0, 5000.0, -2500.0],
    "±35": [35.0, -35.0, 0.0, 17.0, -8.0],
    "all about −20": [-20.0, -21.0, -19.0, -22.0, -18.5],
    "all about −35": [-35.0, -34.0, -36.0, -35.5],
}


@quiet
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("scores", LINES.values(), ids=LINES)
@pytest.mark.parametrize("form", ["parallel", "blockwise", "recurrent"])
@pytest.mark.parametrize("name", ["softmax_taylor_80terms", "taylor_80", "taylor_20", "taylor_2"])
def test_chosen_scores(name, form, scores, dtype):
    tensors = line(scores, 4, dtype)
    spec = VARIANTS[name]
    score = spec.score
    assert isinstance(score, Polynomial)
    with mpmath.workdps(400):
        x, coefficients = exact_scores(tensors)[0, 0], exact_coefficients(score)
        truth = exact_rows(coefficients, x, tensors["v"][0, 0].double())
    assert_close(attend(spec, **tensors, form=form)[0, 0], truth)


@quiet
@pytest.mark.usefixtures("many_chunks")
@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("size", [0.5, 5.0, 1e4])
@pytest.mark.parametrize("form", [None, "blockwise", "recurrent"])
def test_eighty_terms_in_few_dimensions(dim, size, form):
    spec = VARIANTS["softmax_taylor_80terms"]
    q, k, v = (seeded(1, 2, 20, dim, seed=n) for n in range(3))
    truth = attend(spec, q * size, k, v, form="parallel")
    assert_close(attend(spec, q * size, k, v, form=form), truth)


@quiet
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("form", ["parallel", "blockwise", "recurrent"])
def test_huge_vectors_that_are_almost_orthogonal_have_moderate_scores(form, dtype):
    """|q||k| = 1e12 while |q·k| is about 20: the bound of the row is far from its scores."""
    spec = VARIANTS["taylor_80"]
    scores = [-20.0, -21.0, -19.0, -22.0, -18.5]
    plain = line(scores, 4, torch.float64)
    q, k = plain["q"].clone(), plain["k"].clone()
    q[..., 1], k[..., 2] = 2.0**20, 2.0**20
    tensors = {"q": q.to(dtype), "k": k.to(dtype), "v": plain["v"].to(dtype)}
    truth = attend(spec, **plain, form="parallel")
    assert_close(attend(spec, **tensors, form=form), truth)


@quiet
@pytest.mark.parametrize("exponent", [10, 40, 70])
@pytest.mark.parametrize(("name", "form"), every_form(["taylor_2", "taylor_4", "power_2", "linear_relu", "softmax"]))
def test_what_queries_lose_keys_may_gain(name, form, exponent):
    """q/2^n and 2^n·k have the same scores, digit by digit."""
    spec = VARIANTS[name]
    tensors = inputs(spec, torch.float32)
    expected = attend(spec, **tensors, form=form)
    factor = 2.0**exponent
    moved = tensors | {"q": tensors["q"] / factor, "k": tensors["k"] * factor}
    assert_close(attend(spec, **moved, form=form), expected)
    back = tensors | {"q": tensors["q"] * factor, "k": tensors["k"] / factor}
    assert_close(attend(spec, **back, form=form), expected)
