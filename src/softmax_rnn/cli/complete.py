"""What the shell offers after Tab: names of variants, studies, sizes and data. Cheap: nothing here needs torch.

>>> variants("linear_e")
['linear_elu']
>>> studies("qu"), sizes("l"), data("m")
(['quick'], ['large', 'large_depth'], ['mqar'])
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

SIZES = ("nano", "micro", "small", "large", "large_depth")
DATA = ("shakespeare", "kjv", "stdlib", "mqar", "selective_copy", "induction")
RECIPES = ("cpu", "paper")
SCALES = ("cpu", "overnight", "paper")


def variants(incomplete: str) -> list[str]:
    """Names of the table, and JSON files."""
    from softmax_rnn.attention.variants import VARIANTS

    return _begin([*VARIANTS, *_files(incomplete, ".json")], incomplete)


def studies(incomplete: str) -> list[str]:
    """The packaged studies, and YAML files."""
    packaged = Path(__file__).parents[1].joinpath("studies").glob("*.yaml")
    names = sorted(path.stem for path in packaged)
    return _begin([*names, *_files(incomplete, ".yaml", ".yml")], incomplete)


def sizes(incomplete: str) -> list[str]:
    """Sizes of models."""
    return _begin(SIZES, incomplete)


def data(incomplete: str) -> list[str]:
    """Embedded corpora and recall tasks, files and folders."""
    return _begin([*DATA, *_files(incomplete, ".txt", ".jsonl")], incomplete)


def recipes(incomplete: str) -> list[str]:
    """Recipes of training."""
    return _begin(RECIPES, incomplete)


def scales(incomplete: str) -> list[str]:
    """Scales of studies."""
    return _begin(SCALES, incomplete)


def _begin(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _files(incomplete: str, *endings: str) -> list[str]:
    """Files of these endings, and folders, whose path begins so."""
    folder, _, _ = incomplete.rpartition("/")
    place = Path(f"{folder}/" if folder or incomplete.startswith("/") else ".")
    try:
        paths = sorted(path for path in place.iterdir() if path.suffix in endings or path.is_dir())
    except OSError:
        return []
    return [f"{path}/" if path.is_dir() else str(path) for path in paths if not path.name.startswith(".")]
