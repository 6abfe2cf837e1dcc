"""Errors say what came and what was meant."""

from __future__ import annotations

import pytest

from softmax_rnn.errors import InputError, UnknownNameError, unknown_name


def test_the_nearest_name_is_offered_whatever_its_case():
    assert str(unknown_name("form", "FUSEDD", ["parallel", "Fused"])) == "unknown form 'FUSEDD'; did you mean 'Fused'?"


def test_without_a_near_name_the_known_ones_are_listed():
    assert str(unknown_name("form", "xyz", ["a", "b"])) == "unknown form 'xyz'; expected one of: a, b"
    assert str(unknown_name("form", "xyz", [f"name{n}" for n in range(20)])).endswith("name11, …")


@pytest.mark.parametrize("kind", [InputError, KeyError, ValueError])
def test_an_unknown_name_can_be_caught_as(kind):
    with pytest.raises(kind):
        raise unknown_name("form", 3, ["a"])


def test_the_message_is_not_quoted_as_a_key_errors_is():
    error = unknown_name("form", "x", ["abcdef"])
    assert isinstance(error, UnknownNameError)
    assert not str(error).startswith(('"', "'"))
