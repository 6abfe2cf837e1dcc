"""A conversion as one validated value: the model, the attention, the stages, the data.

>>> config = resolve({"model": "smollm2", "to": "softmax_l2", "tokens": 10_000, "context": 100, "batch_size": 2})
>>> [(name, config.steps(name)) for name in config.training]
[('transfer', 10), ('distil', 40)]
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, field_validator, model_validator

from softmax_rnn.attention.formula import formula
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.data.tasks.table import TASKS
from softmax_rnn.data.text_config import TextConfig
from softmax_rnn.errors import InputError, UnknownNameError, unknown_name
from softmax_rnn.linearise.target import OPTIONS, target_name, target_spec
from softmax_rnn.train.settings import Rate, TrainSettings
from softmax_rnn.validation import checked

Trained = Literal["parts", "attention", "all"]
STAGES = ("calibrate", "transfer", "distil", "tune")
CONSTANT = "constant"
"""The closed form for attentions with a norm in place of the denominator."""
TRANSFER_SHARE = 0.2
"""The fraction of the tokens that transfer gets when other training follows it."""
INCIDENTAL = frozenset({"device", "fsdp", "accumulate", "recompute", "checkpoint_every", "decode_contexts"})
"""Settings that may change when a conversion is continued."""


class StageSettings(BaseModel):
    """How one stage trains; defaults depend on the stage."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    tokens: PositiveInt | None = None
    """Tokens that the stage reads; None: its share of the conversion's."""
    learning_rate: Rate | None = None
    weights: Trained | None = None
    """Which weights are trained: what the new attention adds (and a scale per head), the whole attention, or all."""
    rank: PositiveInt | None = None
    """Train low-rank updates of the matrices instead of the matrices."""
    context: PositiveInt | None = None
    """Tokens per row; None: the conversion's."""
    batch_size: PositiveInt | None = None
    schedule: Literal["linear", "cosine", "constant"] = "cosine"


DEFAULTS: dict[str, dict[str, Any]] = {
    "transfer": {"learning_rate": 3e-4, "weights": "attention"},
    "distil": {"learning_rate": 1e-4, "weights": "all"},
    "tune": {"learning_rate": 5e-5, "weights": "all"},
}


class LineariseConfig(BaseModel):
    """Everything that a conversion depends on."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    model: str
    to: str
    """The variant's name, for display; ``spec`` is what is computed."""
    spec: dict[str, Any]
    stages: tuple[Literal["calibrate", "transfer", "distil", "tune"], ...] = ("calibrate", "transfer", "distil")
    data: tuple[TextConfig, ...] = Field(min_length=1)
    """Texts to train on; the held-out part of each is measured separately."""
    measure: tuple[TextConfig, ...] = ()
    """Texts whose held-out part is measured and that are not trained on."""
    tokens: Annotated[int, Field(gt=0, le=10**15)] = 1_000_000
    """Tokens that all training stages read together."""
    context: PositiveInt = 256
    batch_size: PositiveInt = 2
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    calibration_tokens: PositiveInt = 8192
    methods: tuple[Literal["scales", "matrix", "constant"], ...] = ("scales", "matrix", "constant")
    """The closed forms that calibrate tries."""
    eval_tokens: PositiveInt = 4096
    """Held-out tokens per text on which losses are measured."""
    forget_bias: float = 8.0
    """Where a forget gate starts; see `convert`."""
    keep_loss: Annotated[float, Field(gt=0)] | None = None
    """Convert as many layers as keep the predicted loss within this fraction above the original's."""
    state_bytes: PositiveInt | None = None
    """Convert as few layers as bring the decoding state within this many bytes."""
    convert_layers: PositiveInt | None = None
    """Convert this many layers, the ones that cost least."""
    budget_context: PositiveInt = 4096
    """The context at which ``state_bytes`` is counted."""
    untie: bool = True
    """Untie the output embeddings before distilling, where they were tied."""
    decode_contexts: tuple[PositiveInt, ...] = (512, 2048)
    """Contexts after which the time of a token is measured; those beyond the model's positions are left out."""
    store_logits: PositiveInt | None = None
    """Distil from this many most likely tokens per position, which are stored; None: from all logits."""
    original: Literal["fp32", "bf16"] = "fp32"
    """The precision in which the original computes."""
    transfer: StageSettings = StageSettings()
    distil: StageSettings = StageSettings()
    tune: StageSettings = StageSettings()
    precision: Literal["fp32", "bf16"] = "fp32"
    accumulate: PositiveInt = 1
    recompute: bool = False
    fsdp: bool = False
    device: Literal["auto", "cpu"] = "auto"
    checkpoint_every: PositiveInt = 100

    @field_validator("stages")
    @classmethod
    def _in_order(cls, stages: tuple[str, ...]) -> tuple[str, ...]:
        if list(stages) != sorted(set(stages), key=STAGES.index):
            raise InputError(f"expected stages once each, in the order {', '.join(STAGES)}, got {', '.join(stages)}")
        return stages

    @model_validator(mode="after")
    def _together(self) -> LineariseConfig:
        given = [name for name in ("keep_loss", "state_bytes", "convert_layers") if getattr(self, name) is not None]
        if len(given) > 1:
            raise InputError(f"{given[1]}: expected one budget, got {' and '.join(given)}")
        if given and "calibrate" not in self.stages:
            raise InputError(f"{given[0]}: layers are chosen after calibration; add the stage calibrate")
        if self.store_logits is not None and "distil" not in self.stages:
            raise InputError("store_logits: only the stage distil reads logits; add it")
        return self

    @property
    def target(self) -> AttentionSpec:
        """The attention that layers are converted to."""
        return AttentionSpec.from_dict(self.spec)

    @property
    def training(self) -> tuple[str, ...]:
        """The stages that train."""
        return tuple(name for name in self.stages if name != "calibrate")

    @property
    def chooses_layers(self) -> bool:
        """Whether only some layers are converted."""
        return any(budget is not None for budget in (self.keep_loss, self.state_bytes, self.convert_layers))

    def stage(self, name: str) -> StageSettings:
        """The settings of a training stage, with its defaults."""
        given: StageSettings = getattr(self, name)
        common = {"context": self.context, "batch_size": self.batch_size, "tokens": self._share(name)}
        values = {**common, **DEFAULTS[name], **given.model_dump(exclude_none=True)}
        return checked(StageSettings, values, f"setting of {name}")

    def _share(self, name: str) -> int:
        others = len(self.training) - ("transfer" in self.training)
        if name == "transfer":
            return max(1, round(self.tokens * (TRANSFER_SHARE if others else 1)))
        rest = self.tokens * (1 - (TRANSFER_SHARE if "transfer" in self.training else 0))
        return max(1, round(rest / max(others, 1)))

    def steps(self, name: str) -> int:
        """The steps of a stage: as many as its tokens fill, at least one."""
        stage = self.stage(name)
        assert stage.tokens is not None and stage.batch_size is not None and stage.context is not None
        return max(1, stage.tokens // (stage.batch_size * stage.context))

    def train_settings(self, name: str) -> TrainSettings:
        """A stage as settings of the training loop."""
        stage, steps = self.stage(name), self.steps(name)
        values = {
            "steps": steps,
            "batch_size": stage.batch_size,
            "learning_rate": stage.learning_rate,
            "schedule": stage.schedule,
            "warmup_steps": min(steps // 20, 100),
            "weight_decay": 0.0,
            "clip": 1.0,
            "seed": self.seed,
            "log_every": max(1, min(10, steps // 10)),
            **{one: getattr(self, one) for one in ("precision", *sorted(INCIDENTAL - {"decode_contexts"}))},
        }
        return checked(TrainSettings, values)

    def values(self) -> dict[str, Any]:
        """Plain values, as `resolve` takes them."""
        return self.model_dump(mode="json", exclude_none=True, exclude={"spec"}) | {"spec": self.spec}

    def content(self) -> dict[str, Any]:
        """The settings that the numbers depend on."""
        values = {name: value for name, value in self.values().items() if name not in INCIDENTAL}
        for name in ("data", "measure"):
            kept = [{k: v for k, v in one.items() if k not in ("workers", "cache")} for one in values[name]]
            values[name] = {str(number): one for number, one in enumerate(kept)}
        return values

    def content_hash(self) -> str:
        """Equal for conversions that must give the same numbers."""
        return hashlib.sha256(json.dumps(self.content(), sort_keys=True).encode()).hexdigest()

    def to_yaml(self) -> str:
        return yaml.safe_dump(self.values(), sort_keys=False, allow_unicode=True)

    def formula(self) -> str:
        """The target's formula."""
        return formula(self.target)


def resolve(given: Mapping[str, Any]) -> LineariseConfig:
    """The conversion that these settings mean. ``data`` is a source, settings of one, or a list of either."""
    values = dict(given)
    for name in ("model", "to"):
        if not isinstance(values.get(name), str):
            raise InputError(f"{name}: expected a name, got {values.get(name)!r}")
    options = {name: values.pop(name) for name in OPTIONS if name in values}
    if "spec" in values and options:
        raise InputError(f"{next(iter(options))}: the settings have a whole spec; set its parts there")
    if "spec" in values:
        _check_label(values["to"], values["spec"])
    else:
        values["spec"] = target_spec(values["to"], options).to_dict()
        values["to"] = target_name(values["to"])
        if options:
            values["to"] += " with " + ", ".join(f"{name} {value}" for name, value in options.items())
    values["data"] = _sources(values.get("data"), values["model"])
    values["measure"] = _sources(values.get("measure", []), values["model"])
    for name in DEFAULTS:
        stage = values.get(name, {})
        if not isinstance(stage, (Mapping, StageSettings)):
            raise InputError(f"{name}: expected settings by name, got {stage!r}")
        values[name] = _stage(name, stage) if isinstance(stage, Mapping) else stage
    stages = values.get("stages", ())
    for stage in stages if isinstance(stages, (list, tuple)) else ():
        if stage not in STAGES:
            raise unknown_name("stage", stage, STAGES)
    return checked(LineariseConfig, values)


def _stage(name: str, given: Mapping[str, Any]) -> StageSettings:
    try:
        return checked(StageSettings, given, f"setting of {name}")
    except UnknownNameError:
        raise
    except InputError as error:
        raise InputError(f"{name}.{error}") from None


def _check_label(to: str, spec: Any) -> None:
    """Refuse a spec under the name of another attention; a name that no table has is the user's own."""
    if not isinstance(spec, Mapping):
        raise InputError(f"spec: expected parts by name, got {spec!r}")
    name, _, written = to.partition(" with ")
    if name not in VARIANTS:
        return
    options = {option: int(value) for option, value in re.findall(r"(\w+) (\d+)", written)}
    if target_spec(name, options) != AttentionSpec.from_dict(dict(spec)):
        raise InputError(f"spec: it is not the spec of {to}; leave spec out, or give another name as to")


def _sources(given: Any, model: str) -> tuple[TextConfig, ...]:
    """Text settings, with the model's tokenizer unless another is named."""
    entries = given if isinstance(given, (list, tuple)) else ["stdlib" if given is None else given]
    sources = []
    for entry in entries:
        if isinstance(entry, TextConfig):
            sources.append(entry)
            continue
        if not isinstance(entry, (str, Mapping)):
            raise InputError(f"data: expected a source, or settings by name, got {entry!r}")
        settings = {"source": entry} if isinstance(entry, str) else dict(entry)
        if settings.get("source") in TASKS:
            raise InputError(f"data: {settings['source']} is a recall task; a conversion reads text")
        settings.setdefault("tokenizer", model)
        sources.append(checked(TextConfig, settings, "setting of data"))
    return tuple(sources)
