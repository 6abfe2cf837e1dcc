"""The table: all names, their rows against the documented formulas, the families."""

from __future__ import annotations

import pytest

from attention.cases import NAMES
from oracle import ORACLE
from softmax_rnn.attention.formula import formula
from softmax_rnn.attention.parts import Cosine, EluPlusOne, Exp, Relu, RowSum, taylor_coefficients
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.table.taylor import power, taylor
from softmax_rnn.attention.table.variant_table import ADDED, PAPER, TAYLOR, UNDOCUMENTED, Variant, VariantTable
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import InputError, UnknownNameError

# Name → formula as documented. E5 = exp(min(q·k/√d, 5)), E = exp(q·k/√d).
E5, EXP = "w = exp(min(q·k/√d, 5))", "w = exp(q·k/√d)"
DOCUMENTED = {
    "softmax": f"o = Σ w v / Σ w,  {EXP}",
    "softmax_clamp_denom": f"o = Σ w v / max(Σ w, 1),  {E5}",
    "softmax_detach_denom": f"o = Σ w v / stopgrad(max(Σ w, 1)),  {E5}",
    "softmax_detach_denom_gate": f"o = gᵒ · Σ w v / stopgrad(Σ w + 0.0001),  {E5}",
    "softmax_divs": f"o = Σ w v / n,  {E5}",
    "softmax_gate": f"o = gᵒ · Σ w v,  {E5}",
    "softmax_divS_gate": f"o = gᵒ · Σ w v / n,  {E5}",
    "softmax_divS_gatev2": f"o = gᵒ · Σ w v / n,  {E5}",
    "softmax_divS_norm": f"o = RMS(Σ w v / n),  {E5}",
    "softmax_taylor_80terms": "o = Σ w v / Σ w,  w = Σₙ₌₀…79 (q·k/√d)ⁿ/n!",
    "gated_softmax": f"o = LN(gᵒ · Σ w gⁱ v / n),  {E5}",
    "gated_softmax_no_norm": f"o = gᵒ · Σ w gⁱ v / n,  {E5}",
    "gated_softmax_no_in_gate": f"o = LN(gᵒ · Σ w v / n),  {E5}",
    "gated_softmax_no_out_gate": f"o = LN(Σ w gⁱ v / n),  {E5}",
    "gated_softmax_no_out_gate_no_norm": f"o = Σ w gⁱ v / n,  {E5}",
    "gated_softmax_no_in_gate_no_norm": f"o = gᵒ · Σ w v / n,  {E5}",
    "gated_relu_no_in_gate_no_norm": "o = gᵒ · Σ w v / n,  w = min(relu(q)·relu(k)/√d, 5)",
    "gated_softmax_no_gate": f"o = LN(Σ w v / n),  {E5}",
    "gated_softmax_no_gate_rmsnorm": f"o = RMS(Σ w v / n),  {E5}",
    "gated_softmax_no_gate_rmsnorm_nodivS": f"o = RMS(Σ w v),  {E5}",
    "gated_softmax_no_gate_L2norm_nodivS": f"o = L2(Σ w v),  {E5}",
    "gated_softmax_no_gate_L2norm_nodivS_noclamp": f"o = L2(Σ w v),  {EXP}",
    "gated_ReLU_no_gate_L2norm_nodivS_noclamp": "o = L2(Σ w v),  w = relu(q)·relu(k)/√d",
    "gated_softmax_out_gate_L2norm_nodivS_noclamp": f"o = L2(gᵒ · Σ w v),  {EXP}",
    "gated_softmax_post_out_gate_L2norm_nodivS_noclamp": f"o = gᵒ · L2(Σ w v),  {EXP}",
    "gated_softmax_no_gate_no_norm": f"o = Σ w v / n,  {E5}",
    "linear_elu": "o = Σ w v / Σ w,  w = (elu(q)+1)·(elu(k)+1)",
    "linear_relu": "o = Σ w v / (Σ w + 1e-08),  w = relu(q)·relu(k)",
    "linear_cosine": "o = Σ w v / n^σ(c),  w = q/|q|·k/|k|",
}
UNDOCUMENTED_NAMES = {
    "gated_softmax_no_gate_customnorm": f"o = d · L2(Σ w v / n),  {E5}",
    "gated_softmax_cumgate": f"o = Σ w v / max(Σᵣ exp(gᵒᵣ), 1),  {E5}",
    "cumulative_gated_softmax": f"o = Σ w v / (n · Σᵣ exp(gᵒᵣ)),  {E5}",
    "gated_softmax_decay": f"o = LN(gᵒ · Σ w gⁱ v / n),  {E5} · decay,  decay = Π α,  α = exp(r/1024)",
}


def test_all_29_documented_names_and_the_four_others_are_there():
    assert len(DOCUMENTED) == 29
    assert {name for name in NAMES if VARIANTS.row(name).group == PAPER} == set(DOCUMENTED)
    assert {name for name in NAMES if VARIANTS.row(name).group == UNDOCUMENTED} == set(UNDOCUMENTED_NAMES)


@pytest.mark.parametrize("name", ["based", "sata_4", "power_attention_2", "forgetting_transformer", "two_mamba"])
def test_neighbours_are_presets(name):
    row = VARIANTS.row(name)
    assert row.group == TAYLOR
    assert row.note
    assert row.spec == VARIANTS[name]


@pytest.mark.parametrize("name", ORACLE)
def test_every_name_of_the_oracle_is_in_the_table(name):
    assert name in NAMES


@pytest.mark.parametrize(("name", "text"), (DOCUMENTED | UNDOCUMENTED_NAMES).items())
def test_row_writes_the_documented_formula(name, text):
    assert formula(VARIANTS[name]) == text


@pytest.mark.parametrize("order", [0, 1, 3, 80, 120])
def test_taylor_family_takes_any_order(order):
    spec = VARIANTS[f"taylor_{order}"]
    assert spec == taylor(order) == VARIANTS[f"sata_{order}"]
    assert spec.score.coefficients == taylor_coefficients(order)
    assert f"taylor_{order}" in VARIANTS


@pytest.mark.parametrize(
    ("prefix", "feature_map"), [("", None), ("elu_", EluPlusOne()), ("relu_", Relu()), ("cosine_", Cosine())]
)
def test_families_exist_for_every_feature_map(prefix, feature_map):
    for kind, degree in (("taylor", 3), ("power", 5)):
        spec = VARIANTS[f"{prefix}{kind}_{degree}"]
        assert spec.feature_map == feature_map
        assert spec.score.degree == degree
        assert spec.score.is_taylor == (kind == "taylor")


def test_builders_take_any_normaliser():
    assert taylor(2, Relu(), RowSum(eps=1e-3)).normaliser == RowSum(eps=1e-3)
    assert power(1, EluPlusOne()) == VARIANTS["linear_elu"]
    assert power(2).score.scale is None
    assert power(2, Relu()).score.scale == 1.0


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("sofmax", "softmax"),
        ("linear_eluu", "linear_elu"),
        ("Linear_Cosine", "linear_cosine"),
        ("taylorr_2", "taylor_"),
    ],
)
def test_unknown_name_comes_with_the_nearest(name, nearest):
    assert name not in VARIANTS
    with pytest.raises(UnknownNameError, match=f"did you mean '{nearest}"):
        VARIANTS[name]


def test_unknown_name_is_a_key_error_and_a_value_error():
    with pytest.raises(KeyError):
        VARIANTS["zzz"]
    with pytest.raises(ValueError, match="expected one of"):
        VARIANTS["zzz"]
    assert VARIANTS.get("zzz") is None


@pytest.mark.parametrize("name", ["taylor_", "taylor_-1", "taylor_x", "power_2 ", "taylor_1000", ""])
def test_names_that_only_resemble_a_family_are_unknown(name):
    assert name not in VARIANTS


def test_an_order_whose_coefficients_leave_the_number_range_is_refused():
    with pytest.raises(InputError, match="order"):
        VARIANTS["taylor_200"]


def test_the_table_is_read_only():
    with pytest.raises(TypeError):
        VARIANTS["softmax"] = VARIANTS["linear_elu"]
    with pytest.raises(TypeError):
        del VARIANTS["softmax"]


UNDIVIDED = AttentionSpec(normaliser=None)


@pytest.fixture
def table():
    """A small table of its own: what is added here is known nowhere else."""
    families = tuple(family for family in VARIANTS.families if family.name == "taylor_{n}")
    return VariantTable({"softmax": Variant(AttentionSpec(), PAPER)}, families)


def test_an_added_row_is_a_row_like_the_others(table):
    before = list(table)
    table.add("Undivided_2", UNDIVIDED, "softmax without its denominator")
    assert list(table) == [*before, "Undivided_2"]
    assert len(table) == len(before) + 1
    assert "Undivided_2" in table
    assert table["Undivided_2"] == UNDIVIDED
    assert table.row("Undivided_2") == Variant(UNDIVIDED, ADDED, "softmax without its denominator")
    with pytest.raises(UnknownNameError, match="did you mean 'Undivided_2'"):
        table["undividd_2"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("softmax", r"which is already in the table \(paper\)"),
        ("taylor_2", r"belongs to the family taylor_\{n\}"),  # listed
        ("taylor_7", r"belongs to the family taylor_\{n\}"),  # not listed
        ("taylor_999", r"belongs to the family taylor_\{n\}"),  # an order that no spec can have
        ("", "letters, digits and _, a letter first"),
        ("2_mamba", "letters, digits and _, a letter first"),
        ("_hidden", "letters, digits and _, a letter first"),
        ("my attention", "letters, digits and _, a letter first"),
        ("my-attention", "letters, digits and _, a letter first"),
        ("mine\n", "letters, digits and _, a letter first"),
        ("mine_{n}", "letters, digits and _, a letter first"),
        ("a/../b", "letters, digits and _, a letter first"),
        ("größe", "letters, digits and _, a letter first"),
        (7, "letters, digits and _, a letter first"),
    ],
)
def test_a_name_that_cannot_be_added_is_refused_and_nothing_changes(table, name, reason):
    before = {known: table.row(known) for known in table}
    with pytest.raises(InputError, match=f"^name: expected .*{reason}") as raised:
        table.add(name, UNDIVIDED)
    assert "\n" not in str(raised.value)
    assert {known: table.row(known) for known in table} == before


def test_only_a_spec_can_be_added(table):
    with pytest.raises(InputError, match=r"^spec: expected an AttentionSpec, got str"):
        table.add("mine", "softmax")
    assert "mine" not in table


def test_the_same_row_can_be_added_again_and_no_other(table):
    table.add("mine", UNDIVIDED, "first")
    table.add("mine", AttentionSpec(normaliser=None), "again")
    assert table.row("mine") == Variant(UNDIVIDED, ADDED, "again")
    with pytest.raises(InputError, match=r"'mine', which is already in the table \(added\)"):
        table.add("mine", AttentionSpec())
    assert table["mine"] == UNDIVIDED


def test_softmax_is_the_default_spec():
    assert VARIANTS["softmax"].score == Exp()
    assert VARIANTS["softmax"].normaliser == RowSum()
    assert len(VARIANTS) == len(set(VARIANTS)) >= len(NAMES)


def test_every_row_says_where_it_comes_from():
    assert [name for name in VARIANTS if not VARIANTS.row(name).source] == []


def test_every_name_has_a_readable_short_name():
    shown = [VARIANTS.short(name) for name in NAMES]
    assert len(set(shown)) == len(shown)
    assert max(map(len, shown)) <= 24
    for name, short in zip(NAMES, shown, strict=True):
        assert short in VARIANTS and VARIANTS[short] == VARIANTS[name]
