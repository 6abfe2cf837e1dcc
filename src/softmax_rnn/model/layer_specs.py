"""The attention of every layer, from what users write: one for all, a list, or layer ranges.

>>> [spec.score.kind for spec in layer_specs({"0-1": "softmax", "2-": "taylor_2"}, 4)]
['exp', 'exp', 'polynomial', 'polynomial']
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import InputError

SpecLike = str | AttentionSpec | Mapping[str, Any]
"""A spec, its JSON values, or a name of `VARIANTS`."""
LayerSpecs = SpecLike | Sequence[SpecLike] | Mapping[str, SpecLike]
"""One for all layers, a list with one per layer, or ranges: ``{"0-3": "softmax", "4-": "taylor_2"}``."""
_RANGE = re.compile(r"([0-9]+)(-([0-9]*))?", re.ASCII)


def as_spec(value: SpecLike) -> AttentionSpec:
    """The spec that a spec, its JSON values or a name of `VARIANTS` stand for.

    >>> as_spec("softmax") == as_spec(AttentionSpec().to_dict())
    True
    """
    if isinstance(value, AttentionSpec):
        return value
    if isinstance(value, str):
        return VARIANTS[value]
    if isinstance(value, dict):
        return AttentionSpec.from_dict(value)
    raise InputError(f"attention_spec: expected a spec, its JSON values or a variant's name, got {value!r}")


def layer_specs(
    value: LayerSpecs, layers: int, what: str = "layers", default: AttentionSpec | None = None
) -> tuple[AttentionSpec, ...]:
    """The spec of each of so many layers; ``what`` names the argument in errors, ``default`` is for gaps of ranges."""
    if has_ranges(value):
        assert isinstance(value, Mapping)
        return _from_ranges(value, layers, what, default)
    if isinstance(value, Sequence) and not isinstance(value, str):
        if len(value) != layers:
            raise InputError(f"{what}: expected {layers} specs, one per layer, got {len(value)}")
        return tuple(as_spec(one).of_layer(layer, layers) for layer, one in enumerate(value))
    spec = as_spec(value)  # pyright: ignore[reportArgumentType]
    return tuple(spec.of_layer(layer, layers) for layer in range(layers))


def has_ranges(value: object) -> bool:
    """Whether this maps ranges of layers to specs; the JSON values of a spec have the names of parts."""
    return isinstance(value, Mapping) and bool(value) and all(str(key)[:1].isdigit() for key in value)


def _from_ranges(
    ranges: Mapping[Any, Any], layers: int, what: str, default: AttentionSpec | None
) -> tuple[AttentionSpec, ...]:
    specs: list[AttentionSpec | None] = [default] * layers
    owner: dict[int, Any] = {}
    for key, value in ranges.items():
        match = _RANGE.fullmatch(str(key))
        if match is None:
            raise InputError(f"{what}: expected ranges such as 0-3, 4- or 5, got {key!r}")
        first = int(match[1])
        last = first if match[2] is None else int(match[3]) if match[3] else layers - 1
        if not first <= last < layers:
            raise InputError(f"{what}: {key} is not within the layers 0 to {layers - 1}")
        spec = as_spec(value)
        for layer in range(first, last + 1):
            if layer in owner:
                raise InputError(f"{what}: layer {layer} is in both {owner[layer]} and {key}")
            owner[layer], specs[layer] = key, spec
    missing = [layer for layer, spec in enumerate(specs) if spec is None]
    if missing:
        raise InputError(f"{what}: layer {missing[0]} has no attention; {len(missing)} of {layers} are in no range")
    return tuple(spec.of_layer(layer, layers) for layer, spec in enumerate(specs) if spec is not None)


def as_values(value: LayerSpecs, layers: int, what: str = "attention_spec") -> dict[str, Any] | list[dict[str, Any]]:
    """The same as JSON values: those of one spec where all layers have it, otherwise a list."""
    specs = layer_specs(value, layers, what)
    return specs[0].to_dict() if len(set(specs)) == 1 else [spec.to_dict() for spec in specs]
