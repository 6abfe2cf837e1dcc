"""Models by name: short names, folders, and the hub, which is asked only where it can be reached."""

from __future__ import annotations

import threading
from functools import cache
from pathlib import Path

from softmax_rnn.errors import InputError, unknown_name

SHORT_NAMES = {"smollm2": "SmolLM2-135M-Instruct.Q4_1.gguf"}
"""Name → the file in the package that carries the model."""
PATIENCE = 5.0
"""Seconds for the first answer. The hub's own client would try for half a minute, file by file."""


def is_hub_name(name: str | Path) -> bool:
    """Whether this has the form owner/name.

    >>> is_hub_name("gpt2/small"), is_hub_name("./model"), is_hub_name("a/b/c")
    (True, False, False)
    """
    text = str(name)
    return not isinstance(name, Path) and text.count("/") == 1 and not text.startswith((".", "/", "~"))


def check_name(name: str | Path) -> None:
    """Refuse a plain word that is neither a folder nor a short name: most likely a misspelt short name.

    >>> check_name("smolm2")
    Traceback (most recent call last):
    softmax_rnn.errors.InputError: unknown model 'smolm2'; did you mean 'smollm2'? (and there is no folder smolm2)
    """
    word = isinstance(name, str) and "/" not in name and name not in SHORT_NAMES
    if word and not Path(name).expanduser().exists():
        raise InputError(f"{unknown_name('model', name, SHORT_NAMES)} (and there is no folder {name})")


def check_folder(name: str | Path) -> None:
    """Refuse what can be neither the folder of a saved model nor a name on the hub, without loading anything."""
    folder = Path(name).expanduser()
    if folder.is_file():
        raise InputError(f"model: expected the folder of a saved model, got the file {name}")
    if not folder.is_dir() and not is_hub_name(name):
        raise InputError(f"model: there is no folder {name}")
    if folder.is_dir() and not (folder / "config.json").is_file():
        hint = f"; it is a run, take {name}/final" if (folder / "final" / "config.json").is_file() else ""
        raise InputError(f"model: the folder {name} has no config.json{hint}")


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
