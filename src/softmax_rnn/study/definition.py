"""A study as a file: what it asks, its runs, and the claims that the runs can confirm or refute.

The runs are grids: settings that all have, and settings that vary. Every combination is a run; ``data.pairs`` reaches
inside ``data``.

>>> grid = Grid(settings={"steps": 10}, vary={"variant": ["softmax", "linear_elu"], "seed": [0, 1]})
>>> [run["variant"] for run in grid.combinations()]
['softmax', 'softmax', 'linear_elu', 'linear_elu']
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PositiveFloat, field_validator, model_validator

from softmax_rnn.errors import InputError, found_in, shown, unknown_name
from softmax_rnn.study.rules import Part, Rule
from softmax_rnn.validation import checked, put, read_settings

STUDIES = Path(__file__).parents[1] / "studies"
"""The folder of the studies that come with the package."""
METRICS = {
    "test_loss": "test loss",
    "test_accuracy": "accuracy",
    "test_largest_score": "largest score",
    "test_dominant_order": "order of the largest Taylor term",
    "test_order_within": "Taylor order for 1 %",
}
"""What a claim can be about, in words."""


class Grid(Part):
    """Runs: every combination of the varied settings."""

    settings: dict[str, Any] = Field(default_factory=dict)
    vary: dict[str, Annotated[list[Any], Field(min_length=1)]]
    settings_for: dict[str, dict[Any, dict[str, Any]]] = Field(default_factory=dict)
    """Settings that go with a value of a varied one: a variant's own learning rate, the batch of a context length."""

    @field_validator("vary")
    @classmethod
    def _once_each(cls, vary: dict[str, list[Any]]) -> dict[str, list[Any]]:
        """A run that is listed twice would count as two."""
        for name, values in vary.items():
            for text, count in Counter(map(shown, values)).items():
                if count > 1 and not text.endswith("…"):
                    raise InputError(f"{name}: expected different values, got {text} twice")
        return vary

    @model_validator(mode="after")
    def _go_with_what_varies(self) -> Self:
        for name, by_value in self.settings_for.items():
            if name not in self.vary:
                raise unknown_name("varied setting of settings_for", name, self.vary)
            known = [str(value) for value in self.vary[name]]
            for value, settings in by_value.items():
                if str(value) not in known:
                    raise unknown_name(f"{name} of settings_for", str(value), known)
                for twice in settings.keys() & self.vary.keys():
                    raise InputError(f"settings_for.{name}: {twice} varies in this grid; expected it in one place only")
        return self

    @property
    def count(self) -> int:
        return math.prod(len(values) for values in self.vary.values())

    def combinations(self) -> Iterator[dict[str, Any]]:
        """The varied settings of each run, by name."""
        for values in itertools.product(*self.vary.values()):
            yield dict(zip(self.vary, values, strict=True))

    def settings_of(self, varied: Mapping[str, Any]) -> dict[str, Any]:
        """All settings of a run: the grid's, those that go with its varied values, and the varied values."""
        settings = self.settings
        for name, by_value in self.settings_for.items():
            own = {str(value): one for value, one in by_value.items()}
            settings = merged(settings, own.get(str(varied[name]), {}))
        return merged(settings, varied)


class Claim(Part):
    """A sentence of the paper, or of ours, and the rule that decides it, fixed before the runs."""

    says: str
    paper: str = ""
    """Where it is, and the numbers in the paper."""
    scales: list[Literal["cpu", "overnight", "paper"]] = Field(default_factory=list)
    """The scales that can decide it; all of them when left out."""
    grid: str
    metric: Literal["test_loss", "test_accuracy", "test_largest_score", "test_dominant_order", "test_order_within"] = (
        "test_loss"
    )
    step: Annotated[int, Field(ge=0)] | None = None
    """The test that counts; the last one when left out."""
    compares: str = "variant"
    """The varied setting whose values the rule names."""
    rule: Annotated[Rule, Field(discriminator="kind")]

    def rule_text(self) -> str:
        """The rule in words."""
        measured = METRICS[self.metric] + ("" if self.step is None else f" at step {self.step:,}")
        return self.rule.words(self.metric, measured)


class Factorial(Part):
    """Variants as the cells of a full factorial; main effects and interactions are computed from their test losses."""

    grid: str
    factors: dict[str, Annotated[list[str], Field(min_length=2)]]
    """Levels by factor; effects are relative to the first level."""
    cells: list[str]
    """The variant of each combination, the last factor changing fastest. Cells that are one function may share one."""


class Trend(Part):
    """The gap of two variants against a size, as a line in its logarithm, continued to the size of the paper."""

    grid: str
    along: str
    what: str
    than: str = "softmax"
    paper: PositiveFloat


class Published(Part):
    """A number that others have published, shown beside ours and marked as theirs."""

    source: str
    what: str
    variant: str | None = None
    """The variant's name here, where there is one."""
    value: float
    unit: str = ""


class Scale(Part):
    """The runs at one scale."""

    minutes: PositiveFloat
    """How long all runs take; at the scales ``cpu`` and ``overnight``, on two cores."""
    grids: Annotated[dict[str, Grid], Field(min_length=1)]


class Study(Part):
    """A question, its runs and its claims."""

    title: str
    asks: str
    found: str = ""
    """What was known: the paper's finding, or what others have published."""
    scales: dict[Literal["cpu", "overnight", "paper"], Scale]
    variants: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """New attentions by name, for all grids: see the setting ``variants`` of a run."""
    claims: list[Claim] = Field(default_factory=list)
    factorials: list[Factorial] = Field(default_factory=list)
    trends: list[Trend] = Field(default_factory=list)
    published: list[Published] = Field(default_factory=list)
    terms: str | None = None
    """A value of ``variant`` whose first finished model is taken apart into Taylor terms."""

    def scale(self, name: str) -> Scale:
        """The runs at a scale by name."""
        known = {str(key): value for key, value in self.scales.items()}
        if name not in known:
            raise unknown_name("scale", name, known)
        return known[name]

    def claims_at(self, scale: str) -> list[Claim]:
        """The claims that a scale can decide."""
        return [claim for claim in self.claims if not claim.scales or scale in claim.scales]


def load_study(name: str) -> tuple[str, Study]:
    """A study by name or by the path of its file, with its short name."""
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        known = [file.stem for file in sorted(STUDIES.glob("*.yaml"))]
        if name not in known:
            if path.exists() or "/" in name:
                raise InputError(f"study: expected {', '.join(known)}, or a file that ends in .yaml, got {name!r}")
            raise unknown_name("study", name, known)
        path = STUDIES / f"{name}.yaml"
    values = read_settings(path, "study")
    with found_in(str(path)):
        study = checked(Study, values, "key of a study")
        _check_claims(study)
    return path.stem, study


def _check_claims(study: Study) -> None:
    """Every claim must name a grid and variants that exist at its scale."""
    for claim in study.claims:
        named = claim.rule.named()
        for value in named:
            if named.count(value) > 1:
                raise InputError(f"claims: {claim.says!r} compares {value} with itself; expected different variants")
    for scale_name, scale in study.scales.items():
        for name in scale.grids:
            if not name.strip():
                raise InputError("grids: expected a name for each grid, got ''")
        _check_contrasts(study, scale)
        for claim in study.claims_at(scale_name):
            if claim.grid not in scale.grids:
                raise unknown_name("grid of a claim", claim.grid, scale.grids)
            vary = scale.grids[claim.grid].vary
            if claim.compares not in vary:
                raise unknown_name("varied setting of a claim", claim.compares, vary)
            known = [str(value) for value in vary[claim.compares]]
            for value in claim.rule.named():
                if value not in known:
                    raise unknown_name(f"{claim.compares} of a claim", value, known)


def _check_contrasts(study: Study, scale: Scale) -> None:
    for one in study.factorials:
        count = math.prod(map(len, one.factors.values()))
        if len(one.cells) != count:
            raise InputError(f"factorials: expected {count} cells, one per combination, got {len(one.cells)}")
    asked = [(one.grid, one.cells) for one in study.factorials] + [
        (one.grid, [one.what, one.than]) for one in study.trends
    ]
    for one in (*study.factorials, *study.trends):
        vary = scale.grids[one.grid].vary if one.grid in scale.grids else {}
        along = one.along if isinstance(one, Trend) else "variant"
        for name in vary.keys() - {"variant", "seed", "learning_rate", along}:
            raise InputError(f"grids.{one.grid}: {name} varies too; a factorial or trend needs a grid without it")
    for grid, names in asked:
        known = [str(value) for value in scale.grids[grid].vary.get("variant", [])] if grid in scale.grids else names
        for name in names:
            if name not in known:
                raise unknown_name("variant of a factorial or trend", name, known)


def merged(settings: Mapping[str, Any], varied: Mapping[str, Any]) -> dict[str, Any]:
    """A grid's settings with the varied ones put in."""
    whole: dict[str, Any] = dict(settings)
    for name, value in varied.items():
        put(whole, name, value)
    return whole
