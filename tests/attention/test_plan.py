"""The planner: exact always, refuses with reasons, and no form holds what it promises not to hold."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from attention.cases import NAMES, TIMED, D, E, H, allowed_forms, attention, fresh_state, inputs
from attention.compare import assert_close, run
from softmax_rnn.attention.algebra import n_features
from softmax_rnn.attention.attend import attend, extend
from softmax_rnn.attention.parts import Exp, Polynomial, RowSum, taylor_score
from softmax_rnn.attention.plan import FORMS, Situation, choose
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import InputError, UnknownNameError

pytestmark = pytest.mark.filterwarnings("ignore::softmax_rnn.attention.nonpositive.NonPositiveWarning")

SITUATIONS = {
    "typical": Situation(),
    "tiny": Situation(batch=1, heads=2, kv_heads=2, queries=3, keys=3, key_dim=4, value_dim=4),
    "long": Situation(queries=65536, keys=65536, needs_grad=True),
    "one step": Situation(queries=1, keys=5000),
    "holes": Situation(holes=True),
    "continues keys": Situation(queries=10, keys=100),
    "continues a state": Situation(queries=10, keys=10, has_fixed_past=True),
    "packed": Situation(batch=4, pairs=10_000, needs_grad=True),
}


@pytest.mark.parametrize("situation", SITUATIONS.values(), ids=SITUATIONS)
@pytest.mark.parametrize("name", NAMES)
def test_the_choice_can_serve_and_the_others_have_reasons(name, situation):
    spec = VARIANTS[name]
    plan = choose(spec, situation)
    assert FORMS[plan.form].refuse(spec, situation) is None
    assert plan.reason == FORMS[plan.form].reason
    assert set(plan.others) == set(FORMS) - {plan.form}
    for form, why in plan.others.items():
        refusal = FORMS[form].refuse(spec, situation)
        assert why == refusal if refusal else why.startswith("would take about")


@pytest.mark.parametrize("situation", SITUATIONS.values(), ids=SITUATIONS)
@pytest.mark.parametrize("name", ["softmax", "gated_softmax", "taylor_2", "forgetting_transformer"])
def test_the_choice_is_the_cheapest_of_those_that_can_serve(name, situation):
    spec = VARIANTS[name]
    costs = {n: f.cost(spec, situation) for n, f in FORMS.items() if f.refuse(spec, situation) is None}
    assert all(cost > 0 for cost in costs.values())
    assert costs[choose(spec, situation).form] == min(costs.values())


REFUSALS = [
    ("softmax", "chunked", {}, "infinitely many orders"),
    ("gated_relu_no_in_gate_no_norm", "chunked", {}, "a clamped score is not a polynomial"),
    ("taylor_4", "chunked", {"key_dim": 64}, "more than 65,536 features"),
    ("taylor_2", "fused", {}, "its score is not exp"),
    ("softmax_clamp_denom", "fused", {}, "its exp is clamped"),
    ("forgetting_transformer", "fused", {}, "the forget gate would need a T × T bias"),
    ("softmax_divs", "fused", {}, "neither a plain row sum nor a scale-invariant norm"),
    ("softmax", "fused", {"holes": True}, "padding stands between real keys"),
    ("softmax", "fused", {"queries": 5, "keys": 9}, "queries that continue a past need a mask"),
    ("taylor_2", "parallel", {"has_fixed_past": True}, "its keys are gone"),
    ("taylor_2", "blockwise", {"has_fixed_past": True}, "its keys are gone"),
]


@pytest.mark.parametrize(("name", "form", "situation", "reason"), REFUSALS, ids=[r[3] for r in REFUSALS])
def test_a_forced_form_that_cannot_serve_names_the_reason_of_every_form(name, form, situation, reason):
    with pytest.raises(InputError, match=f"form: '{form}' cannot serve") as raised:
        choose(VARIANTS[name], Situation(**situation), form)
    text = str(raised.value)
    assert reason in text
    for other in FORMS:
        said = FORMS[other].refuse(VARIANTS[name], Situation(**situation)) or "can serve"
        assert f"{other}: {said}" in text


def test_a_forced_form_that_can_serve_is_taken():
    for form in allowed_forms(VARIANTS["softmax"]):
        assert choose(VARIANTS["softmax"], form=form).form == form


def test_unknown_form():
    with pytest.raises(UnknownNameError, match="did you mean 'blockwise'"):
        choose(VARIANTS["softmax"], form="blokwise")


@pytest.mark.parametrize(
    "normaliser", [RowSum(eps=1e-30), RowSum(minimum=1e-30), RowSum(detach=True)], ids=["eps", "minimum", "detach"]
)
def test_fused_never_approximates_a_denominator(normaliser):
    assert FORMS["fused"].refuse(AttentionSpec(normaliser=normaliser), Situation()) is not None
    assert FORMS["fused"].refuse(AttentionSpec(score=Exp(clamp=1e4)), Situation()) is not None


def test_a_taylor_polynomial_is_never_taken_for_exp():
    spec = AttentionSpec(score=taylor_score(20))
    assert FORMS["fused"].refuse(spec, Situation()) is not None
    tensors = inputs(spec)
    tensors["q"] = tensors["q"] * 20
    difference = (attend(spec, **tensors) - attend(AttentionSpec(), **tensors)).abs().max()
    assert difference > 1e-3


def test_long_sequences_get_the_forms_made_for_them():
    long = Situation(queries=65536, keys=65536, needs_grad=True)
    assert choose(VARIANTS["softmax"], long).form == "fused"
    assert choose(VARIANTS["gated_softmax"], long).form == "blockwise"
    assert choose(VARIANTS["forgetting_transformer"], long).form == "blockwise"
    assert choose(VARIANTS["linear_elu"], long).form == "chunked"
    assert choose(VARIANTS["taylor_2"], long).form == "chunked"


@pytest.mark.parametrize("form", ["parallel", "blockwise", "fused"])
def test_extend_refuses_forms_that_need_keys_after_a_fixed_state(form):
    spec = VARIANTS["taylor_2"]
    tensors = inputs(spec, time=3)
    _, state = extend(spec, **tensors, state=fresh_state(spec, tensors))
    with pytest.raises(InputError, match="its keys are gone" if form != "fused" else "its score is not exp"):
        extend(spec, **tensors, state=state, form=form)


# ---- memory


class LargestTensor(TorchDispatchMode):
    """The most numbers of any tensor that an operator made, forward and backward."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        made = [x.numel() for x in tree_leaves(out) if isinstance(x, torch.Tensor)]
        self.numbers = max([self.numbers, *made])
        return out


TIME = 2048
HEADS = 2


def memory_inputs(spec: AttentionSpec) -> dict[str, torch.Tensor]:
    tensors = inputs(spec, torch.float32, time=TIME, batch=1)
    if "length_exponent" in tensors:
        tensors["length_exponent"] = tensors["length_exponent"][:HEADS]
    return {n: x[:, :HEADS] if n in TIMED else x for n, x in tensors.items()}


def traced(spec: AttentionSpec, form: str) -> tuple[int, int]:
    """The largest tensor made, and the numbers saved for the backward pass."""
    saved = []

    def keep(x: torch.Tensor) -> torch.Tensor:
        saved.append(x.numel())
        return x

    with LargestTensor() as largest, torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        run(attention(spec, form=form), memory_inputs(spec))
    return largest.numbers, sum(saved)


@pytest.mark.parametrize("name", ["gated_softmax", "gated_softmax_decay", "softmax_detach_denom", "taylor_2"])
def test_blockwise_never_holds_all_weights(name):
    largest, saved = traced(VARIANTS[name], "blockwise")
    assert largest < HEADS * TIME * TIME / 4
    assert saved < 40 * HEADS * TIME * (D + E)


@pytest.mark.parametrize("name", ["linear_elu", "taylor_2", "power_attention_2", "linear_cosine_by_key"])
def test_chunked_holds_neither_all_weights_nor_all_states(name):
    spec = VARIANTS[name]
    score = spec.score
    assert isinstance(score, Polynomial)
    largest, saved = traced(spec, "chunked")
    assert largest < HEADS * TIME * TIME / 4
    assert largest < HEADS * TIME * n_features(score, D) * E / 2
    assert saved < 40 * HEADS * TIME * (D + E)


def test_the_measure_of_memory_sees_all_weights_in_the_literal_form():
    largest, saved = traced(VARIANTS["gated_softmax"], "parallel")
    assert largest >= HEADS * TIME * TIME
    assert saved >= HEADS * TIME * TIME


def test_memory_of_the_chunked_state_does_not_grow_with_time():
    spec = VARIANTS["taylor_2"]
    sizes = []
    for time in (600, 1200):
        with LargestTensor() as largest:
            run(attention(spec, form="chunked"), inputs(spec, torch.float32, time=time, batch=1))
        sizes.append(largest.numbers / time)
    assert sizes[1] <= sizes[0] + 1


@pytest.mark.parametrize("name", ["softmax", "gated_softmax", "taylor_2"])
def test_forced_forms_agree_at_the_size_of_the_memory_tests(name):
    spec = VARIANTS[name]
    with torch.no_grad():
        outputs = [attend(spec, **memory_inputs(spec), form=form) for form in ("parallel", "blockwise")]
    assert_close(outputs[1], outputs[0])
    assert outputs[0].shape == (1, HEADS, TIME, E)
    assert H > HEADS
