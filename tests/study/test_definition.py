import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.study.tiny import SETTINGS, VALUES, tiny_study

from softmax_rnn.__main__ import main
from softmax_rnn.attention.algebra import state_numbers
from softmax_rnn.attention.custom import define
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import InputError
from softmax_rnn.experiment.config import resolve
from softmax_rnn.study.definition import STUDIES, load_study, merged
from softmax_rnn.study.rules import Behind, Equal
from softmax_rnn.study.runs import planned_runs

NAMES = sorted(path.stem for path in STUDIES.glob("*.yaml"))


def _settings_for(settings: dict[str, object]) -> dict[str, object]:
    grid = VALUES["scales"]["cpu"]["grids"]["recall"] | {"settings_for": settings}
    return {"scales": {"cpu": {"minutes": 1, "grids": {"recall": grid}}}}


def test_the_shipped_studies():
    assert {"quick", "sec4.1-denominator", "sec4.2-scaling", "sec4.3-linear", "sec4.4-orders"} < set(NAMES)
    assert {"sec4.5-ablation", "recall"} < set(NAMES)
    new = {"order-or-width", "linear-gap", "near-or-far", "where-the-order-comes-from", "recall-norm"}
    assert new < set(NAMES)
    assert all(load_study(name)[1].scale("cpu").minutes <= 60 for name in new)


def test_order_or_width_compares_states_of_equal_size():
    _, study = load_study("order-or-width")
    define(study.variants)
    for head_dim in (32, 64):  # on text, on recall
        sizes = {name: state_numbers(VARIANTS[name], head_dim, head_dim) for name in study.variants}
        for size, features in (("small", 36), ("large", 126)):
            group = [numbers or 0 for name, numbers in sizes.items() if name.endswith(size)]
            assert len(group) == 7
            assert max(group) == features * (head_dim + 1)
            assert min(group) >= 0.95 * max(group)


@pytest.mark.parametrize(("name", "scale"), [(name, scale) for name in NAMES for scale in load_study(name)[1].scales])
def test_every_shipped_study_resolves_at_its_scales(name: str, scale: str):
    short, study = load_study(name)
    runs = planned_runs(study, scale, Path("out"))
    assert short == name
    assert len({(run.grid, *map(str, run.varied.items())) for run in runs}) == len(runs)
    for grid in study.scale(scale).grids.values():
        assert len(grid.vary["seed"]) >= 3
    assert all(run.config.recipe == "paper" for run in runs if scale == "paper" and run.grid != "recall")


@pytest.mark.parametrize("name", NAMES)
def test_a_study_file_begins_with_question_command_runtime_and_expectation(name: str):
    lines = (STUDIES / f"{name}.yaml").read_text().splitlines()
    head = [line for line in lines if line.startswith("#")]
    assert f"# Command: softmax-rnn study {name}" in head
    assert any(line.startswith("# Runtime: ") for line in head)
    assert any(line.startswith("# Expected: ") for line in head)


def test_the_sections_of_the_paper():
    _, orders = load_study("sec4.4-orders")
    variants = orders.scale("cpu").grids["orders"].vary["variant"]
    assert [f"taylor_{n}" for n in range(1, 11)] == [name for name in variants if name.startswith("taylor")]
    _, denominator = load_study("sec4.1-denominator")
    sources = [data["source"] for data in denominator.scale("paper").grids["language"].vary["data"]]
    assert sources == ["HuggingFaceFW/fineweb", "EleutherAI/the_pile_deduplicated", "cerebras/SlimPajama-627B"]


def test_one_claim_has_one_margin_in_all_studies():
    margins: dict[tuple[object, ...], set[float]] = {}
    for name in NAMES:
        for claim in load_study(name)[1].claims:
            rule = claim.rule
            if isinstance(rule, Equal):
                margins.setdefault((rule.what, rule.to, claim.metric), set()).add(rule.within)
            elif isinstance(rule, Behind) and rule.kind == "not_worse":
                margins.setdefault((rule.what, rule.than, claim.metric), set()).add(rule.by)
    assert {key: result for key, result in margins.items() if len(result) > 1} == {}


def test_a_new_study_names_its_file_in_its_command_only(tmp_path: Path):
    path = tmp_path / "my study.yaml"
    assert main(["study", "new", str(path)]) == 0
    text = path.read_text()
    assert f"# Command: softmax-rnn study '{path}'" in text
    assert text.count(str(path)) == 1 and "NAME" not in text
    load_study(str(path))


def test_varied_settings_reach_inside():
    assert merged({"data": "mqar"}, {"data.pairs": 8, "model.hidden_size": 32}) == {
        "data": {"source": "mqar", "pairs": 8},
        "model": {"hidden_size": 32},
    }


def test_settings_can_go_with_a_varied_value(tmp_path: Path):
    by_variant = {"linear_elu": {"learning_rate": 0.01, "model.num_hidden_layers": 2}}
    path = tmp_path / "s.yaml"
    path.write_text(yaml.safe_dump(VALUES | _settings_for({"variant": by_variant, "seed": {1: {"steps": 7}}})))
    runs = planned_runs(load_study(str(path))[1], "cpu", tmp_path)
    got = {(run.config.variant, run.config.learning_rate, run.config.model["num_hidden_layers"]) for run in runs}
    assert got == {("softmax", resolve(SETTINGS).learning_rate, 1), ("linear_elu", 0.01, 2)}
    assert {(run.config.seed, run.config.steps) for run in runs} == {(0, SETTINGS["steps"]), (1, 7)}
    assert resolve(SETTINGS).learning_rate != 0.01
    path.write_text(yaml.safe_dump(VALUES | _settings_for({"variant": {"softmax": {"stps": 2}}})))
    with pytest.raises(InputError, match=r"grids\.recall: unknown setting 'stps'; did you mean 'steps'"):
        planned_runs(load_study(str(path))[1], "cpu", tmp_path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"titel": "x"}, "unknown key of a study 'titel'; did you mean 'title'?"),
        (
            {"scales": {"cpu": {"minutes": 1, "grids": {"g": {"vary": {"seed": [0, 1, 0]}}}}}},
            "scales.cpu.grids.g.vary: seed: expected different values, got 0 twice",
        ),
        (
            {"scales": {"cpu": {"minutes": float("inf"), "grids": {}}}},
            "scales.cpu.minutes: expected a finite number, got inf",
        ),
        (
            {"scales": {"cpu": {"minutes": -1, "grids": {}}}},
            "scales.cpu.minutes: expected a number greater than 0, got -1",
        ),
        ({"claims": [{"says": "x", "grid": "recal", "rule": {"kind": "falls", "along": ["a", "b"]}}]},
         "unknown grid of a claim 'recal'; did you mean 'recall'?"),
        ({"claims": [{"says": "x", "grid": "recall", "rule": {"kind": "falls", "along": ["softmax", "linear_el"]}}]},
         "unknown variant of a claim 'linear_el'; did you mean 'linear_elu'?"),
        ({"claims": [{"says": "x", "grid": "recall", "rule": {"kind": "falls", "along": ["softmax", "softmax"]}}]},
         "claims: 'x' compares softmax with itself; expected different variants"),
        ({"scales": {"cpu": {"minutes": 1, "grids": {"": {"vary": {"seed": [0]}}}}}, "claims": []},
         "grids: expected a name for each grid, got ''"),
        (_settings_for({"varant": {}}),
         "scales.cpu.grids.recall: unknown varied setting of settings_for 'varant'; did you mean 'variant'?"),
        (_settings_for({"variant": {"softmx": {"steps": 2}}}),
         "scales.cpu.grids.recall: unknown variant of settings_for 'softmx'; did you mean 'softmax'?"),
        (_settings_for({"variant": {"softmax": {"seed": 2}}}),
         "scales.cpu.grids.recall: settings_for.variant: seed varies in this grid; expected it in one place only"),
    ],
)  # fmt: skip
def test_faults_of_a_file_are_one_line(tmp_path: Path, change: dict[str, object], said: str):
    path = tmp_path / "s.yaml"
    path.write_text(yaml.safe_dump(VALUES | change))
    with pytest.raises(InputError) as caught:
        load_study(str(path))
    assert str(caught.value) == f"{path}: {said}"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("quik", "unknown study 'quik'; did you mean 'quick'?"),
        ("nowhere.yaml", "study: nowhere.yaml cannot be read: No such file or directory"),
    ],
)
def test_a_study_that_is_not_there(name: str, said: str):
    with pytest.raises(InputError) as caught:
        load_study(name)
    assert str(caught.value) == said


def test_a_dry_run_and_a_comparison_of_variants_need_no_torch(tmp_path):
    for command in (["study", "recall", "--dry-run"], ["compare", "softmax", "softmax_l2"]):
        code = f"import sys; from softmax_rnn.__main__ import main; main({command}); sys.exit('torch' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=False).returncode == 0


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"size": "smal"}, "unknown size 'smal'; did you mean 'small'?"),
        ({"model": {"hiden_size": 64}}, "unknown option 'hiden_size'; did you mean 'hidden_size'?"),
        ({"model": {"num_attention_heads": 3}}, "model: "),
        ({"variant": "two_mamba", "model": {"use_rope": True}}, "model.use_rope: two_mamba sets it to False, got True"),
    ],
)
def test_models_that_cannot_be_built_are_still_refused_before_a_run(settings, said):
    with pytest.raises(InputError, match=re.escape(said)):
        resolve(settings)


def test_hybrids_are_settings_like_others(tmp_path: Path):
    settings = {**SETTINGS, "model": SETTINGS["model"] | {"num_hidden_layers": 2}}

    def planned(**vary: object):
        grids = {"recall": {"settings": settings, "vary": {**vary, "seed": [0]}}}
        study = tiny_study(tmp_path, scales={"cpu": {"minutes": 1, "grids": grids}}, claims=[])[1]
        return planned_runs(study, "cpu", tmp_path)

    runs = planned(variant=["taylor_2"], layers=[{"0": "softmax"}, {"0": "softmax", "1-": "taylor_4"}])
    assert [run.config.label for run in runs] == ["taylor_2 (0: softmax)", "taylor_2 (0: softmax, 1-: taylor_4)"]
    assert [run.name for run in runs] == [
        "recall-layers0_softmax-seed0-taylor_2",
        "recall-layers0_softmax_1-_taylor_4-seed0-taylor_2",
    ]
    with pytest.raises(InputError, match=r"grids\.recall: layers: 0-2 is not within the layers 0 to 1"):
        planned(layers=[{"0-2": "softmax"}])
