"""A run by one call: settings and a folder in, a trained model and its records out.

>>> import tempfile
>>> config = resolve({"data": {"source": "mqar", "vocab_size": 32, "length": 16, "pairs": 2, "train_examples": 64,
...                            "test_examples": 16}, "steps": 2, "batch_size": 8, "model": {"num_hidden_layers": 1}})
>>> outcome = run_training(config, tempfile.mkdtemp(), quiet=True)
>>> outcome.step, sorted(outcome.result)[:2]
(2, ['config_hash', 'data'])
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from softmax_rnn.attention import nonpositive
from softmax_rnn.console import ERR
from softmax_rnn.data.rows import LoadedData
from softmax_rnn.errors import InputError
from softmax_rnn.experiment.config import RunConfig, differences, resolve, result_of
from softmax_rnn.experiment.network import build_network, explanation, save_network, state_bytes
from softmax_rnn.experiment.run_data import load_run_data
from softmax_rnn.experiment.run_plan import check_memory
from softmax_rnn.experiment.score_probe import score_probe
from softmax_rnn.train.checkpoint import Writer
from softmax_rnn.train.folder import RunFolder
from softmax_rnn.train.job import Job, Outcome, run_job
from softmax_rnn.train.processes import process_group, this_share
from softmax_rnn.train.trackers import check_trackers
from softmax_rnn.validation import check_output, read_json, read_settings

ROW_SUMS = "nonpositive_row_sums"
"""The name of a count in a result: row sums that were 0 or negative, in training and evaluation."""


def run_training(config: RunConfig, output: str | Path, *, quiet: bool = False) -> Outcome:
    """Train in a folder. One that holds the same run is continued; one that is finished is left as it is."""
    check_run(config, output, this_share().processes)
    folder = RunFolder(Path(output))
    finished = result_of(config, folder)
    if finished is not None:
        return Outcome(folder.path, finished["step"], None, finished)
    # Before the processes are joined: none then waits for an answer while another prepares the data.
    data = load_run_data(config)
    check_data(data.facts, folder)
    with process_group(config):
        return _run(config, data, folder, quiet)


def check_run(config: RunConfig, output: str | Path, processes: int) -> None:
    """Refuse what cannot run, before anything is made or loaded."""
    if not isinstance(config, RunConfig):
        raise InputError(f"config: expected what resolve(settings) returns, got a {type(config).__name__}")
    folder = RunFolder(Path(output))
    check_folder(config, folder)
    config.rows_of_process(processes)
    check_trackers(config.trackers)
    if folder.result() is None:
        check_memory(config, processes)


def _run(config: RunConfig, data: LoadedData, folder: RunFolder, quiet: bool) -> Outcome:
    network = build_network(config, data.vocab_size)
    facts = {
        "config_hash": config.content_hash(),
        "variant": config.variant,
        **({"layers": config.layers} if config.layers else {}),
        "size": config.size,
        "seed": config.seed,
        "parameters": sum(weight.numel() for weight in network.parameters()),
        "state_bytes": state_bytes(network.config, config.context),
        "data": data.facts,
    }
    records: dict[str, Writer] = {
        folder.config.name: lambda path: path.write_text(config.to_yaml(), encoding="utf-8"),
        folder.data.name: lambda path: path.write_text(json.dumps(data.facts, indent=2), encoding="utf-8"),
    }
    with nonpositive.counted() as count:
        job = Job(
            name=f"{config.label} {config.size}",
            network=network,
            train=data.train,
            test=data.test,
            settings=config,
            folder=folder,
            diagnose=explanation,
            measured=score_probe(network, data.test, config.context) if config.measure_scores else dict,
            counted=lambda: {ROW_SUMS: count.row_sums},
        )
        outcome = run_job(
            job,
            lambda weights, path: save_network(network, weights, data.tokenizer, path),
            records=records,
            facts=facts,
            quiet=quiet,
        )
    if outcome.result and outcome.result[ROW_SUMS] and not quiet:
        number = outcome.result[ROW_SUMS]
        ERR.print(f"{number:,} row sums were not positive; the outputs of these rows are not averages", highlight=False)
    return outcome


def check_data(facts: dict[str, Any], folder: RunFolder) -> None:
    """Refuse to continue a run on data that has changed."""
    if not folder.data.exists():
        return
    before = read_json(folder.data, "run")
    if not isinstance(before, dict):
        raise InputError(f"run: {folder.data} is damaged: expected an object")
    changed = differences(before, facts)
    if changed:
        raise InputError(
            f"data: the data has changed since the run in {folder.path} began ({_first(changed)});"
            " choose another folder"
        )


def check_folder(config: RunConfig, folder: RunFolder) -> None:
    """Refuse a folder that holds another run, or something else altogether, or that cannot be written."""
    check_output(folder.path, folder=True)
    if folder.config.exists():
        changed = differences(resolve(read_settings(folder.config, "config")).content(), config.content())
        if changed:
            raise InputError(
                f"output: {folder.path} holds a run with other settings ({_first(changed)}); choose another folder"
            )
    elif folder.path.exists() and any(not name.name.startswith(".") for name in folder.path.iterdir()):
        raise InputError(f"output: the folder {folder.path} holds other files and no run; choose another folder")


def _first(changed: dict[str, list[Any]]) -> str:
    name, (before, now) = next(iter(changed.items()))
    more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
    return f"{name}: {before!r} → {now!r}{more}"
