"""The Hugging Face hub: downloads are tried only where the hub can be reached, which is checked quickly."""

from __future__ import annotations

import threading
from functools import cache
from pathlib import Path

from softmax_rnn.errors import InputError

PATIENCE = 5.0
"""Seconds for the first answer. The hub's own client would try for half a minute, file by file."""


def is_hub_name(name: str | Path) -> bool:
    """Whether this has the form owner/name.

    >>> is_hub_name("gpt2/small"), is_hub_name("./model"), is_hub_name("a/b/c")
    (True, False, False)
    """
    text = str(name)
    return not isinstance(name, Path) and text.count("/") == 1 and not text.startswith((".", "/", "~"))


@cache
def reachable() -> bool:
    """Whether the hub answers; asked once per process, and never where HF_HUB_OFFLINE says no."""
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE:
        return False
    answers: list[object] = []

    def ask() -> None:
        try:
            answers.append(get_session().head(constants.ENDPOINT, timeout=PATIENCE))
        except Exception:
            answers.clear()

    # In a thread, because looking up a name has no time limit.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return bool(answers)


def only_local(what: str, name: str, file: str = "config.json") -> bool:
    """Whether to read what was downloaded before, without asking the hub; an error where there is nothing to read."""
    if reachable():
        return False
    from huggingface_hub import constants, try_to_load_from_cache

    if isinstance(try_to_load_from_cache(name, file), str):
        return True
    reason = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else f"{constants.ENDPOINT} cannot be reached"
    raise InputError(f"{what}: there is no folder {name}, it was not downloaded before, and {reason}")
