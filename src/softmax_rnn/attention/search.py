"""Finding rows of the table: by group or family, by the kind of state, by a part, or as the neighbours of a name.

>>> names(family="write", state="fixed")
['deltanet', 'gated_deltanet', 'taylor_delta_2']
>>> names(part=["cosine", "length"])[:2]
['linear_cosine', 'linear_cosine_by_key']
>>> names(like="forgetting_transformer")[0]                 # the nearest first, beginning with the name itself
'forgetting_transformer'
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields

from softmax_rnn.attention.algebra import diff, fixed_state_score
from softmax_rnn.attention.parts import Part
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import unknown_name

STATES = ("fixed", "growing")


def names(
    *, like: str | None = None, family: str | None = None, state: str | None = None, part: Sequence[str] = ()
) -> list[str]:
    """The names of the rows for which everything given holds."""
    if state is not None and state not in STATES:
        raise unknown_name("state", state, STATES)
    for text in part:
        if not any(_has(spec, text) for spec in VARIANTS.values()):
            raise unknown_name("part", text, sorted(set(_kinds())))
    matches = [name for name in VARIANTS if all(_has(VARIANTS[name], text) for text in part)]
    if family is not None:
        matches = _family(matches, family)
    if state is not None:
        fixed = state == "fixed"
        matches = [name for name in matches if (fixed_state_score(VARIANTS[name], 64) is not None) == fixed]
    if like is not None:
        spec = VARIANTS[like]
        matches.sort(key=lambda name: (VARIANTS[name] != spec, len(diff(spec, VARIANTS[name]))))
    return matches


def _family(candidates: Iterable[str], text: str) -> list[str]:
    groups = dict.fromkeys(VARIANTS.row(name).group for name in VARIANTS)
    stems = {re.sub(r"_?\{n\}", "", family.name): family for family in VARIANTS.families}
    families = [family for stem, family in stems.items() if text.lower() == stem]
    wanted = {group for group in groups if text and group.lower().startswith(text.lower())}
    if not families and not wanted:
        raise unknown_name("group or family", text, [*groups, *stems])
    if families:
        return [name for name in candidates if any(family.has(name) for family in families)]
    return [name for name in candidates if VARIANTS.row(name).group in wanted]


def _has(spec: AttentionSpec, text: str) -> bool:
    """Whether some part of the spec is of this kind, in this slot, or has an option of this value."""
    wanted = _plain(text)
    return any(wanted in map(_plain, _words(slot, part)) for slot, part in _parts(spec))


def _parts(spec: AttentionSpec) -> Iterator[tuple[str, Part]]:
    for field in fields(spec):
        part = getattr(spec, field.name)
        if isinstance(part, Part):
            yield field.name, part


def _words(slot: str, part: Part) -> list[str]:
    options = [str(getattr(part, field.name)) for field in fields(part)]
    kind = [part.kind, *part.kind.split("_"), type(part).__name__]
    return [slot, *kind, *(f"{part.kind} {option}" for option in options), *options]


def _kinds() -> Iterator[str]:
    return (part.kind for spec in VARIANTS.values() for _, part in _parts(spec))


def _plain(text: str) -> str:
    return text.lower().replace("_", "").replace(" ", "").replace("-", "")
