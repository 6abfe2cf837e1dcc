"""The target attention, from what users write.

>>> target_spec("near_far", {"window": 32, "order": 1}).structure.width
32
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from softmax_rnn.attention.custom import variant_from
from softmax_rnn.attention.parts import taylor_score
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.table.model_table import MODEL_VARIANTS
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import InputError

OPTIONS = ("window", "sinks", "order")
"""Options of the target: the last keys and the first keys that are seen exactly, the order of the polynomial."""


def target_name(written: str) -> str:
    """The name of the variant: written in any way that commands accept, or a family without its number."""
    name = variant_from(written)
    for family in VARIANTS.families:
        if name == family.name.replace("_{n}", ""):
            return family.name.replace("{n}", str(family.examples[0]))
    if name not in VARIANTS and name in MODEL_VARIANTS:
        raise InputError(
            f"to: {name} is an attention with a block of its own (a mixer or a convolution); a conversion keeps the"
            " model's blocks and swaps their attention"
        )
    return name


def target_spec(written: str, options: Mapping[str, Any]) -> AttentionSpec:
    """The spec of a variant with these options."""
    name = target_name(written)
    spec = VARIANTS[name]
    for option, given in options.items():
        if isinstance(given, bool) or not isinstance(given, int):
            raise InputError(f"{option}: expected a whole number, got {given!r}")
    if options.get("window", 1) < 1:
        raise InputError(f"window: expected 1 or more, got {options['window']}")
    places = {"width" if one == "window" else one: options[one] for one in ("window", "sinks") if one in options}
    if places:
        if not spec.over_time.near:
            raise InputError(f"{next(iter(options))}: {name} sees all keys; use near_far, window or streaming_llm")
        spec = replace(spec, structure=replace(spec.over_time, **places))
    if "order" in options:
        score = spec.score.as_polynomial
        if score is None or not score.is_taylor:
            raise InputError(f"order: the weights of {name} are not a Taylor polynomial; use taylor_{{n}} or near_far")
        spec = replace(spec, score=replace(taylor_score(options["order"]), scale=score.scale))
    return spec
