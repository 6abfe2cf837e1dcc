"""What a spec says about itself: signs, parts that cancel, names that are the same function.

The rule behind most of it: a positive factor that is the same for a whole row (a gate, a length, the softmax
denominator itself) has no effect before a norm that is invariant to scale. L2 is, exactly; RMS and
LayerNorm are up to their eps, so they keep the factor and only the explanation mentions it.
"""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cache
from math import comb, prod

from softmax_rnn.attention.parts import LayerNorm, Part, Polynomial, RMSNorm, RowSum
from softmax_rnn.attention.parts.base import axes_shape
from softmax_rnn.attention.spec import AttentionSpec, check_spec
from softmax_rnn.attention.variants import VARIANTS


@cache
def can_be_negative(spec: AttentionSpec) -> bool:
    """Whether some weight f(x) can be below 0, so that a row sum may vanish or change its sign.

    >>> can_be_negative(VARIANTS["taylor_3"]), can_be_negative(VARIANTS["taylor_2"])
    (True, False)
    """
    score = spec.score
    lowest = None if spec.feature_map is None else spec.feature_map.lowest_product
    return score.can_be_negative(lowest * (score.scale or 1.0) if lowest else lowest)


def is_scale_invariant(spec: AttentionSpec) -> bool:
    """Whether the output norm undoes any positive factor of a row, exactly; what a skip adds does not have it."""
    return spec.output_norm is not None and spec.output_norm.scale_invariant and spec.skip is None


def is_positive_row_factor(spec: AttentionSpec) -> bool:
    """Whether the normaliser divides each row by one positive number."""
    if spec.over_time.divides_apart:
        return False
    return spec.normaliser is not None and spec.normaliser.is_positive_factor(can_be_negative(spec))


def simplify(spec: AttentionSpec) -> AttentionSpec:
    """The shortest spec that is the same function, values and gradients (gates are positive: they are sigmoids).

    >>> simplify(VARIANTS["gated_softmax_out_gate_L2norm_nodivS_noclamp"]) == VARIANTS[
    ...     "gated_softmax_no_gate_L2norm_nodivS_noclamp"]
    True
    """
    check_spec(spec)
    if is_scale_invariant(spec):
        if is_positive_row_factor(spec):
            spec = replace(spec, normaliser=None)
        if _gates_rows_before_norm(spec):
            spec = replace(spec, output_gate=None)
    score = spec.score
    highest = None if spec.feature_map is None else spec.feature_map.highest_product
    if highest is not None and score.clamp is not None and score.clamp >= highest * (score.scale or 1.0):
        spec = replace(spec, score=replace(score, clamp=None))  # as a cosine, which is at most 1
    return _drop_constant_factor(spec)


def _gates_rows_before_norm(spec: AttentionSpec) -> bool:
    """Whether the output gate is a positive factor of the row that the norm sees."""
    gate = spec.output_gate
    return gate is not None and gate.is_row_factor and not gate.after_norm


def _drop_constant_factor(spec: AttentionSpec) -> AttentionSpec:
    """c·(scale·x)^n has the constant factor c·scale^n, which a ratio or a scale-invariant norm removes."""
    score = spec.polynomial
    if score is None or len(score.orders) > 1 or spec.write_rule is not None or spec.over_time.beside_exp:
        return spec
    constant = score.coefficients[-1]
    ratio = isinstance(spec.normaliser, RowSum) and spec.normaliser.is_ratio
    if not ratio and not (is_scale_invariant(spec) and spec.normaliser is None and constant > 0):
        return spec
    coefficients = (*score.coefficients[:-1], 1.0)
    return replace(spec, score=replace(score, coefficients=coefficients, scale=1.0))


def _function(spec: AttentionSpec) -> AttentionSpec:
    """Simplified, without what only the model around the attention reads."""
    spec = simplify(spec)
    return replace(spec, forget_gate=spec.forget_gate.bare()) if spec.forget_gate else spec


def same_function(a: AttentionSpec, b: AttentionSpec) -> bool:
    """Whether two specs give the same outputs and gradients for all inputs.

    >>> same_function(VARIANTS["softmax_divs"], VARIANTS["gated_softmax_no_gate_no_norm"])
    True
    >>> same_function(VARIANTS["softmax"], VARIANTS["softmax_divs"])
    False
    """
    check_spec(a)
    check_spec(b)
    return _function(a) == _function(b)


def same_names(spec: AttentionSpec) -> list[str]:
    """The names in the table that are this function."""
    return [name for name in VARIANTS if same_function(spec, VARIANTS[name])]


def diff(a: AttentionSpec, b: AttentionSpec) -> dict[str, tuple[Part | None, Part | None]]:
    """The parts in which two specs differ: name → (part of a, part of b).

    >>> list(diff(VARIANTS["softmax"], VARIANTS["softmax_divs"]))
    ['score', 'normaliser']
    """
    check_spec(a)
    check_spec(b)
    pairs = {field.name: (getattr(a, field.name), getattr(b, field.name)) for field in fields(AttentionSpec)}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def cancellations(spec: AttentionSpec) -> list[str]:
    """Which parts have no effect, and which have almost none, as sentences."""
    said = []
    for name, (before, after) in diff(spec, simplify(spec)).items():
        if after is None:
            said.append(f"the {_words(name)} cancels: a positive factor of the row, and L2 ignores it")
        elif before is not None and getattr(before, "clamp", None) != getattr(after, "clamp", None):
            said.append("the clamp is never reached: a cosine is at most 1")
        else:
            said.append("the scale of the score cancels: a constant factor of all weights")
    if isinstance(spec.output_norm, (RMSNorm, LayerNorm)) and not getattr(spec.output_norm, "across_heads", False):
        norm, eps = _words(spec.output_norm.kind), spec.output_norm.eps
        if is_positive_row_factor(spec) and spec.skip is None:
            said.append(f"the normaliser cancels up to the eps ({eps:g}) of the {norm} norm; it is kept")
        if _gates_rows_before_norm(spec):
            said.append(f"the output gate cancels up to the eps ({eps:g}) of the {norm} norm; it is kept")
    factor_cancels = spec.normaliser is None or is_positive_row_factor(spec)
    if spec.score.is_exponential and spec.score.ceiling is None and is_scale_invariant(spec) and factor_cancels:
        said.append("the size of a row has no effect after the L2 norm, so exp needs no clamp")
    return said


def _words(name: str) -> str:
    return name.replace("_", " ")


def n_features(score: Polynomial, key_dim: int) -> int:
    """The number of distinct monomials of the score's orders: Σ_n C(d+n−1, n), n over `score.orders`.

    >>> n_features(VARIANTS["taylor_2"].score, 64)
    2145
    """
    return sum(comb(key_dim + n - 1, n) for n in score.orders)


MAX_STATE_FEATURES = 2**16
"""More features than this make a state that no context is long enough for (order 3 at d = 64 has 47,905)."""


MAX_STATE_DEGREE = 12
"""A sum over features of higher degree cancels: its terms are (|q||k|)^n, its value may be near 0."""


def fixed_state_score(spec: AttentionSpec, key_dim: int) -> Polynomial | None:
    """The polynomial whose features make a state of fixed size, or None: then keys and values are kept.

    >>> fixed_state_score(VARIANTS["taylor_2"], 64) is not None, fixed_state_score(VARIANTS["softmax"], 64)
    (True, None)
    """
    score = None if spec.over_time.hides_the_rest else spec.polynomial
    if score is None or score.degree > MAX_STATE_DEGREE or n_features(score, spec.width(key_dim)) > MAX_STATE_FEATURES:
        return None
    return score


def has_wide_sums(spec: AttentionSpec) -> bool:
    """Whether the sums of a state of fixed size are float64, whatever the inputs are."""
    return spec.score.needs_wide_state or spec.over_time.wide_sums


def state_numbers(spec: AttentionSpec, key_dim: int, value_dim: int) -> int | None:
    """How many numbers a head's decoding state holds, with levels at most; None when it grows with the context."""
    structure, features = spec.over_time, spec.width(key_dim)
    if structure.hides_the_rest:
        return structure.kept_numbers(features, value_dim)
    if fixed_state_score(spec, key_dim) is None and not structure.step_by_step:
        return None
    sums = max(structure.levels - 1, 1) * _sum_numbers(spec, key_dim, value_dim)
    sizes = {"H": 1, "K": 1, "D": key_dim, "E": value_dim, "F": features}
    carried = (axes_shape(one.running_axes, sizes) for one in spec.running_parts)
    kept = structure.kept_numbers(key_dim + (features if spec.feature_map else 0), value_dim)
    return sums + kept + sum(map(prod, carried))


def state_numbers_after(spec: AttentionSpec, key_dim: int, value_dim: int, tokens: int) -> int:
    """How many numbers a head's decoding state holds after so many tokens; with levels, at most on the way there.

    >>> [state_numbers_after(VARIANTS["softmax"], 64, 64, tokens) for tokens in (16, 1024)]
    [2048, 131072]
    """
    structure, numbers = spec.over_time, state_numbers(spec, key_dim, value_dim)
    growing = tokens // (structure.chunk or 1) * (spec.width(key_dim) + value_dim)
    if numbers is None:
        return growing
    if structure.levels:
        empty = max(structure.levels - 1 - tokens.bit_length(), 0)
        return numbers - empty * _sum_numbers(spec, key_dim, value_dim)
    return min(numbers, growing) if structure.hides_the_rest else numbers


def state_bytes_after(spec: AttentionSpec, key_dim: int, value_dim: int, tokens: int) -> int:
    """The bytes of these numbers for inputs of float32: 4 each, and 8 in sums that need float64.

    >>> [state_bytes_after(VARIANTS[name], 64, 64, 1024) for name in ("softmax", "taylor_2", "elu_power_2")]
    [524288, 557700, 1081600]
    """
    extra = 0
    if has_wide_sums(spec):
        levels = spec.over_time.levels
        extra = (min(levels - 1, tokens.bit_length()) if levels else 1) * _sum_numbers(spec, key_dim, value_dim)
    return 4 * (state_numbers_after(spec, key_dim, value_dim, tokens) + extra)


def _sum_numbers(spec: AttentionSpec, key_dim: int, value_dim: int) -> int:
    """The numbers of one matrix of sums; 0 where there is none."""
    score = fixed_state_score(spec, key_dim)
    return 0 if score is None else n_features(score, spec.width(key_dim)) * (value_dim + spec.wants_row_sum)
