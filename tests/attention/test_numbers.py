"""Numbers that break others: huge scores, equal keys, zeros, padding full of NaN, halves, squares out of range."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import mpmath
import pytest
import torch
from torch import Tensor

from attention.cases import HKV, NAMES, TIMED, B, D, E, H, allowed_forms, attention, end_mask, inputs, step_by_step
from attention.compare import DTYPES, WEIGHT_SEED, Result, assert_close, assert_same, errors, run, seeded
from softmax_rnn.attention.attend import attend
from softmax_rnn.attention.forms import chunked
from softmax_rnn.attention.nonpositive import NonPositiveError, NonPositiveWarning
from softmax_rnn.attention.plan import FORMS
from softmax_rnn.attention.spec import AttentionSpec, Exp, Polynomial, RowSum, power_score, taylor_score
from softmax_rnn.attention.variants import VARIANTS

quiet = pytest.mark.filterwarnings("ignore::softmax_rnn.attention.nonpositive.NonPositiveWarning")
TIME = 9


def cases(names: list[str] = NAMES, **where) -> list[tuple[str, str]]:
    return [(name, form) for name in names for form in allowed_forms(VARIANTS[name], **where)]


def whole_numbers(*shape: int, seed: int, largest: int) -> Tensor:
    """Their dot products are exact in float32 as well, however large."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-largest, largest + 1, shape, generator=generator).double()


def huge_inputs(spec: AttentionSpec, dtype: torch.dtype, largest: int) -> dict[str, Tensor]:
    """D = 4, so that 1/√d = ½: scores of whole numbers are exact; up to 2 · largest² in size."""
    tensors = inputs(spec, time=TIME)
    tensors["q"] = whole_numbers(B, H, TIME, 4, seed=0, largest=largest)
    tensors["k"] = whole_numbers(B, HKV, TIME, 4, seed=1, largest=largest)
    return {name: x.to(dtype) for name, x in tensors.items()}


def exact_scores(tensors: dict[str, Tensor]) -> Tensor:
    q, k = tensors["q"].double(), tensors["k"].double()
    return q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT * q.shape[-1] ** -0.5


# ---- exp at ±1e4: the float64 softmax of exact scores

EXP_TRUTHS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "softmax": lambda p, v: p @ v,
    "gated_softmax_no_gate_L2norm_nodivS_noclamp": lambda p, v: torch.nn.functional.normalize(p @ v, dim=-1, eps=0.0),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("name", "form"), cases(list(EXP_TRUTHS)))
def test_exp_of_huge_scores(name, form, dtype):
    spec = VARIANTS[name]
    tensors = huge_inputs(spec, dtype, 100)
    scores = exact_scores(tensors)
    assert scores.abs().max() > 1e4
    probability = scores.masked_fill(~torch.ones(TIME, TIME).tril().bool(), -torch.inf).softmax(-1)
    truth = EXP_TRUTHS[name](probability, tensors["v"].double().repeat_interleave(H // HKV, 1))
    assert_close(attend(spec, **tensors, form=form), truth)


@quiet
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("name", "form"), cases(key_dim=4))
def test_huge_scores_give_finite_outputs_and_gradients(name, form, dtype):
    spec = VARIANTS[name]
    got = run(attention(spec, form=form), huge_inputs(spec, dtype, 100))
    assert bool(got.output.isfinite().all())
    assert all(bool(g.isfinite().all()) for g in got.grads.values())


@quiet
@pytest.mark.parametrize(("name", "form"), [case for case in cases(key_dim=4) if case[1] != "parallel"])
def test_forms_agree_on_huge_scores(name, form):
    spec = VARIANTS[name]
    tensors = huge_inputs(spec, torch.float64, 100)
    truth = run(attention(spec, form="parallel"), tensors)
    assert_same(run(attention(spec, form=form), tensors), truth, torch.float64)


@quiet
@pytest.mark.parametrize("name", NAMES)
def test_steps_agree_on_huge_scores(name):
    spec = VARIANTS[name]
    tensors = huge_inputs(spec, torch.float64, 100)
    truth = attend(spec, **tensors, form="parallel")
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
@pytest.mark.parametrize(("name", "form"), cases(POLYNOMIALS, key_dim=4))
def test_polynomials_of_any_score(name, form, largest, dtype):
    spec = VARIANTS[name]
    tensors = one_head(huge_inputs(spec, dtype, largest))
    score = spec.score
    assert isinstance(score, Polynomial)
    assert_close(attend(spec, **tensors, form=form), polynomial_truth(score, tensors))


def line(scores: list[float], dim: int, dtype: torch.dtype) -> dict[str, Tensor]:
    """A last query whose scores are given, with d = 1 or 4 (both have an exact 1/√d)."""
    k = torch.zeros(1, 1, len(scores), dim, dtype=torch.float64)
    k[0, 0, :, 0] = torch.tensor(scores, dtype=torch.float64) * dim**0.5
    q = torch.zeros_like(k)
    q[..., 0] = 1.0
    return {"q": q.to(dtype), "k": k.to(dtype), "v": seeded(1, 1, len(scores), 3, seed=5).to(dtype)}


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


@pytest.fixture
def many_chunks(monkeypatch):
    """Chunks of 4 positions: nearly all keys are seen through the state."""
    monkeypatch.setattr(chunked._Setting, "chunk", property(lambda setting: min(4, setting.time)))


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
@pytest.mark.parametrize(("name", "form"), cases(["taylor_2", "taylor_4", "power_2", "linear_relu", "softmax"]))
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


# ---- degenerate inputs


def lean_on_key(spec, tensors):
    """For pure powers above 2, no query almost orthogonal to the one key: the stated limit of a state of features is
    an error of ε (|q||k| / |q·k|)^n, which has no bound there."""
    score = spec.polynomial
    if score is not None and score.orders[0] > 2:
        key = tensors["k"][:, :, :1].repeat_interleave(tensors["q"].shape[1] // tensors["k"].shape[1], 1)
        tensors["q"] = tensors["q"] / 4 + key


@quiet
@pytest.mark.parametrize(("name", "form"), cases())
def test_all_keys_equal(name, form):
    spec = VARIANTS[name]
    tensors = inputs(spec, time=TIME)
    tensors["k"] = tensors["k"][:, :, :1].expand(-1, -1, TIME, -1).contiguous()
    lean_on_key(spec, tensors)
    truth = run(attention(spec, form="parallel"), tensors)
    assert bool(truth.output.isfinite().all())
    assert_same(run(attention(spec, form=form), tensors), truth, torch.float64)


WITH_FEATURES = [name for name in NAMES if "chunked" in allowed_forms(VARIANTS[name])]


@quiet
@pytest.mark.usefixtures("many_chunks")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("form", ["chunked", "recurrent"])
@pytest.mark.parametrize("name", [name for name in WITH_FEATURES if name != "taylor_1"])  # 1 + x itself may be near 0
def test_equal_keys_in_a_state(name, form, dtype):
    """|q·k|^n is smaller than the products that make it."""
    spec = VARIANTS[name]
    tensors = inputs(spec)
    tensors["k"] = tensors["k"][:, :, :1].float().double().expand_as(tensors["k"]).contiguous()
    lean_on_key(spec, tensors)
    truth = attend(spec, **{n: x.to(dtype).double() for n, x in tensors.items()}, form="parallel")
    assert_close(attend(spec, **{n: x.to(dtype) for n, x in tensors.items()}, form=form), truth)


@quiet
@pytest.mark.usefixtures("many_chunks")
@pytest.mark.parametrize("form", ["chunked", "recurrent"])
@pytest.mark.parametrize("name", ["taylor_2", "taylor_4", "taylor_6", "power_2", "power_4"])
def test_similar_keys_in_a_float32_state(name, form):
    spec = VARIANTS[name]
    tensors = inputs(spec, torch.float32)
    tensors["k"] = tensors["k"][:, :, :1] + 0.1 * tensors["k"]
    tensors["q"] = 4 * tensors["q"]
    truth = attend(spec, **{n: x.double() for n, x in tensors.items()}, form="parallel")
    assert_close(attend(spec, **tensors, form=form), truth)


@pytest.mark.parametrize("form", FORMS)
def test_equal_keys_average_the_values(form):
    spec = VARIANTS["softmax"]
    if form == "chunked":
        spec = VARIANTS["taylor_2"]
    tensors = inputs(spec, time=TIME)
    tensors["k"] = torch.ones_like(tensors["k"])
    means = tensors["v"].cumsum(2) / torch.arange(1, TIME + 1)[:, None]
    assert_close(attend(spec, **tensors, form=form), means.repeat_interleave(H // HKV, 1))


@quiet
@pytest.mark.parametrize("zero", ["q", "k", "v", "qkv"])
@pytest.mark.parametrize(("name", "form"), cases())
def test_zero_vectors(name, form, zero):
    spec = VARIANTS[name]
    tensors = inputs(spec, time=TIME)
    for which in zero:
        tensors[which] = torch.zeros_like(tensors[which])
    truth = run(attention(spec, form="parallel"), tensors)
    got = run(attention(spec, form=form), tensors)
    assert all(bool(x.isfinite().all()) for x in (got.output, *got.grads.values()))
    assert bool(((got.output - truth.output).abs() <= 1e-10 * (1 + truth.output.abs())).all())


@pytest.mark.parametrize(("name", "form"), cases(["softmax", "forgetting_transformer", "taylor_2", "linear_elu"]))
def test_one_token_sees_itself(name, form):
    spec = VARIANTS[name]
    tensors = inputs(spec, time=1)
    assert_close(attend(spec, **tensors, form=form), tensors["v"].repeat_interleave(H // HKV, 1))


@quiet
@pytest.mark.parametrize(("name", "form"), cases())
def test_one_token_in_every_form(name, form):
    spec = VARIANTS[name]
    tensors = inputs(spec, time=1)
    truth = run(attention(spec, form="parallel"), tensors)
    assert_same(run(attention(spec, form=form), tensors), truth, torch.float64)


# ---- padding

SEEN = end_mask(TIME)


def poisoned(tensors: dict[str, Tensor], value: float) -> dict[str, Tensor]:
    """Whatever stands at padding is this value."""
    found = {}
    for name, x in tensors.items():
        here = SEEN[:, None, :, None] if x.dim() == 4 else SEEN[:, None]
        found[name] = torch.where(here, x, value) if name in TIMED else x
    return found


def masked_result(result: Result) -> Result:
    """Zeros at padding, whatever stands there."""
    real = SEEN[:, None, :, None]
    grads = {
        name: torch.where(real if g.dim() == 4 else SEEN[:, None], g, 0) if name in TIMED else g
        for name, g in result.grads.items()
    }
    return Result(torch.where(real, result.output, 0), grads)


POISONS = [float("nan"), float("inf")]


@quiet
@pytest.mark.parametrize("poison", POISONS, ids=str)
@pytest.mark.parametrize(("name", "form"), cases())
def test_outputs_do_not_see_what_stands_at_padding(name, form, poison):
    spec = VARIANTS[name]
    tensors = inputs(spec, time=TIME)
    clean = attend(spec, **tensors, form=form, key_mask=SEEN)
    got = attend(spec, **poisoned(tensors, poison), form=form, key_mask=SEEN)
    real = SEEN[:, None, :, None]
    assert_close(torch.where(real, got, 0), torch.where(real, clean, 0))


@quiet
@pytest.mark.parametrize("poison", POISONS, ids=str)
@pytest.mark.parametrize(("name", "form"), cases())
def test_gradients_do_not_see_what_stands_at_padding(name, form, poison):
    spec = VARIANTS[name]
    tensors = inputs(spec, time=TIME)
    # A loss looks at real positions only.
    weight = seeded(B, H, TIME, E, seed=WEIGHT_SEED) * SEEN[:, None, :, None]

    def real_output(**given: Tensor) -> Tensor:
        return torch.where(SEEN[:, None, :, None], attend(spec, **given, form=form, key_mask=SEEN), 0)

    clean = run(real_output, tensors, weight)
    got = run(real_output, poisoned(tensors, poison), weight)
    assert_same(masked_result(got), masked_result(clean), torch.float64)


@quiet
@pytest.mark.parametrize(("name", "form"), cases())
def test_a_row_that_sees_no_key_is_exactly_zero_with_finite_gradients(name, form):
    spec = VARIANTS[name]
    got = run(attention(spec, form=form), inputs(spec, time=TIME), key_mask=SEEN)
    assert bool((got.output[0] == 0).all())
    assert bool((got.output[1, :, : int(SEEN[1].long().argmax())] == 0).all())
    assert all(bool(g.isfinite().all()) for g in got.grads.values())
    assert all(bool((got.grads[n][0] == 0).all()) for n in "qkv")


@quiet
@pytest.mark.parametrize("name", NAMES)
def test_nothing_but_padding(name):
    spec = VARIANTS[name]
    nothing = torch.zeros(B, TIME, dtype=torch.bool)
    for form in [None, *allowed_forms(spec)]:
        got = run(attention(spec, form=form), inputs(spec, time=TIME), key_mask=nothing)
        assert bool((got.output == 0).all())
        assert all(bool((g == 0).all()) for g in got.grads.values())


# ---- halves, layouts


@quiet
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("name", "form"), cases())
def test_halves_are_computed_in_float32_and_rounded_once(name, form, dtype):
    spec = VARIANTS[name]
    tensors = inputs(spec, dtype, time=TIME)
    got = run(attention(spec, form=form), tensors)
    truth = run(attention(spec, form=form), {n: x.float() for n, x in tensors.items()})
    assert got.output.dtype == dtype
    assert torch.equal(got.output, truth.output.to(dtype))
    assert all(g.dtype == dtype for g in got.grads.values())


@quiet
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_halves_are_float32_gradients_rounded_once(name, dtype):
    spec = VARIANTS[name]
    tensors = inputs(spec, dtype, time=TIME)
    weight = seeded(B, H, TIME, E, seed=WEIGHT_SEED).to(dtype)
    got = run(attention(spec), tensors, weight)
    truth = run(attention(spec), {n: x.float() for n, x in tensors.items()}, weight)
    rounded = Result(truth.output.to(dtype), {n: g.to(dtype) for n, g in truth.grads.items()})
    assert max(errors(got, rounded).values()) <= torch.finfo(dtype).eps


@pytest.mark.parametrize("form", [None, "parallel", "blockwise", "fused", "recurrent"])
def test_autocast_does_not_lower_the_precision_of_the_sums(form):
    spec = VARIANTS["softmax"]
    tensors = inputs(spec, torch.float32, time=TIME)
    expected = attend(spec, **tensors, form=form)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = attend(spec, **tensors, form=form)
        half = attend(spec, **{n: x.bfloat16() for n, x in tensors.items()}, form=form)
    assert got.dtype == torch.float32
    assert torch.equal(got, expected)
    assert half.dtype == torch.bfloat16


@pytest.mark.parametrize(("name", "form"), cases(["softmax", "taylor_2", "power_2", "gated_softmax_decay"]))
def test_autocast_around_the_forward_pass_leaves_gradients_in_float32(name, form):
    spec = VARIANTS[name]
    tensors = inputs(spec, torch.float32, time=TIME)

    def under_autocast(**given: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return attend(spec, **given, form=form)

    expected, got = run(attention(spec, form=form), tensors), run(under_autocast, tensors)
    assert torch.equal(got.output, expected.output)
    assert_same(got, expected, torch.float32)


def scattered(x: Tensor) -> Tensor:
    """The same numbers with gaps and the axes in another order in memory."""
    wide = torch.full((*x.shape[:-1], 2 * x.shape[-1]), torch.nan, dtype=x.dtype)
    wide[..., ::2] = x
    order = list(range(x.dim()))[::-1]
    return wide.permute(order).contiguous().permute(order)[..., ::2]


@quiet
@pytest.mark.parametrize(("name", "form"), cases())
def test_layout_in_memory_does_not_matter(name, form):
    spec = VARIANTS[name]
    tensors = inputs(spec, time=TIME)
    odd = {n: scattered(x) for n, x in tensors.items()}
    assert not any(x.is_contiguous() for x in odd.values() if x.dim() > 1)
    leaves = {n: x.requires_grad_() for n, x in odd.items()}
    out = attend(spec, **leaves, form=form)
    weight = seeded(*out.shape, seed=WEIGHT_SEED)
    grads = torch.autograd.grad((out * weight).sum(), list(leaves.values()))
    got = Result(out.detach(), dict(zip(leaves, grads, strict=True)))
    assert_same(got, run(attention(spec, form=form), tensors), torch.float64)


@quiet
@pytest.mark.parametrize("kv_heads", [1, 4])
@pytest.mark.parametrize(("name", "form"), cases())
def test_shared_heads_equal_repeated_heads(name, form, kv_heads):
    spec = VARIANTS[name]
    tensors = inputs(spec, time=TIME)
    tensors |= {n: seeded(B, kv_heads, TIME, tensors[n].shape[-1], seed=50 + ord(n)) for n in "kv"}
    repeated = tensors | {n: tensors[n].repeat_interleave(H // kv_heads, 1) for n in "kv"}
    got, truth = (run(attention(spec, form=form), given) for given in (tensors, repeated))
    folded = {n: g.unflatten(1, (kv_heads, -1)).sum(2) if n in "kv" else g for n, g in truth.grads.items()}
    assert_same(got, Result(truth.output, folded), torch.float64)


@quiet
@pytest.mark.parametrize("value_dim", [1, D, 3 * D])
@pytest.mark.parametrize(("name", "form"), cases(["softmax", "gated_softmax_no_norm", "taylor_2", "power_attention_2"]))
def test_values_of_any_dimension(name, form, value_dim):
    spec = VARIANTS[name]
    tensors = inputs(spec, time=TIME) | {"v": seeded(B, HKV, TIME, value_dim, seed=77)}
    whole = attend(spec, **tensors, form=form)
    for e in range(value_dim):
        column = attend(spec, **(tensors | {"v": tensors["v"][..., e : e + 1]}), form="parallel")
        assert_close(whole[..., e : e + 1], column)


# ---- norms

L2_NAMES = [name for name in NAMES if "L2norm" in name or "customnorm" in name]


@pytest.mark.parametrize("size", [1e-30, 1e-15, 1e15, 1e30])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("name", "form"), cases(L2_NAMES))
def test_l2_does_not_see_the_size_of_values(name, form, dtype, size):
    spec = VARIANTS[name]
    tensors = inputs(spec, dtype, time=TIME)
    expected = attend(spec, **inputs(spec, time=TIME), form=form)
    got = attend(spec, **(tensors | {"v": (inputs(spec, time=TIME)["v"] * size).to(dtype)}), form=form)
    assert_close(got, expected)


NORMED = [name for name in NAMES if VARIANTS[name].output_norm is not None and name not in L2_NAMES]


@pytest.mark.parametrize("size", [1e-30, 1e-8, 1e8, 1e30])
@pytest.mark.parametrize(("name", "form"), cases(NORMED))
def test_rms_and_layer_norm_in_float32_equal_float64_for_any_size_of_values(name, form, size):
    spec = VARIANTS[name]
    wide = inputs(spec, time=TIME)
    wide["v"] = wide["v"] * size
    narrow = {n: x.float() for n, x in wide.items()}
    assert_close(attend(spec, **narrow, form=form), attend(spec, **wide, form="parallel"))


@pytest.mark.parametrize(("name", "form"), cases(L2_NAMES + NORMED))
def test_norms_of_huge_unclamped_weights(name, form):
    """Scores of 1e4 in front of a norm: the factor e^10000 must not be formed."""
    spec = VARIANTS[name]
    got = attend(spec, **huge_inputs(spec, torch.float32, 100), form=form)
    assert bool(got.isfinite().all())
    if name in L2_NAMES and spec.output_gate is None and isinstance(spec.score, Exp):
        length = got.double().norm(dim=-1)
        expected = float(E) if "customnorm" in name else 1.0
        assert bool(((length - expected).abs() < 1e-5 * expected).all())


# ---- row sums that are not positive


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
