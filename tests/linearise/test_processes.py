"""Two processes convert as one does, with copies of the weights or with shards of them."""

import pytest
import torch
import yaml
from safetensors.torch import load_file
from tests.experiment.processes import start_group
from tests.linearise.small import saved, settings

from softmax_rnn.linearise.run import linearise
from softmax_rnn.linearise.settings import resolve

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("fsdp", [False, True], ids=["copies", "shards"])
def test_two_processes_end_as_one(fsdp, tmp_path):
    saved(tmp_path / "model")
    # One step per stage: rounding differs between one process and two, and more steps would magnify it.
    values = settings(tmp_path, to="hedgehog", tokens=480, distil={"tokens": 96}, transfer={"tokens": 96})
    linearise(resolve(values), tmp_path / "one", quiet=True)
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(values | {"fsdp": fsdp}))
    words = ["linearise", "--config", str(path), "--output", str(tmp_path / "two"), "--json"]
    children = start_group(words, tmp_path / "log")
    assert [child.code() for child in children] == [0, 0], [child.said() for child in children]
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    assert one.keys() == two.keys()
    for name in one:
        assert torch.allclose(one[name], two[name], atol=2e-5), name
