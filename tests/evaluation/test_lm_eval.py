"""The registered model of the lm-evaluation-harness, offline."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from lm_eval import simple_evaluate
from lm_eval.api.instance import Instance
from lm_eval.api.registry import get_model
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager

from softmax_rnn.errors import InputError, UnknownNameError
from softmax_rnn.evaluation.__main__ import evaluate
from softmax_rnn.evaluation.harness import SoftmaxRNNLM, read_dtype
from softmax_rnn.model.convert import convert
from softmax_rnn.model.pretrained import load_pretrained, load_tokenizer

torch.set_num_threads(1)

OTHERS = ["softmax", "gated_softmax", "gated_softmax_no_gate_L2norm_nodivS_noclamp", "linear_cosine"]
VARIANTS = [None, "taylor_2", *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)]


def test_the_model_is_registered() -> None:
    assert get_model("softmax_rnn") is SoftmaxRNNLM


def requests() -> list[Instance]:
    pairs = [
        ("one two three", " four"),
        ("red", " green blue old new"),
        ("five six seven eight five six seven", " eight"),
        ("old new old new old", " end end end"),
        ("two four", " six eight"),
        ("one two three", " red"),
        ("one", " two"),
    ]
    return [Instance("loglikelihood", {}, pair, i) for i, pair in enumerate(pairs)]


@pytest.mark.parametrize("variant", VARIANTS)
def test_scores_do_not_change_with_the_batch_size(checkpoint: Path, variant: str | None) -> None:
    actual = []
    for size in (1, 2, 3, 7):
        model = SoftmaxRNNLM(pretrained=str(checkpoint), variant=variant, batch_size=size)
        assert model.batch_size == size
        likelihood = model.loglikelihood(requests(), disable_tqdm=True)
        options = {"max_gen_toks": 5, "do_sample": False, "until": ["</s>"]}
        texts = [Instance("generate_until", {}, (r.args[0], dict(options)), i) for i, r in enumerate(requests())]
        rolling = [Instance("loglikelihood_rolling", {}, (r.args[0],), i) for i, r in enumerate(requests())]
        actual.append(
            (likelihood, model.generate_until(texts, disable_tqdm=True), model.loglikelihood_rolling(rolling, True))
        )
    likelihoods, generated, perplexities = zip(*actual, strict=True)
    for other in likelihoods[1:]:
        assert [greedy for _, greedy in other] == [greedy for _, greedy in likelihoods[0]]
        assert [x for x, _ in other] == pytest.approx([x for x, _ in likelihoods[0]], abs=1e-5)
    for other in perplexities[1:]:
        assert other == pytest.approx(perplexities[0], abs=1e-5)
    assert all(texts == generated[0] for texts in generated[1:])


def scores(tasks: Path, batch_size: int, **arguments: Any) -> dict[str, Any]:
    given = ",".join(f"{name}={value}" for name, value in arguments.items())
    actual = simple_evaluate(
        model="softmax_rnn",
        model_args=given,
        tasks=["toy_choice", "toy_text", "toy_rolling"],
        batch_size=batch_size,
        device="cpu",
        task_manager=TaskManager(include_path=str(tasks), include_defaults=False),
        bootstrap_iters=0,
    )
    assert actual is not None
    return actual["results"]


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["gated_softmax", "softmax"])
def test_tasks_from_files_by_name(checkpoint: Path, tasks: Path, variant: str) -> None:
    """What ``lm_eval --model softmax_rnn --model_args pretrained=…,variant=…`` runs, for two batch sizes."""
    first, other = (scores(tasks, size, pretrained=checkpoint, variant=variant) for size in (1, 3))
    assert other["toy_choice"]["acc,none"] == first["toy_choice"]["acc,none"]
    assert other["toy_choice"]["acc_norm,none"] == first["toy_choice"]["acc_norm,none"]
    assert other["toy_text"]["exact_match,none"] == first["toy_text"]["exact_match,none"]
    expected = pytest.approx(first["toy_rolling"]["word_perplexity,none"], rel=1e-5)
    assert other["toy_rolling"]["word_perplexity,none"] == expected


def test_a_converted_softmax_scores_as_the_harness_own_model(checkpoint: Path) -> None:
    theirs = HFLM(pretrained=str(checkpoint), device="cpu", batch_size=2)
    expected = theirs.loglikelihood(requests(), disable_tqdm=True)
    ours = SoftmaxRNNLM(pretrained=str(checkpoint), variant="softmax", batch_size=3)
    actual = ours.loglikelihood(requests(), disable_tqdm=True)
    assert [x for x, _ in actual] == pytest.approx([x for x, _ in expected], abs=1e-5)
    assert [greedy for _, greedy in actual] == [greedy for _, greedy in expected]


def test_a_saved_conversion_is_evaluated_by_its_folder(checkpoint: Path, tmp_path: Path) -> None:
    model = convert(load_pretrained(checkpoint), "taylor_2")
    model.save_pretrained(tmp_path)
    load_tokenizer(checkpoint).save_pretrained(tmp_path)
    expected = SoftmaxRNNLM(pretrained=str(checkpoint), variant="taylor_2").loglikelihood(requests(), disable_tqdm=True)
    actual = SoftmaxRNNLM(pretrained=str(tmp_path), batch_size=4).loglikelihood(requests(), disable_tqdm=True)
    assert [x for x, _ in actual] == pytest.approx([x for x, _ in expected], abs=1e-5)


def test_arguments(checkpoint: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"argument of the softmax_rnn model 'varient'; did you mean 'variant'"):
        SoftmaxRNNLM(pretrained=str(checkpoint), varient="softmax")
    with pytest.raises(UnknownNameError, match="did you mean 'softmax'"):
        SoftmaxRNNLM(pretrained=str(checkpoint), variant="sofmax")
    with pytest.raises(InputError, match="there is no folder"):
        SoftmaxRNNLM(pretrained="/no/such/folder")
    with pytest.raises(InputError, match="needs its tokenizer"):
        SoftmaxRNNLM(pretrained=load_pretrained(checkpoint))
    with pytest.raises(UnknownNameError, match="dtype 'float31'; did you mean 'float32'"):
        SoftmaxRNNLM(pretrained=str(checkpoint), dtype="float31")
    assert read_dtype("auto") is None
    model = SoftmaxRNNLM(pretrained=str(checkpoint), dtype="float64", device="cpu", max_length=32)
    assert model.model.dtype == torch.float64 and model.max_length == 32


@pytest.mark.slow  # the harness reads the files of all its tasks first
def test_the_command(checkpoint: Path, tasks: Path, tmp_path: Path) -> None:
    """``python -m softmax_rnn.evaluation`` is the harness's command with our model in it."""
    command = [sys.executable, "-m", "softmax_rnn.evaluation", "run", "--model", "softmax_rnn"]
    command += ["--model_args", f"pretrained={checkpoint},variant=linear_elu", "--include_path", str(tasks)]
    command += ["--tasks", "toy_choice", "--batch_size", "2", "--device", "cpu", "--output_path", str(tmp_path)]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    (written,) = tmp_path.rglob("results_*.json")
    result = json.loads(written.read_text())["results"]["toy_choice"]
    assert 0 <= result["acc,none"] <= 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--nope"], "eval: unrecognized arguments: --nope"),
        (["nope"], "eval: argument COMMAND: invalid choice: 'nope'"),
        (
            ["run", "--model", "softmax_rnn", "--model_args", "x", "--tasks", "x"],
            "eval: argument --model_args",
        ),
        # Reads the files of all its tasks, too.
        pytest.param(
            ["run", "--model", "softmax_rnn", "--tasks", "lambada_opena"],
            "unknown task 'lambada_opena'; did you mean",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_wrong_arguments_are_one_line(arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [])
    with pytest.raises(InputError, match=message) as caught:
        evaluate(arguments)
    assert "\n" not in str(caught.value)
