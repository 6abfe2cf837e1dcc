"""Results in a file, checked before they are used: a file that was damaged, or edited by hand, is refused in one line.

>>> check_results({"study": {"name": "mine", "title": 7, "command": ""}, "machine": {}, "runs": [], "variants": {}})
Traceback (most recent call last):
softmax_rnn.errors.InputError: study: title: expected text, got 7
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from softmax_rnn.errors import InputError, found_in, shown
from softmax_rnn.train.folder import MEASURED
from softmax_rnn.validation import is_integer, is_number

Test = Callable[[Any], bool]
STATES = ("finished", "failed", "incomplete", "planned")


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _text_or_none(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _number_or_none(value: Any) -> bool:
    return value is None or is_number(value)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _list(value: Any) -> bool:
    return isinstance(value, list)


def _object(value: Any) -> bool:
    return isinstance(value, dict)


def _curve(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(pair, list) and len(pair) == 2 and is_integer(pair[0]) and _number_or_none(pair[1]) for pair in value
    )


def _numbers(value: Any) -> bool:
    return isinstance(value, list) and all(map(_number_or_none, value))


def _curves(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_curve, value.values()))


def _scalars(value: Any) -> bool:
    return isinstance(value, dict) and not any(isinstance(one, dict | list) for one in value.values())


_EXPECTED: dict[Test, str] = {
    _text: "text",
    _text_or_none: "text or null",
    _number_or_none: "a finite number or null",
    _texts: "a list of texts",
    _list: "a list",
    _object: "an object",
    _curve: "a list of pairs of a step and a number",
    _curves: "curves by name",
    _numbers: "a list of numbers",
    _scalars: "an object of texts and numbers",
    is_integer: "a whole number",
    is_number: "a finite number",
}
_STUDY: dict[str, Test] = {"name": _text, "title": _text, "command": _text}
_STUDY_OPTIONAL: dict[str, Test] = {"asks": _text, "found": _text, "scale": _text}
_STUDY_OPTIONAL |= {"minutes": _number_or_none}
_RUN: dict[str, Test] = {"name": _text, "grid": _text, "varied": _object, "folder": _text, "error": _text_or_none}
_RUN |= {"settings": _object, "train_curve": _curve, "test_curve": _curve, "accuracy_curve": _curve}
_RUN_OPTIONAL: dict[str, Test] = {
    "by_position": _numbers,
    "score_curves": _curves,
    "seconds": _number_or_none,
    "label": _text,
    "processor": _text,
    "threads": is_integer,
}
_SETTINGS: dict[str, Test] = {"variant": _text, "steps": is_integer, "context": is_integer, "data": _object}
_VARIANT: dict[str, Test] = {"formula": _text, "parts": _object, "same_as": _texts, "notes": _texts}
_CLAIM: dict[str, Test] = dict.fromkeys(("claim", "state", "evidence"), _text)
_CLAIM_OPTIONAL: dict[str, Test] = dict.fromkeys(("paper", "needed", "margin", "rule"), _text)


def check_results(value: Mapping[str, Any]) -> None:
    """Refuse what no study has written. Settings that all runs share must have been put into each."""
    _check(value, {"study": _object, "machine": _scalars, "variants": _object}, {"claims": _list, "published": _list})
    with found_in("study"):
        _check(value["study"], _STUDY, _STUDY_OPTIONAL)
    seen: dict[str, int] = {}
    for number, entry in enumerate(value["runs"]):
        with found_in(f"runs.{number}"):
            _check_run(entry)
            run = json.dumps([entry["grid"], entry["varied"], entry["folder"]], sort_keys=True)
            if (same := seen.setdefault(run, number)) != number:
                raise InputError(f"varied: expected runs that differ, got the values of runs.{same}")
    for name, facts in value["variants"].items():
        with found_in(f"variants.{name}"):
            _check({"facts": facts}, {"facts": _object})
            _check(facts, _VARIANT, {"cancellations": _texts})
    for number, claim in enumerate(value.get("claims", [])):
        with found_in(f"claims.{number}"):
            _check({"claim": claim}, {"claim": _object})
            _check(claim, {}, {"definition": _object})
    for number, row in enumerate(value.get("published", [])):
        with found_in(f"published.{number}"):
            _check({"row": row}, {"row": _object})


def check_claims(claims: Sequence[Mapping[str, Any]]) -> None:
    """Refuse claims that cannot be shown. Most have been decided again by then, and are right."""
    for number, claim in enumerate(claims):
        with found_in(f"claims.{number}"):
            _check(claim, _CLAIM, _CLAIM_OPTIONAL)


def _check_run(entry: dict[str, Any]) -> None:
    _check(entry, _RUN, _RUN_OPTIONAL)
    _check(entry["varied"], {"variant": _text}, {"seed": is_integer, "learning_rate": is_number})
    if entry["state"] not in STATES:
        raise InputError(f"state: expected one of {', '.join(STATES)}, got {shown(entry['state'])}")
    result = entry["result"]
    if (entry["state"] == "finished") != isinstance(result, dict) or (result is not None and not _object(result)):
        raise InputError(f"result: expected an object for a finished run and null for others, got {shown(result)}")
    with found_in("settings"):
        _check(entry["settings"], _SETTINGS)
    for name in ("variant", "seed", "learning_rate"):
        asked, trained = entry["varied"].get(name), entry["settings"].get(name)
        if asked is not None and trained is not None and asked != trained:
            raise InputError(f"varied: {name}: expected {trained!r} as in the settings, got {shown(asked)}")
    if result is not None:
        with found_in("result"):
            _check(result, {"step": is_integer}, dict.fromkeys(MEASURED, _number_or_none))
            label = result.get("variant", entry["settings"]["variant"])
            if label != entry["settings"]["variant"]:
                raise InputError(
                    f"variant: expected {entry['settings']['variant']!r} as in the settings, got {label!r}"
                )


def _check(value: Mapping[str, Any], needed: Mapping[str, Test], optional: Mapping[str, Test] | None = None) -> None:
    for name in needed:
        if name not in value:
            raise InputError(f"{name} is missing")
    for name, test in {**needed, **(optional or {})}.items():
        if name in value and not test(value[name]):
            raise InputError(f"{name}: expected {_EXPECTED[test]}, got {shown(value[name])}")
