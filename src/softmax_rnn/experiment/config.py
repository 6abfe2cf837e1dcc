"""The settings of a run: a file, arguments or a dictionary, resolved against a recipe and checked.

>>> config = resolve({"variant": "linear_elu", "steps": 10, "data": {"source": "stdlib"}})
>>> config.steps, config.size, config.data.source
(10, 'nano', 'stdlib')
>>> resolve({"varient": "softmax"})
Traceback (most recent call last):
softmax_rnn.errors.UnknownNameError: unknown setting 'varient'; did you mean 'variant'?
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import Field, PositiveInt, SerializeAsAny, field_validator

from softmax_rnn.data.tasks.table import TASKS, task_config
from softmax_rnn.data.tasks.task import Task
from softmax_rnn.data.text_config import TextConfig
from softmax_rnn.errors import InputError, shown, unknown_name
from softmax_rnn.experiment.recipes import RECIPES
from softmax_rnn.train.settings import TrainSettings
from softmax_rnn.validation import checked, read_settings

if TYPE_CHECKING:
    from softmax_rnn.attention.spec import AttentionSpec
    from softmax_rnn.train.folder import RunFolder

INCIDENTAL = frozenset(
    {
        "device",
        "fsdp",
        "accumulate",
        "recompute",
        "compile",
        "eval_batch_size",
        "trackers",
        "checkpoint_every",
        "keep_checkpoints",
    }
)
"""Settings that may change when a run is continued, like the number of processes: how it is computed, not what."""
INCIDENTAL_DATA = frozenset({"workers", "cache"})


class RunConfig(TrainSettings):
    """Everything that a run is made of."""

    recipe: str = "cpu"
    variant: str = "softmax"
    """A name of `MODEL_VARIANTS`, or of the following."""
    variants: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Custom attentions, as `attention.custom` reads them; resolved, that of ``variant`` if it is one, in full."""
    layers: dict[str, str] = Field(default_factory=dict)
    """Layers with an attention other than the variant's, by range: ``{0-3: softmax, 4-: taylor_2}``."""
    size: str = "nano"
    """A name of `SIZES`."""
    model: dict[str, Any] = Field(default_factory=dict)
    """Options of `SoftmaxRNNConfig` that differ from the size's and the variant's."""
    context: PositiveInt = 256
    """Tokens per row; a synthetic task brings its own length."""
    measure_scores: bool = False
    """With each test also the largest score, the largest Taylor term and the order for 1 %: see `score_probe`."""
    data: TextConfig | SerializeAsAny[Task] = Field(default_factory=lambda: checked(TextConfig, {}))

    @field_validator("layers", mode="before")
    @classmethod
    def _ranges_as_text(cls, value: Any) -> Any:
        """YAML reads a single layer as a number."""
        return {str(key): name for key, name in value.items()} if isinstance(value, Mapping) else value

    @property
    def label(self) -> str:
        """What is trained, for readers: the variant's short name, and the layers that have another attention."""
        return run_label(self.variant, self.layers)

    def values(self) -> dict[str, Any]:
        """Plain values, as `resolve` takes them."""
        values = self.model_dump(mode="json")
        # What is left out of a file is left out here too: runs without it keep their hash.
        for name in ("variants", "layers", "measure_scores"):
            if not values[name]:
                del values[name]
        if isinstance(self.data, Task):
            values["data"]["source"] = values["data"].pop("name")
        return values

    def content(self) -> dict[str, Any]:
        """The values that the run's numbers depend on."""
        values = {name: value for name, value in self.values().items() if name not in INCIDENTAL}
        values["data"] = {name: value for name, value in values["data"].items() if name not in INCIDENTAL_DATA}
        return values

    def content_hash(self) -> str:
        """The same for runs that must give the same numbers, up to rounding."""
        text = json.dumps(self.content(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def to_yaml(self) -> str:
        return yaml.safe_dump(self.values(), sort_keys=False, allow_unicode=True)


_LABELS = ("variant", "size", "seed")


def run_label(variant: str, layers: Mapping[str, str]) -> str:
    """What a run trains, for readers.

    >>> run_label("softmax", {"0-1": "taylor_2"})
    'softmax (0-1: taylor_2)'
    """
    from softmax_rnn.attention.variants import VARIANTS

    others = ", ".join(f"{place}: {VARIANTS.short(name)}" for place, name in layers.items())
    return VARIANTS.short(variant) + (f" ({others})" if others else "")


def resolve(given: Mapping[str, Any]) -> RunConfig:
    """The run that these settings mean: what they leave out comes from the recipe."""
    from softmax_rnn.attention.custom import define, definition
    from softmax_rnn.attention.table.model_table import MODEL_VARIANTS

    if not isinstance(given, Mapping):
        raise InputError(f"settings: expected a dictionary of settings by name, got {given!r}")
    given = dict(given)
    name = str(given.setdefault("recipe", "cpu"))
    if name not in RECIPES:
        raise unknown_name("recipe", name, RECIPES)
    recipe = RECIPES[name]
    values = {**recipe.settings, **given}
    values["data"] = _data(values.get("data"), recipe.data)
    if isinstance(values["data"], Task):
        if given.get("context", values["data"].length) != values["data"].length:
            raise InputError(f"context: a task's rows have its own length, {values['data'].length}; leave context out")
        values["context"] = values["data"].length
    config = checked(RunConfig, values)
    for place in config.layers:
        if not re.fullmatch(r"[0-9]+(-[0-9]*)?", place):
            raise InputError(f"layers: expected ranges such as 0-3, 4- or 5, got {place!r}")
    if config.layers and "variant" not in given:
        config = config.model_copy(update={"variant": list(config.layers.values())[-1]})
    define(config.variants)
    names = dict.fromkeys([config.variant, *config.layers.values()])
    custom = {name: parts for name in names if (parts := definition(name)) is not None}
    config = config.model_copy(update={"variants": custom})
    for name in config.layers.values():
        if name in MODEL_VARIANTS and MODEL_VARIANTS[name].spec_name != name:
            raise InputError(f"layers: {name} comes with a block of its own; layers share the variant's block")
    # Unknown variants, sizes and options are refused here, before anything is loaded.
    if not usual_model(config):
        from softmax_rnn.experiment.network import model_config, model_options

        config = config.model_copy(update={"model": model_options(config)})
        model_config(config)
    gated = any(has_gates(MODEL_VARIANTS[name].spec) for name in names)
    if recipe.clip_gated is not None and "clip" not in given and gated:
        config = config.model_copy(update={"clip": recipe.clip_gated})
    return config


def has_gates(spec: AttentionSpec) -> bool:
    """Whether the attention has learned gates."""
    return any(gate is not None for gate in (spec.input_gate, spec.output_gate, spec.forget_gate))


UNUSUAL = {"mixer", "conv_width", "key_expand"}
"""Options of a block that not every shape can have."""


def usual_model(config: RunConfig) -> bool:
    """Whether the model can be built for certain, seen without building it, which takes torch and seconds.

    Only the common options are looked at; for any other, and for a shape that may not fit, `model_config` decides.
    """
    from softmax_rnn.attention.table.model_table import MODEL_VARIANTS, SIZES

    block = MODEL_VARIANTS[config.variant].options
    if config.size not in SIZES or config.layers or set(config.model) & set(block):
        return False
    shape = asdict(SIZES[config.size])
    counts, flags = {*shape, "head_dim", "num_key_value_heads"}, {"use_mlp", "learned_positions", "use_rope"}
    for name, value in config.model.items():
        if not ((name in flags and type(value) is bool) or (name in counts and type(value) is int and value > 0)):
            return False
    shape |= {name: value for name, value in config.model.items() if name in counts}
    heads, width = shape["num_attention_heads"], shape["hidden_size"]
    divided = heads % shape.get("num_key_value_heads", heads) == 0 and width % heads == 0
    return divided and shape.get("head_dim", width // heads) % 2 == 0 and not set(block) & UNUSUAL


def _data(given: Any, defaults: Mapping[str, Any]) -> TextConfig | Task:
    if isinstance(given, (TextConfig, Task)):
        return given
    if given is not None and not isinstance(given, (str, Mapping)):
        raise InputError(f"data: expected a source, or settings by name, got {given!r}")
    settings = {"source": given} if isinstance(given, str) else dict(given or {})
    source = defaults["source"] if settings.get("source") is None else settings["source"]
    if isinstance(source, str) and source in TASKS:
        return task_config(source, **{name: value for name, value in settings.items() if name != "source"})
    # Another source than the recipe's keeps what the recipe says about layout and tokens, not the name of its part.
    if source != defaults["source"]:
        defaults = {name: value for name, value in defaults.items() if name in ("tokenizer", "layout", "test_fraction")}
    return checked(TextConfig, {**defaults, **settings, "source": source}, "setting of data")


def config_of(folder: Path) -> RunConfig:
    """The settings in the folder of a run. They were resolved, so a label that is missing was lost, not left out."""
    path = folder / "config.yaml"
    values = read_settings(path, "config")
    for name in _LABELS:
        if name not in values:
            raise InputError(f"config: {path} is damaged: {name} is missing")
    return resolve(values)


def result_of(config: RunConfig, folder: RunFolder) -> dict[str, Any] | None:
    """What a finished run measured, None while it is not finished; a result with labels of another run is refused."""
    result = folder.result()
    for name in (*_LABELS, "layers"):
        if result is not None and result.get(name, getattr(config, name)) != getattr(config, name):
            said = f"it says {name} {shown(result[name])}, and config.yaml says {shown(getattr(config, name))}"
            raise InputError(f"run: {folder.path}/result.json belongs to another run: {said}")
    return result


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The values in which two nested mappings differ, by their dotted names; None stands for what is not there.

    >>> differences({"seed": 0, "data": {"source": "kjv"}}, {"seed": 1, "data": {"source": "kjv"}, "steps": 2})
    {'seed': [0, 1], 'steps': [None, 2]}
    """
    first, second = flat(one), flat(other)
    pairs = {name: [first.get(name), second.get(name)] for name in {**first, **second}}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by their dotted names.

    >>> flat({"seed": 0, "data": {"source": "mqar"}})
    {'seed': 0, 'data.source': 'mqar'}
    """
    names: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            names |= flat(value, f"{prefix}{name}.")
        else:
            names[prefix + name] = value
    return names
