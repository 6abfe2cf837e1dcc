"""The rules that decide claims, as values of a study's file; `verdicts` applies them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, model_validator

from softmax_rnn.errors import unknown_name

SCORES = ("test_largest_score", "test_dominant_order", "test_order_within")
"""What a run with ``measure_scores`` measures with each test."""


class Part(BaseModel):
    """A part of a study's file; names that it does not know are refused with the nearest one."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, values: Any) -> Any:
        for name in values if isinstance(values, dict) else ():
            if name not in cls.model_fields:
                raise unknown_name("key", name, cls.model_fields)
        return values


class Behind(Part):
    """The first value is worse than the second: the interval of the paired difference lies above ``by``."""

    kind: Literal["behind"] = "behind"
    what: str
    than: str
    by: float = 0.0


class Equal(Part):
    """The first value is as good as the second: the interval of the paired difference ends below ``within``."""

    kind: Literal["equal"] = "equal"
    what: str
    to: str
    within: PositiveFloat


class Falls(Part):
    """The metric gets better along the list, from the first to the last."""

    kind: Literal["falls"] = "falls"
    along: Annotated[list[str], Field(min_length=2)]


class Solves(Part):
    """The accuracy of the first value is at least ``reaches``, that of the others at most ``below``."""

    kind: Literal["solves"] = "solves"
    what: str
    reaches: float = 0.9
    others: Annotated[list[str], Field(min_length=1)]
    below: float = 0.5


class Bound(Part):
    """The metric itself: ``exceeds`` says that its interval lies above the limit, ``stays_within`` that it does not."""

    kind: Literal["exceeds", "stays_within"]
    what: str
    limit: float


Rule = Behind | Equal | Falls | Solves | Bound


def mentioned(rule: Rule) -> list[str]:
    """The variants, or other values, that a rule names."""
    match rule:
        case Behind():
            return [rule.what, rule.than]
        case Equal():
            return [rule.what, rule.to]
        case Falls():
            return rule.along
        case Solves():
            return [rule.what, *rule.others]
        case Bound():
            return [rule.what]
