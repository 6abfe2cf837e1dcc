"""Softmax attention as a recurrent neural network: every part can be taken out, swapped, run and measured.

>>> import torch, softmax_rnn as sr
>>> spec = sr.VARIANTS["gated_softmax_no_gate_L2norm_nodivS_noclamp"]
>>> q, k, v = torch.randn(3, 1, 4, 16, 8)                            # (batch, heads, time, dim)
>>> sr.attend(spec, q, k, v).shape
torch.Size([1, 4, 16, 8])
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from softmax_rnn.version import __version__

if TYPE_CHECKING:
    from softmax_rnn.attention.algebra import diff as diff
    from softmax_rnn.attention.algebra import same_function as same_function
    from softmax_rnn.attention.algebra import simplify as simplify
    from softmax_rnn.attention.attend import attend as attend
    from softmax_rnn.attention.attend import extend as extend
    from softmax_rnn.attention.attend import step as step
    from softmax_rnn.attention.explain import explain as explain
    from softmax_rnn.attention.formula import formula as formula
    from softmax_rnn.attention.plan import Plan as Plan
    from softmax_rnn.attention.plan import Situation as Situation
    from softmax_rnn.attention.plan import choose as choose
    from softmax_rnn.attention.spec import AttentionSpec as AttentionSpec
    from softmax_rnn.attention.start import init_state as init_state
    from softmax_rnn.attention.state import State as State
    from softmax_rnn.attention.variants import VARIANTS as VARIANTS
    from softmax_rnn.errors import InputError as InputError
    from softmax_rnn.experiment.config import RunConfig as RunConfig
    from softmax_rnn.experiment.config import resolve as resolve
    from softmax_rnn.experiment.training import run_training as run_training

# Public name → the module that defines it. Looked up on first use: importing the package costs nothing.
_HOMES = {
    "AttentionSpec": "attention.spec",
    "InputError": "errors",
    "Plan": "attention.plan",
    "RunConfig": "experiment.config",
    "Situation": "attention.plan",
    "State": "attention.state",
    "VARIANTS": "attention.variants",
    "attend": "attention.attend",
    "choose": "attention.plan",
    "diff": "attention.algebra",
    "explain": "attention.explain",
    "extend": "attention.attend",
    "formula": "attention.formula",
    "init_state": "attention.start",
    "resolve": "experiment.config",
    "run_training": "experiment.training",
    "same_function": "attention.algebra",
    "simplify": "attention.algebra",
    "step": "attention.attend",
}

_OF_TRAINING = frozenset({"RunConfig", "resolve", "run_training"})

__all__ = [*sorted(_HOMES), "__version__"]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'softmax_rnn' has no attribute {name!r}")
    if name in _OF_TRAINING:
        from softmax_rnn.installation import need

        need("train", f"softmax_rnn.{name}")
    return getattr(importlib.import_module(f"softmax_rnn.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return list(__all__)
