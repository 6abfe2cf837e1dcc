"""The planner: exact always, refuses with reasons, and no form holds what it promises not to hold."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from attention.cases import MASKS, D, E, T, allowed_forms, attention, fresh_state, inputs
from attention.compare import run
from softmax_rnn.attention import execute, fitting, visibility
from softmax_rnn.attention import plan as plan_module
from softmax_rnn.attention.algebra import n_features
from softmax_rnn.attention.attend import attend, extend
from softmax_rnn.attention.forms.chunked import FEW_FEATURES, chunk_length
from softmax_rnn.attention.parts import Exp, Polynomial, RowSum, taylor_score
from softmax_rnn.attention.plan import FORMS, Situation, choose
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import InputError, UnknownNameError

pytestmark = pytest.mark.filterwarnings("ignore::softmax_rnn.attention.nonpositive.NonPositiveWarning")


class Stub:
    """A form with a fixed cost."""

    def __init__(self, cost: float, refusal: str | None = None) -> None:
        self.price, self.refusal, self.reason = cost, refusal, f"costs {cost:g}"

    def refuse(self, spec, situation) -> str | None:
        return self.refusal

    def cost(self, spec, situation) -> float:
        assert self.refusal is None, "the cost of a form that refuses means nothing"
        return self.price


def test_the_cheapest_form_that_can_serve_is_taken_and_the_others_have_reasons(monkeypatch):
    forms = {"slow": Stub(50), "fast": Stub(20), "free": Stub(0, "not on Sundays"), "slower": Stub(70)}
    monkeypatch.setattr(plan_module, "FORMS", forms)
    plan = choose(VARIANTS["softmax"])
    assert (plan.form, plan.reason) == ("fast", "costs 20")
    assert plan.others == {
        "slow": "would take about 2.5 × the time",
        "free": "not on Sundays",
        "slower": "would take about 3.5 × the time",
    }
    with pytest.raises(
        InputError, match=r"form: 'free' .*not on Sundays.*slow: can compute it; fast: can compute it; free: not"
    ):
        choose(VARIANTS["softmax"], form="free")


CLASSES = ["softmax", "gated_softmax_decay", "linear_elu", "taylor_2", "gated_relu_no_in_gate_no_norm"]


@pytest.mark.parametrize("form", FORMS)
def test_more_work_never_costs_less(form):
    base = Situation(queries=512, keys=512, device="cuda" if form == "triton" else "cpu")
    more = {
        "positions": replace(base, queries=1024, keys=1024),
        "heads": replace(base, heads=32, kv_heads=32),
        "batch": replace(base, batch=2),
        "a backward pass": replace(base, needs_grad=True),
        "wider values": replace(base, value_dim=128),
    }
    served = [VARIANTS[name] for name in CLASSES if FORMS[form].refuse(VARIANTS[name], base) is None]
    assert served
    for spec in served:
        for what, situation in more.items():
            assert FORMS[form].cost(spec, situation) > FORMS[form].cost(spec, base) > 0, what


def test_after_a_fixed_state_only_forms_without_keys_serve():
    past = Situation(queries=10, keys=10, has_fixed_past=True)
    serving = {name for name, form in FORMS.items() if form.refuse(VARIANTS["taylor_2"], past) is None}
    assert serving == {"chunked", "recurrent"}
    assert choose(VARIANTS["taylor_2"], replace(past, queries=1, keys=1)).form == "recurrent"


def test_packed_rows_cost_the_pairs_they_have():
    packed = Situation(batch=4, pairs=10_000)
    for form in ("fused", "blockwise"):
        assert FORMS[form].cost(VARIANTS["softmax"], packed) < FORMS[form].cost(VARIANTS["softmax"], Situation(batch=4))


def test_planning_and_explaining_need_no_torch():
    code = (
        "import sys; from softmax_rnn.attention.explain import explain;"
        "from softmax_rnn.attention.variants import VARIANTS;"
        "[str(explain(VARIANTS[name])) for name in ('softmax', 'taylor_3', 'gated_softmax_decay')];"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ---- what is known once is computed once


def counted(monkeypatch, owner, name: str) -> list[None]:
    """A list that grows with every call of the function."""
    calls, function = [], getattr(owner, name)

    def counting(*args, **kwargs):
        calls.append(None)
        return function(*args, **kwargs)

    monkeypatch.setattr(owner, name, counting)
    return calls


@pytest.mark.parametrize("time", [20, 3000], ids=["at once", "in spans"])
def test_the_form_is_chosen_once_per_call(monkeypatch, time):
    calls = counted(monkeypatch, execute, "choose")
    spec = VARIANTS["linear_elu"]
    with torch.no_grad():
        attend(spec, **inputs(spec, torch.float32, time=time, batch=1))
    assert len(calls) == 1


def test_packed_rows_are_cut_once_per_call(monkeypatch):
    calls = counted(monkeypatch, visibility, "Piece")
    spec, mask = VARIANTS["softmax"], MASKS["packed"](T)
    attend(spec, **inputs(spec), **mask, form="fused")
    assert len(calls) == 5  # two documents in one row, three in the other


@pytest.mark.parametrize(("name", "reads"), [("softmax", 0), ("linear_elu", 0), ("taylor_2", 1), ("taylor_4", 1)])
def test_the_largest_key_is_looked_for_only_by_scores_that_read_it(monkeypatch, name, reads):
    calls = counted(monkeypatch, fitting, "largest_norm")
    spec = VARIANTS[name]
    tensors = inputs(spec, time=3)
    for form in ("parallel", "recurrent"):
        calls.clear()
        extend(spec, **tensors, state=fresh_state(spec, tensors), form=form)
        assert len(calls) == reads


REFUSALS = [
    ("softmax", "chunked", {}, "infinitely many orders"),
    ("gated_relu_no_in_gate_no_norm", "chunked", {}, "a clamped score is not a polynomial"),
    ("taylor_4", "chunked", {"key_dim": 64}, "more than 65,536 features"),
    ("taylor_2", "fused", {}, "its score is not exp"),
    ("softmax_clamp_denom", "fused", {}, "its exp is clamped"),
    ("forgetting_transformer", "fused", {}, "the forget gate would need a T × T bias"),
    ("softmax_divs", "fused", {}, "neither a plain row sum nor a scale-invariant norm"),
    ("softmax", "fused", {"holes": True}, "padding lies between real keys"),
    ("softmax", "fused", {"queries": 5, "keys": 9}, "queries that continue a past need a mask"),
    ("taylor_2", "parallel", {"has_fixed_past": True}, "its keys are gone"),
    ("taylor_2", "blockwise", {"has_fixed_past": True}, "its keys are gone"),
]


@pytest.mark.parametrize(("name", "form", "situation", "reason"), REFUSALS, ids=[r[3] for r in REFUSALS])
def test_a_forced_form_that_cannot_serve_names_the_reason_of_every_form(name, form, situation, reason):
    with pytest.raises(InputError, match=f"form: '{form}' cannot compute") as raised:
        choose(VARIANTS[name], Situation(**situation), form)
    text = str(raised.value)
    assert reason in text
    assert f"{form}: {reason}" in text or reason in text.partition(f" {form}: ")[2]
    assert "recurrent: can compute it" in text
    assert all(f"{other}: " in text for other in FORMS)


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


TIME = 1536
HEADS = 2


def memory_inputs(spec: AttentionSpec) -> dict[str, torch.Tensor]:
    return inputs(spec, torch.float32, time=TIME, batch=1, heads=HEADS)


def traced(spec: AttentionSpec, form: str) -> tuple[int, int]:
    """The largest tensor made, and the numbers saved for the backward pass."""
    saved = []

    def keep(x: torch.Tensor) -> torch.Tensor:
        saved.append(x.numel())
        return x

    with LargestTensor() as largest, torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        run(attention(spec, form=form), memory_inputs(spec))
    return largest.numbers, sum(saved)


@pytest.mark.parametrize("name", ["gated_softmax_decay", "taylor_2"])
def test_blockwise_never_holds_all_weights(name):
    largest, saved = traced(VARIANTS[name], "blockwise")
    assert largest < HEADS * TIME * TIME / 4
    assert saved < 40 * HEADS * TIME * (D + E)


@pytest.mark.parametrize("name", ["linear_elu", "taylor_2", "power_attention_2"])
def test_chunked_holds_neither_all_weights_nor_all_states(name):
    spec = VARIANTS[name]
    score = spec.score
    assert isinstance(score, Polynomial)
    largest, saved = traced(spec, "chunked")
    assert largest < HEADS * TIME * TIME / 4
    features = n_features(score, D)
    together = chunk_length(features) if features <= FEW_FEATURES else 0  # weights inside chunks made in one call
    assert largest <= HEADS * TIME * max(features * E / 2, together)
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
