"""Attentions that users describe by values: in settings, in a file, or added by a script."""

import json

import pytest

from softmax_rnn.attention.custom import define, definition, spec_of, variant_from
from softmax_rnn.attention.parts import L2Norm, RMSNorm
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import InputError


@pytest.mark.parametrize("name", VARIANTS)
def test_like_a_variant_and_nothing_else_is_that_variant(name):
    assert spec_of({"like": name}) == VARIANTS[name]
    assert spec_of(VARIANTS[name].to_dict()) == VARIANTS[name]


def test_parts_are_swapped_and_removed():
    assert spec_of({}) == VARIANTS["softmax"]
    assert spec_of({"normaliser": None, "output_norm": {"kind": "l2"}}) == AttentionSpec(
        normaliser=None, output_norm=L2Norm()
    )
    changed = spec_of({"like": "gated_softmax", "output_norm": {"kind": "rms"}, "input_gate": None})
    assert changed.output_norm == RMSNorm()
    assert changed.input_gate is None
    assert changed.score == VARIANTS["gated_softmax"].score


def test_what_is_defined_can_be_told_to_another_process():
    define({"undivided": {"like": "softmax", "normaliser": None}})
    told = json.loads(json.dumps(definition("undivided")))
    assert AttentionSpec.from_dict(told) == AttentionSpec(normaliser=None)
    define({"undivided": told})
    with pytest.raises(InputError, match=r"variants\.undivided: name: expected a new name"):
        define({"undivided": {}})


@pytest.mark.parametrize("name", ["softmax", "taylor_4", "taylor_61", "no such variant"])
def test_rows_of_the_package_need_no_definition(name):
    assert definition(name) is None


def test_a_note_is_kept_when_settings_name_the_attention_again():
    VARIANTS.add("noted", AttentionSpec(normaliser=None), "why it is here")
    define({"noted": {"normaliser": None}})
    assert VARIANTS.row("noted").note == "why it is here"


def test_a_file_gives_its_name(tmp_path):
    file = tmp_path / "my spec.json"
    file.write_text(AttentionSpec(normaliser=None).to_json())
    assert variant_from(str(file)) == "my_spec"
    assert VARIANTS["my_spec"] == AttentionSpec(normaliser=None)
    assert variant_from("softmax") == "softmax"


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("like=taylor_4,normaliser=none", {"like": "taylor_4", "normaliser": None}),
        ("normaliser=none, output_norm=l2", {"normaliser": None, "output_norm": {"kind": "l2"}}),
        ("score.clamp=5", {"score": {"kind": "exp", "clamp": 5}}),
        ("score=polynomial,score.coefficients=[1,0.5]", {"score": {"kind": "polynomial", "coefficients": [1, 0.5]}}),
        ('{"like": "gated_softmax", "input_gate": null}', {"like": "gated_softmax", "input_gate": None}),
    ],
)
def test_inline_parts_are_the_same_as_values(text, values):
    assert VARIANTS[variant_from(text)] == spec_of(values)


def test_different_inline_parts_have_different_names():
    texts = [
        "score.clamp=5",
        "score.clamp=-5.5",
        "score.clamp=5.5",
        "score.scale=1.5",
        "normaliser=none",
        "like=softmax",
    ]
    texts += ["score=polynomial,score.coefficients=[1,5]", "score=polynomial,score.coefficients=[1.5]"]
    assert len({variant_from(text) for text in texts}) == len(texts)
    assert variant_from("score.clamp=5") == variant_from("score.clamp=5")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("like=sofmax", "did you mean 'softmax'"),
        ("normalizer=none", "unknown part 'normalizer'; did you mean 'normaliser'"),
        ("normaliser=", "expected part=value, got 'normaliser='"),
        ("normaliser=none,normaliser=length", "normaliser is given twice"),
        ("output_norm.eps=1", "output_norm.eps: there is no output_norm; give output_norm=KIND as well"),
        ("score.clmp=1", "unknown option of score exp 'clmp'; did you mean 'clamp'"),
        ('{"score": ', "expected JSON"),
        ("{" * 100_000, "expected JSON"),
    ],
)
def test_wrong_inline_parts_are_one_line(text, said):
    with pytest.raises(InputError) as caught:
        variant_from(text)
    assert said in str(caught.value)
    assert str(caught.value).startswith("variant: ")
