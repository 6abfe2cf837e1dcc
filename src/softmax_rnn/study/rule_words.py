"""The rules of claims in words, and their margins in a few of them."""

from __future__ import annotations

from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.study.definition import Claim
from softmax_rnn.study.rules import SCORES, Behind, Bound, Equal, Falls, Solves

_WORDS = {
    "test_loss": "test loss",
    "test_accuracy": "accuracy",
    "test_largest_score": "largest score",
    "test_dominant_order": "order of the largest Taylor term",
    "test_order_within": "Taylor order for 1 %",
}


def margin_text(claim: Claim) -> str:
    """What a verdict depends on besides the numbers, in the few words that stand next to it wherever it is shown."""
    match claim.rule:
        case Behind(by=by):
            return f"margin {by:g}"
        case Equal(within=within):
            return f"margin {within:g}"
        case Falls():
            return "margin 0"
        case Solves(reaches=reaches, below=below):
            return f"at least {reaches:g}, others at most {below:g}"
        case Bound(limit=limit):
            return f"limit {limit:g}"


def rule_text(claim: Claim) -> str:
    """The rule in words."""
    what = _WORDS[claim.metric] + ("" if claim.step is None else f" at step {claim.step:,}")
    match claim.rule:
        case Behind(what=a, than=b, by=by):
            margin = f" by more than {by:g}" if by else ""
            more = "has more than" if claim.metric in SCORES else "is worse than"
            worse = f"{VARIANTS.short(a)} {more} {VARIANTS.short(b)}{margin}"
            return f"the 95 % interval of the paired difference in {what} says that {worse}"
        case Equal(what=a, to=b, within=within):
            gap = f"{VARIANTS.short(a)} − {VARIANTS.short(b)}"
            return f"the 95 % interval of the paired difference in {what}, {gap}, ends below {within:g}"
        case Falls(along=along):
            better = f"{VARIANTS.short(along[-1])} better than {VARIANTS.short(along[0])} at 95 %"
            return f"{what}: {better}, and no step of the list worse at 95 %"
        case Solves(what=a, reaches=reaches, others=others, below=below):
            rest = ", ".join(map(VARIANTS.short, others))
            return f"95 % intervals of the accuracy: {VARIANTS.short(a)} at least {reaches:g}, {rest} at most {below:g}"
        case Bound(kind=kind, what=a, limit=limit):
            side = "lies above" if kind == "exceeds" else "ends at or below"
            return f"the 95 % interval of the {what} of {VARIANTS.short(a)} {side} {limit:g}"
