"""The benches run, measure what they say, and claims can fail; no test looks at a time."""

import pytest
import torch

from softmax_rnn.analysis.perplexity import perplexity
from softmax_rnn.attention.attend import attend
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.bench import attention, decode, field, memory, model_step, state_loss, structure, timing
from softmax_rnn.bench.inputs import random_inputs
from softmax_rnn.bench.peers import materialised, sdpa
from softmax_rnn.bench.races import per_token_task
from softmax_rnn.bench.results import Claim, Results, Task, run
from softmax_rnn.cli import bench
from softmax_rnn.report.bench_charts import state_loss_chart


@pytest.mark.parametrize("name", ["softmax", "gated_softmax_decay", "linear_elu", "taylor_2", "gated_softmax_cumgate"])
def test_the_materialised_formula_is_the_same_function(name):
    tensors = random_inputs(VARIANTS[name], heads=2, time=9, key_dim=8, dtype=torch.float64)
    torch.testing.assert_close(materialised(VARIANTS[name], tensors), attend(VARIANTS[name], **tensors))


def test_the_platform_kernel_is_softmax():
    tensors = random_inputs(VARIANTS["softmax"], heads=2, time=9, key_dim=8, dtype=torch.float64)
    torch.testing.assert_close(sdpa(tensors), attend(VARIANTS["softmax"], **tensors))


def test_a_race_gives_every_contestant_every_round():
    calls = []
    times = timing.race({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 3)
    assert calls == ["a", "b"] * 4
    assert all(len(seconds) == 3 for seconds in times.seconds.values())


def test_ratios_are_taken_round_by_round():
    times = timing.Times({"mine": [2.0, 20.0, 4.0], "peer": [1.0, 10.0, 1.0]})
    assert times.ratio("mine", "peer") == 2.0
    assert times.of("mine") == 4.0


@pytest.mark.parametrize(
    ("claim", "holds"),
    [
        (Claim("", 1.0, 1.5), True),
        (Claim("", 1.6, 1.5), False),
        (Claim("", 4.0, 5.0, at_most=False), False),
        (Claim("", 4.0, None), None),
    ],
)
def test_a_claim_can_fail(claim, holds):
    assert claim.holds is holds


def test_rows_name_the_form_that_ran():
    results = Results()
    rows = attention.measure(results, ("softmax", "gated_softmax"), 64, 64, backward=True, rounds=1)
    assert set(rows) == {"softmax", "gated_softmax"}
    assert [row["variant"] for row in results.rows] == ["softmax", "gated_softmax"]
    assert rows["softmax"]["form"] == "fused"


def test_the_plan_is_compared_with_every_form_that_serves():
    results = run([attention._plan("linear_elu", 64, 64, 1)])
    assert results.choices[0].planned in {"parallel", "blockwise", "chunked"}
    assert results.choices[0].loss >= 0.5


@pytest.mark.slow
def test_memory_is_measured_in_a_process_of_its_own():
    small = memory.in_subprocess(variant="gated_softmax", time=256, key_dim=16, heads=2)
    large = memory.in_subprocess(variant="gated_softmax", time=8192, key_dim=16, heads=8)
    assert small < large < 5e8  # all weights would take 2.1 GB


def test_what_a_part_costs_beside_the_row_without_it():
    tasks = [field.cost_of_decay("retnet", 64, None, 1), field.against_row("deltanet", "linear_elu", 64, None, 1)]
    tasks.append(per_token_task("gla", (64, 128), None, 1, heads=2, backward=True))
    results = run(tasks)
    assert len(results.claims) == 3 and all(claim.measured > 0 for claim in results.claims)
    names = [task.title for task in field.field_tasks()]
    assert len(names) == len(set(names)) == 15


def test_every_variant_has_a_memory_task():
    assert len(list(attention.memory_tasks())) == len(VARIANTS)


def small_llama(name: str) -> torch.nn.Module:
    return model_step.llama(model_step.ours("softmax", "nano")).eval()


def test_both_models_of_a_training_step_are_the_same_function():
    ours = model_step.ours("softmax", "nano")
    theirs = model_step.llama(ours)
    ids = torch.arange(12)[None]
    torch.testing.assert_close(ours(input_ids=ids).logits, theirs(input_ids=ids).logits, atol=1e-5, rtol=1e-5)


def test_the_materialised_model_is_the_same_function_and_comes_back():
    ours, ids = model_step.ours("gated_softmax", "nano").eval(), torch.arange(12)[None]
    before = ours(input_ids=ids, use_cache=False).logits
    with model_step.materialised_formula():
        inside = ours(input_ids=ids, use_cache=False).logits
    torch.testing.assert_close(inside, before, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours(input_ids=ids, use_cache=False).logits, before, atol=0, rtol=0)


@pytest.mark.parametrize(("name", "grows"), [("softmax", True), ("taylor_2", False)])
def test_states_of_a_long_context_have_its_size(name, grows):
    ours = model_step.ours(name, "nano")
    short, long = decode.our_cache(ours, 64), decode.our_cache(ours, 128)
    assert long.get_seq_length() == 128
    assert long.state_bytes() > short.state_bytes() if grows else long.state_bytes() == short.state_bytes()
    assert ours(input_ids=torch.zeros(1, 1, dtype=torch.long), past_key_values=long).logits.isfinite().all()


def test_states_with_a_structure_do_not_grow():
    for name in structure.FLAT:
        assert len(set(structure.state_bytes(name, (200, 260)))) == 1, name
    assert structure.state_bytes("softmax", (200, 400))[1] > 1.9 * structure.state_bytes("softmax", (200,))[0]


def test_states_of_levels_grow_with_the_logarithm():
    for name in structure.LOGARITHMIC:
        sizes = structure.state_bytes(name, (31, 63, 127))
        assert sizes[1] - sizes[0] == sizes[2] - sizes[1] > 0, name


def test_levels_are_measured_beside_the_row_without_them():
    results = run([structure._levels("log_linear_linear", 64, 1)])
    assert [claim.limit for claim in results.claims] == [3.0, 3.0]
    assert "forward" in results.claims[0].text and all(claim.measured > 0 for claim in results.claims)


def test_the_window_by_hand_is_ours():
    q, k, v = (torch.randn(1, 2, 512, 64, generator=torch.Generator().manual_seed(n)) for n in range(3))
    torch.testing.assert_close(structure.banded_by_hand(q, k, v), attend(structure.SPEED["window"], q, k, v))


def test_loss_against_state(monkeypatch):
    ids = torch.randint(1, 40, (31,), generator=torch.Generator().manual_seed(0)).tolist()
    monkeypatch.setattr(state_loss, "load_pretrained", small_llama)
    monkeypatch.setattr(state_loss, "load_tokenizer", lambda name: lambda *text, **options: {"input_ids": ids})
    results = run(list(state_loss.state_loss_tasks("any", None, 30, (4,))))
    result = {row["variant"]: row for row in results.rows}
    assert len(result) == 8 and result["softmax"]["width"] is None
    expected = perplexity(state_loss.load_pretrained("any"), ids, 30).loss
    assert result["softmax"]["loss"] == pytest.approx(expected, rel=1e-5)
    sizes = [result[name]["state_bytes"] for name in ("window", "kept keys", "kept keys, far of order 1")]
    # A window of 64 is all of so short a text.
    assert sizes == sorted(sizes) and len({row["loss"] for row in result.values()}) == 7
    assert len(state_loss_chart(results.to_json()).to_dict()["layer"]) == 3


@pytest.mark.slow
def test_the_commands_about_structures(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(structure, "MEMORY", ("softmax", "near_far_64"))
    monkeypatch.setattr(structure, "_speed", lambda time, rounds: Task("speed", lambda results: None))
    monkeypatch.setattr(structure, "LEVELS", {})
    bench.structure(quick=True, output=tmp_path / "structure")
    assert (tmp_path / "structure" / "chart.svg").is_file() and "near_far_64: bytes" in capsys.readouterr().out
    monkeypatch.setattr(state_loss, "ways", lambda widths: iter([("softmax", None, structure.SPEED["window"])]))
    monkeypatch.setattr(state_loss, "load_pretrained", small_llama)
    monkeypatch.setattr(state_loss, "load_tokenizer", lambda name: lambda *text, **options: {"input_ids": [1, 2, 3]})
    bench.state("any", tokens=2, output=tmp_path / "state")
    assert (tmp_path / "state" / "chart.svg").is_file()
