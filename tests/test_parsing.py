"""JSON and YAML are read strictly."""

import json

import pytest

from softmax_rnn.errors import InputError
from softmax_rnn.parsing import parse_json, parse_yaml

JSON = {
    '{"a": 1, "b": {"c": 1, "c": 2}}': "spec: the key 'c' appears twice",
    "[" * 100_000: "spec is nested too deeply",
    '{"a": ' * 100_000: "spec is nested too deeply",
    "9" * 5000: "spec: expected whole numbers of at most 64 bits, got '999",
    str(2**63): "spec: expected whole numbers of at most 64 bits, got '9223372036854775808'",
    "{": "spec is not valid JSON: Expecting property name",
    "": "spec is not valid JSON: Expecting value",
}
YAML = {
    "a: 1\nb: {c: 1, c: 2}": "run: the key 'c' appears twice, again in line 2",
    "a: 1\nb: 2\n\na: 3": "run: the key 'a' appears twice, again in line 4",
    "[" * 5000: "run is nested too deeply",
    "a: " + "9" * 5000: "run: expected whole numbers of at most 64 bits",
    "a: -0x" + "F" * 70: "run: expected whole numbers of at most 64 bits",
    "a: &a [*a]": "run: expected at most 200000 values",
    "a: 2020-13-45": "run is not valid YAML: month must be in 1..12",
    "a: !!int ''": "run is not valid YAML: ",
    "a: !!python/object/apply:os.getcwd []": "run is not valid YAML: could not determine a constructor",
    "a: [1": "run is not valid YAML: expected ',' or ']', but got '<stream end>' in line 1, column 6",
    "a: \x00": "run is not valid YAML: unacceptable character",
}


REFUSED = [(parse_json, "spec", *one) for one in JSON.items()] + [(parse_yaml, "run", *one) for one in YAML.items()]


@pytest.mark.parametrize(("parse", "what", "text", "message"), REFUSED, ids=[one[2][:30] for one in REFUSED])
def test_text_that_is_refused(parse, what, text, message):
    with pytest.raises(InputError) as caught:
        parse(text, what)
    assert str(caught.value).startswith(message)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("value", [None, 3, b"{}", {}])
def test_json_that_is_not_text(value):
    with pytest.raises(InputError, match=r"^spec: expected JSON as text, got \w+$"):
        parse_json(value, "spec")


def test_what_is_right_is_read():
    values = {"a": [1, -(2**63), 1.5, None, True], "b": {"c": "1e-6", "d": {}}}
    assert parse_json(json.dumps(values), "spec") == values
    assert parse_yaml("a: 1e-6\nb: -1.5E3\nc: .5e2\nd: '1e-6'\ne: 1e\nf: 0x10", "run") == {
        "a": 1e-6, "b": -1500.0, "c": 50.0, "d": "1e-6", "e": "1e", "f": 16}  # fmt: skip


def test_merged_mappings_may_override():
    text = "base: &base {a: 1, b: 2}\nmore: &more {<<: *base, b: 3}\nmost: {<<: *more, b: 4}\nagain: *more"
    assert parse_yaml(text, "run")["most"] == {"a": 1, "b": 4}
    assert parse_yaml(text, "run")["again"] == {"a": 1, "b": 3}
