"""Published attentions that are not rows of the table, and why: asked for by name, they get their reason.

>>> REFUSED["ttt"]
'its state is a network that each token trains'
"""

from __future__ import annotations

from softmax_rnn.errors import UnknownNameError

REFUSED = {
    "avey": "its weights belong to absolute positions, and a ranker chooses the context of each chunk",
    "ttt": "its state is a network that each token trains",
    "titans": "its state is a network that each token trains, with momentum",
    "h3": "its keys go through a state space model, channel by channel",
    "aft": "its weights compare no query with a key",
}
"""Name → why it is not a sum of f(q·k) v; docs/field.md has a paragraph for each."""


def refuse(name: str) -> None:
    """The reason as an error, where the name is one of these."""
    reason = REFUSED.get(name.lower())
    if reason:
        raise UnknownNameError(f"variant {name!r} is refused: {reason}; see docs/field.md")
