"""Take it apart: every row of the table through the menus and back, in Python, JSON and mathematics."""

from xml.etree import ElementTree

import pytest

from softmax_rnn.attention.formula import formula
from softmax_rnn.attention.parts import Part
from softmax_rnn.attention.python_text import python_text
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import InputError
from softmax_rnn.explore import parts_view
from softmax_rnn.report.mathml import mathml


def choices(spec):
    return {slot: parts_view.part_choice(getattr(spec, slot)) for slot in parts_view.SLOTS}


@pytest.mark.parametrize("name", VARIANTS)
def test_every_row_survives_the_menus_and_the_python(name):
    spec = VARIANTS[name]
    assert parts_view.spec_of_choices(choices(spec)) == spec
    made = {}
    exec(python_text(spec), made)
    assert made["spec"] == spec


@pytest.mark.parametrize("text", sorted({formula(spec) for spec in VARIANTS.values()}))
def test_every_formula_is_well_formed_mathematics_with_all_its_letters(text):
    root = ElementTree.fromstring(mathml(text))
    letters = "".join(root.itertext())
    assert root.tag == "math"
    for word in ("exp", "min", "max", "relu", "elu", "decay", "SiLU"):
        assert letters.count(word) == text.count(word)
    assert letters.count("∑") == text.count("Σ")


def test_fractions_roots_and_powers():
    text = mathml("o = Σ w v / Σ w,  w = Σₙ₌₀…2 (q·k/√d)ⁿ/n!")
    assert text.count("<mfrac>") == 3
    assert "<msqrt><mi>d</mi></msqrt>" in text
    assert "<munderover>" in text
    assert "<mrow><mi>n</mi><mo>!</mo></mrow></mfrac>" in text
    assert mathml("over all keys").count("<mspace") == 2
    assert "<script>" not in mathml("<script>")


def test_every_kind_of_every_part_can_be_chosen():
    tried = 0
    for slot in parts_view.SLOTS:
        for kind in parts_view.kinds(slot):
            chosen = choices(AttentionSpec()) | {slot: (kind, parts_view.default_options(slot, kind))}
            try:
                spec = parts_view.spec_of_choices(chosen)
            except InputError as error:
                assert slot in str(error) or "needs" in str(error)
                continue
            part = getattr(spec, slot)
            assert (part is None) if kind == parts_view.NONE else (part.kind == kind)
            tried += 1
    assert tried >= sum(map(len, (Part.registry[slot] for slot in parts_view.SLOTS))) - 3


@pytest.mark.parametrize("name", VARIANTS)
def test_every_row_has_a_view(name):
    said, curves, python, as_json = parts_view.apart_view(VARIANTS[name], 64, 1024)
    assert "<math" in said and VARIANTS.short(name) in said
    assert curves.count("data-chart") == 2
    assert "AttentionSpec(" in python and AttentionSpec.from_json(as_json) == VARIANTS[name]


def test_a_view_says_what_cancels_and_what_to_copy():
    spec = VARIANTS["gated_softmax_out_gate_L2norm_nodivS_noclamp"]
    said, curves, python, as_json = parts_view.apart_view(spec, 64, 1024)
    assert "output gate" in said and "softmax_l2" in said
    assert "L2Norm()" in python
    assert AttentionSpec.from_json(as_json) == spec
    assert curves.count("data-chart") == 2


@pytest.mark.parametrize(
    ("slot", "choice", "said"),
    [
        ("normaliser", ("row_sum", "eps=-1"), "eps: expected 0 or more"),
        ("normaliser", ("row_sums", ""), "did you mean 'row_sum'"),
        ("normaliser", ("row_sum", "eps"), "normaliser: options: expected name=value, got 'eps'"),
        ("output_gate", ("output_gate", "after_norm=true"), "after_norm needs an output_norm"),
        ("score", ("none", ""), "score: expected"),
    ],
)
def test_what_cannot_be_combined_says_why(slot, choice, said):
    with pytest.raises(InputError, match=said):
        parts_view.spec_of_choices(choices(AttentionSpec()) | {slot: choice})
