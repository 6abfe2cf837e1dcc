"""The Triton form: what it refuses, and its kernels in Triton's interpreter against the literal form in float64, which
test_forms.py holds against loops.

The interpreter shows that the arithmetic is right. It shows no races and no speed; what the compiler makes of the
kernels is tested in tests/bench/test_machine_code.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

from attention.cases import MASKS, NAMES, inputs
from softmax_rnn.attention.attend import attend
from softmax_rnn.attention.forms import triton as form
from softmax_rnn.attention.forms.triton import Triton
from softmax_rnn.attention.parts import Levels
from softmax_rnn.attention.plan import Situation, choose
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import InputError

TESTS = Path(__file__).parents[1]
ON_A_CARD = Situation(device="cuda")
SERVED = [name for name in NAMES if Triton().refuse(VARIANTS[name], ON_A_CARD) is None]
WITH_STATE = [
    name
    for name in SERVED
    if Triton().refuse(VARIANTS[name], Situation(device="cuda", has_fixed_past=True)) is None
    and VARIANTS[name].structure is None
]
TOLERANCE = {"float32": 2e-5, "bfloat16": 5e-3, "float16": 5e-3}
GATE_TOLERANCE = 1e-2
"""Half-precision gradients of a decay: differences of two sums over rounded numbers."""

QUICK = {
    "decay and clamp": {"name": "gated_softmax_decay", "mask": "both", "time": 20},
    "linear walk": {"name": "simple_gla", "mask": "both", "state": True, "walks": 1, "time": 20},
    "state of order 2": {"name": "taylor_2", "state": True, "time": 18, "key_dim": 4},
    "order 4": {"name": "taylor_4", "time": 18, "key_dim": 4},
    "bfloat16": {"score": "exp", "decay": True, "state": False, "dtype": "bfloat16"},
    "bfloat16 through attend": {"name": "taylor_2", "dtype": "bfloat16"},
}


class Interpreter:
    """A process whose kernels run in the interpreter: it starts with its first case, and serves all that follow."""

    def __init__(self, stderr: Path):
        self.stderr = stderr
        self.process: subprocess.Popen[str] | None = None

    def errors_of(self, case: dict[str, Any]) -> dict[str, float]:
        process = self.process = self.process or self._started()
        assert process.stdin is not None and process.stdout is not None
        print(json.dumps(case), file=process.stdin, flush=True)
        answer = process.stdout.readline()
        if not answer:
            self.process = None
            process.communicate()
            raise AssertionError(self.stderr.read_text(encoding="utf-8"))
        return json.loads(answer)

    def _started(self) -> subprocess.Popen[str]:
        paths = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
        modules = {type(part).__module__ for name in NAMES for part in VARIANTS[name].parts}
        added = [f"import {module}" for module in sorted(modules) if not module.startswith("softmax_rnn.")]
        code = "; ".join([*added, "from attention.interpreted import main", "main()"])
        with self.stderr.open("w") as errors:
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors}
            return subprocess.Popen([sys.executable, "-c", code], **pipes, text=True, env=environment)

    def stop(self) -> None:
        if self.process is not None:
            self.process.communicate()


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interpreter]:
    one = Interpreter(tmp_path_factory.mktemp("interpreter") / "stderr.txt")
    yield one
    one.stop()


def check(interpreter: Interpreter, case: dict[str, Any]) -> None:
    result = interpreter.errors_of(case)
    dtype = case.get("dtype", "float32")
    gates = {} if dtype == "float32" else dict.fromkeys(result.keys() - {"output", *"qkv"}, GATE_TOLERANCE)
    wrong = {name: error for name, error in result.items() if not error <= gates.get(name, TOLERANCE[dtype])}
    assert result and not wrong, f"{case}: {wrong}"


def test_kernels_in_the_interpreter(interpreter):
    for case in QUICK.values():
        check(interpreter, case)


MORE = {
    "row sum": {"name": "forgetting_transformer"},
    "window and sinks": {"name": "streaming_llm_64", "mask": "both", "time": 100, "key_dim": 4, "value_dim": 3},
    "degree 4": {"name": "taylor_4", "mask": "both"},
    "levels and decay": {"name": "log_linear_mamba2", "mask": "both", "time": 21, "key_dim": 4, "value_dim": 3},
    "three levels": {"name": "taylor_2", "levels": 3, "mask": "both", "time": 37, "key_dim": 4, "value_dim": 3},
    "levels of a clamped exp": {"name": "gated_softmax_decay", "levels": 4, "mask": "both", "time": 37, "key_dim": 4},
    "levels in bfloat16": {"name": "log_linear_softmax", "dtype": "bfloat16", "time": 37},
    "resumed": {"name": "taylor_2", "state": True, "how": "pieces"},
    "steps": {"name": "taylor_2", "state": True, "how": "steps"},
    "a walk in bfloat16": {"score": "linear", "decay": True, "state": True, "walks": 1, "dtype": "bfloat16"},
}


@pytest.mark.slow
@pytest.mark.parametrize("key", MORE)
def test_more_kernels_in_the_interpreter(key, interpreter):
    check(interpreter, MORE[key])


@pytest.mark.slow
@pytest.mark.parametrize("name", SERVED)
def test_every_row_with_every_mask(name, interpreter):
    one: dict[str, Any] = {"name": name}
    if (structure := VARIANTS[name].structure) is not None:
        longer = {} if isinstance(structure, Levels) else {"time": 100}  # than its window
        one |= longer | {"key_dim": 4, "value_dim": 3}
    ways: list[dict[str, Any]] = [{}, {"state": True}] if name in WITH_STATE else [{}]
    if name in WITH_STATE and VARIANTS[name].score.degree == 1:
        ways.append({"state": True, "walks": 1})
    for options, mask in product(ways, MASKS):
        check(interpreter, one | options | {"mask": mask})


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_STATE)
def test_split_and_resumed(name, interpreter):
    for how in ("pieces", "steps"):
        check(interpreter, {"name": name, "state": True, "how": how})


HALF = {
    f"{score}, {path}{', decay' if decay else ''}": {"score": score, "decay": decay, **options}
    for score in ("exp", "clamped exp", "linear", "order 2")
    for decay in (False, True)
    for path, options in {
        "keys": {"state": False},
        **({} if "exp" in score else {"state": {"state": True}}),
        **({"walk": {"state": True, "walks": 1}} if score == "linear" else {}),
    }.items()
}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision(dtype, interpreter):
    for case in HALF.values():
        check(interpreter, case | {"dtype": dtype})


WHOLE = ["softmax", "forgetting_transformer", "taylor_2", "taylor_4", "linear_elu", "simple_gla"]
"""The page about GPUs has the errors of the rows that miss."""


@pytest.mark.slow
@pytest.mark.parametrize("name", WHOLE)
def test_half_precision_through_the_whole_of_attend(name, interpreter):
    for dtype, state in product(("bfloat16", "float16"), (False, True) if name in WITH_STATE else (False,)):
        check(interpreter, {"name": name, "dtype": dtype, "state": state})


@pytest.mark.slow
@pytest.mark.parametrize("dims", [(3, 1), (16, 16), (20, 33), (32, 7)])
@pytest.mark.parametrize("name", ["gated_softmax_decay", "linear_elu", "taylor_2"])
def test_any_dimensions(name, dims, interpreter):
    for state in (False, True) if name in WITH_STATE else (False,):
        check(interpreter, {"name": name, "key_dim": dims[0], "value_dim": dims[1], "state": state})


def test_on_a_cpu_it_says_how_to_run_the_interpreter():
    spec = VARIANTS["gated_softmax"]
    with pytest.raises(InputError, match="TRITON_INTERPRET=1"):
        attend(spec, **inputs(spec, torch.float32), form="triton")
    assert choose(spec).form != "triton"


def test_without_triton_it_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(form, "_installed", lambda: False)
    refusal = Triton().refuse(VARIANTS["gated_softmax"], ON_A_CARD)
    assert refusal is not None and "pip install -c constraints.txt '.[gpu]'" in refusal


@pytest.mark.parametrize("name", NAMES)
def test_the_planner_takes_it_on_a_card_where_it_serves(name):
    plan = choose(VARIANTS[name], ON_A_CARD)
    fused_serves = "fused" not in plan.others or "× the time" in plan.others["fused"]
    if name in SERVED:
        # With levels the platform's kernel needs a bias per pair.
        fused_is_best = fused_serves and not isinstance(VARIANTS[name].structure, Levels)
        assert plan.form == ("fused" if fused_is_best else "triton"), plan
    else:
        assert len(plan.others["triton"]) > 20


@pytest.mark.parametrize(
    ("name", "where", "words"),
    [
        ("gla", {}, "per channel"),
        ("deltanet", {}, "write rule"),
        ("softmax_taylor_80terms", {}, "degree"),
        ("softmax", {"dtype": "float64"}, "float64"),
        ("nalaformer", {}, "float64"),
        ("softmax", {"key_dim": 512}, "256"),
        ("taylor_4", {"has_fixed_past": True}, "degree 2"),
        ("log_linear_taylor_2", {"has_fixed_past": True}, "a state per level"),
        ("rat_16", {}, "chunk_ends"),
        ("power_attention_2", {"has_fixed_past": True}, "float64"),
        ("softmax", {"device": "mps"}, "mps"),
    ],
)
def test_it_says_why_it_cannot_serve(name, where, words):
    refusal = Triton().refuse(VARIANTS[name], Situation(**({"device": "cuda"} | where)))
    assert refusal is not None and words in refusal


def test_planning_imports_neither_triton_nor_torch():
    code = (
        "import sys; from softmax_rnn.attention.plan import *; from softmax_rnn.attention.variants import VARIANTS;"
        "choose(VARIANTS['gated_softmax'], Situation(device='cuda'));"
        "assert not {'torch', 'triton'} & set(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr == ""
