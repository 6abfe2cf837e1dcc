"""Two processes convert as one does, with copies of the weights or with shards of them."""

import json

import pytest
import yaml
from safetensors.torch import load_file
from tests.experiment.processes import start_group
from tests.linearise.small import saved, settings

from softmax_rnn.linearise.run import linearise
from softmax_rnn.linearise.settings import resolve

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("fsdp", "weights"),
    [(False, "all"), (True, "all"), (True, "attention")],
    ids=["copies", "shards", "shards with tied embeddings"],
)
def test_two_processes_end_as_one(fsdp, weights, tmp_path):
    saved(tmp_path / "model")
    distil = {"tokens": 96, "weights": weights}
    values = settings(tmp_path, to="hedgehog", tokens=480, distil=distil, transfer={"tokens": 96})
    alone = linearise(resolve(values), tmp_path / "one", quiet=True).record
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(values | {"fsdp": fsdp}))
    words = ["linearise", "--config", str(path), "--output", str(tmp_path / "two"), "--json"]
    children = start_group(words, tmp_path / "log")
    assert [child.code() for child in children] == [0, 0], [child.said() for child in children]
    together = json.loads((tmp_path / "two" / "linearise.json").read_text())
    assert [row["loss"] for row in together["losses"]] == pytest.approx([row["loss"] for row in alone["losses"]], 1e-4)
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    assert one.keys() == two.keys()
    for name in one:
        # AdamW's first step has the size of the learning rate wherever a gradient is not 0, and rounding may turn the
        # sign of one that is nearly 0: some weights are two steps apart, the others equal.
        apart = (one[name] - two[name]).abs()
        assert float((apart > 2e-5).float().mean()) < 0.02, name
