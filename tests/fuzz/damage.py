"""Ways to damage what users give: values of the wrong type or size, names, texts, bytes."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from random import Random
from typing import Any

WRONG: tuple[Any, ...] = (
    None, True, False, "", " ", "no", "none", "softmax", "٣", "\x00", "\u202e", "a" * 5000, "../..", "/dev/full",
    0, 1, -1, 2**31, 2**63, 2**64, 10**30, -(10**30), 0.5, -0.5, 1e-320, 1e300, 1e308, float("nan"), float("inf"),
    [], {}, [[]], [None], {"": None}, {"kind": 1}, {"kind": "exp"}, ["softmax", 3], {"source": []},
)  # fmt: skip
NUMBERS = ("0", "1", "2", "-1", "64", "1e3", "0.5", "nan", "inf", "-inf", "1e-320", "1e308", "٣", "0x10", "1_000", "")
NUMBERS += ("4294967296", str(2**63), str(10**30), "9" * 5000, " 7", "7 ", "7.0", "true", "None")
NAMES = ("softmax", "taylor_4", "linear_elu", "taylor_170", "taylor_171", "taylor_٣", "sofmax", "SOFTMAX", "", " ", ".")
NAMES += ("gated_softmax", "power_2", "../softmax", "softmax.json", "-", "--", "like=softmax", "like=", "=", "{}", "[]")
NAMES += ("normaliser=none", "score.clamp=5", "score.clamp=nan", "like=taylor_2,output_norm=l2", "score=exp,score=exp")


def value(random: Random) -> Any:
    """A value that is seldom what was asked for."""
    return copy.deepcopy(random.choice(WRONG))


def nested(random: Random) -> str:
    """Text that is nested deeper than a parser's stack."""
    opening = random.choice(["[", '{"a":', "[[{"])
    return opening * random.choice([500, 20_000])


def tree(values: Any, random: Random) -> Any:
    """Values with one place changed: another value, a key gone, a key too many, a letter of a key."""
    values = copy.deepcopy(values)
    places = list(_places(values))
    if not places:
        return value(random)
    holder, key = random.choice(places)
    match random.randrange(5):
        case 0 if isinstance(holder, dict):
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[f"{key}{random.choice('xyz_')}"] = holder.pop(key)
        case 2 if isinstance(holder, dict):
            holder[random.choice(["extra", "kind", "like", "", "steps"])] = value(random)
        case 3 if isinstance(holder[key], list):
            holder[key] = holder[key] * random.choice([0, 2, 50])
        case _:
            holder[key] = value(random)
    return values


def _places(values: Any) -> Any:
    items = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    for key, inner in items:
        yield values, key
        yield from _places(inner)


def text_of(values: Any, random: Random) -> str:
    """JSON, sometimes with a key twice or nested too deeply."""
    text = json.dumps(values)
    match random.randrange(12):
        case 0:
            return nested(random)
        case 1 if text.startswith('{"'):
            first = text[1 : text.index(":")]
            return f"{{{first}: null, {text[1:]}"
    return text


def data(content: bytes, random: Random) -> bytes:
    """Bytes with bits flipped, an end cut off, a piece zeroed or something appended."""
    changed = bytearray(content)
    match random.randrange(5):
        case 0 | 1:
            for _ in range(random.choice([1, 1, 3, 20])):
                if changed:
                    changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
        case 2:
            del changed[random.randrange(len(changed) + 1) :]
        case 3:
            begin = random.randrange(len(changed) + 1)
            end = begin + random.randrange(200)
            changed[begin:end] = bytes(len(changed[begin:end]))
        case 4:
            changed += random.choice([b"\n", b"\x00" * 9, b"}", b"\xff\xfe", bytes(range(256))])
    return bytes(changed)


def file(path: Path, random: Random) -> None:
    """Damage a file where it lies; JSON and YAML in JSON's form sometimes by their values."""
    content = path.read_bytes()
    if path.suffix in (".json", ".yaml") and random.random() < 0.5:
        try:
            path.write_text(text_of(tree(json.loads(content), random), random), encoding="utf-8")
            return
        except (ValueError, RecursionError):
            pass
    path.write_bytes(data(content, random))


def inside(folder: Path, random: Random) -> None:
    """Damage one of the files of a folder."""
    file(random.choice(sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"
                              and path.name != ".lock")), random)  # fmt: skip
