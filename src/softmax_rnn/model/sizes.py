"""The configuration of a size and a variant, both by name.

>>> build_config("small", "softmax_gate").num_hidden_layers
20
"""

from __future__ import annotations

import re
from dataclasses import asdict, fields
from typing import Any

from huggingface_hub.errors import StrictDataclassError

from softmax_rnn.attention.table.model_table import MODEL_VARIANTS, SIZES
from softmax_rnn.errors import InputError, unknown_name
from softmax_rnn.model.configuration import Mixer, SoftmaxRNNConfig
from softmax_rnn.model.layer_specs import LayerSpecs, layer_specs

PAPER_VOCAB = 32_000
_COMMON = {"max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "tie_word_embeddings": False}


def build_config(
    size: str = "nano",
    variant: str = "softmax",
    *,
    vocab_size: int = PAPER_VOCAB,
    layers: LayerSpecs | None = None,
    **overrides: Any,
) -> SoftmaxRNNConfig:
    """The configuration of a size and a variant, both by name; ``overrides`` are options of `SoftmaxRNNConfig`.

    ``layers`` gives layers another attention than the variant's, such as ``{"0-1": "softmax", "2-": "taylor_2"}``;
    layers in no range keep the variant's, and so does the block around all of them.

    >>> build_config("nano", "two_mamba", vocab_size=256, tie_word_embeddings=True).conv_width
    2
    """
    if size not in SIZES:
        raise unknown_name("size", size, SIZES)
    row = MODEL_VARIANTS[variant]
    known = {one.name for one in fields(SoftmaxRNNConfig)}
    for name in overrides:
        if name not in known:
            raise unknown_name("option", name, sorted(known))
    options = {**asdict(SIZES[size]), **_COMMON, "attention_spec": row.spec, **row.options, "vocab_size": vocab_size}
    options |= overrides
    if layers is not None:
        if "attention_spec" in overrides:
            raise InputError("layers: expected layers or attention_spec, got both")
        if options.get("mixer", Mixer.ATTENTION) != Mixer.ATTENTION:
            raise InputError(f"layers: the blocks of {variant} have no attention that could differ")
        options["attention_spec"] = layer_specs(layers, options["num_hidden_layers"], default=row.spec)
    try:
        return SoftmaxRNNConfig(**options)
    except StrictDataclassError as error:
        raise InputError(_in_words(" ".join(str(error.__cause__ or error).split()))) from error


def _in_words(reason: str) -> str:
    """What transformers says about an option of the wrong type.

    >>> _in_words("Field 'hidden_size' expected int, got str (value: 'wide')")
    "model.hidden_size: expected a whole number, got 'wide'"
    """
    kinds = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "text"}
    field = re.fullmatch(r"Field '(\w+)' expected (\w+), got \w+ \(value: (.*)\)", reason)
    if field is None or field[2] not in kinds:
        return f"model: {reason}"
    return f"model.{field[1]}: expected {kinds[field[2]]}, got {field[3]}"
