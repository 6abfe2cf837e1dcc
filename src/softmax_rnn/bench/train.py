"""What training costs beside the network: the training loop against a bare one, tokenising, and the start of a run."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import torch

from softmax_rnn.bench.results import Claim, Results, Task
from softmax_rnn.bench.timing import Times
from softmax_rnn.data.documents import open_texts
from softmax_rnn.data.rows import LoadedData
from softmax_rnn.data.text import load_text
from softmax_rnn.data.text_config import TextConfig
from softmax_rnn.experiment.config import RunConfig, resolve
from softmax_rnn.experiment.network import build_network
from softmax_rnn.experiment.run_data import load_run_data
from softmax_rnn.train.batches import Batches
from softmax_rnn.train.evaluation import counted, loss_sum
from softmax_rnn.train.folder import RunFolder
from softmax_rnn.train.job import Job
from softmax_rnn.train.loop import TrainingLoop
from softmax_rnn.train.optimizer import adamw, set_learning_rate
from softmax_rnn.train.processes import Share, on_cpu
from softmax_rnn.train.progress import TrainProgress
from softmax_rnn.train.signals import StopSignal

CORPUS = "stdlib"
"""The embedded corpus that is on every machine."""
_FIRST = 2
"""The first steps, which do not count."""


class Clock(TrainProgress):
    """Records when each step is done, on a card too; what is logged after it belongs to the next."""

    def __init__(self) -> None:
        super().__init__("bench", 0, quiet=True)
        self.ticks: list[float] = []

    def at(self, step: int) -> None:
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()
        self.ticks.append(time.perf_counter())

    @property
    def seconds(self) -> float:
        """The time of all steps but the first ones."""
        return self.ticks[-1] - self.ticks[_FIRST - 1]


def loop_seconds(config: RunConfig, data: LoadedData) -> float:
    """The time of the run's steps in the training loop, with its order of data, its checks and its records."""
    network, clock = build_network(config, data.vocab_size), Clock()
    with tempfile.TemporaryDirectory() as name:
        folder = RunFolder(Path(name))
        job = Job("bench", network, data.train, [data.test[0]], config, folder)
        TrainingLoop(job, clock, StopSignal()).run()
    return clock.seconds


def bare_seconds(config: RunConfig, data: LoadedData) -> float:
    """The same steps in a loop as one would type it, with batches prepared beforehand."""
    here = None if on_cpu(config) else torch.accelerator.current_accelerator()
    device = here or torch.device("cpu")  # where the training loop runs
    network = build_network(config, data.vocab_size).train().to(device)  # pyright: ignore[reportArgumentType]
    optimizer = adamw(network, config)
    source = Batches(data.train, config, Share())
    batches = [part for step in range(config.steps) for part in source.of_step(step)]
    clock = Clock()
    for step, rows in enumerate(batches):
        batch = {name: x.to(device) for name, x in rows.items()}
        targets = batch.pop("targets")
        loss = loss_sum(network(**batch).logits, targets) / counted(targets)
        loss.backward()
        set_learning_rate(optimizer, config, step)
        optimizer.step()
        optimizer.zero_grad()
        clock.at(step)
    return clock.seconds


def _loop(steps: int, rounds: int, device: str) -> Task:
    def work(results: Results) -> None:
        text = {"source": CORPUS, "max_documents": 200}
        config = resolve({"size": "nano", "steps": steps + _FIRST, "data": text, "device": device})
        data = load_run_data(config)
        times = Times({"loop": [], "bare": []})
        for turn in range(rounds + 1):
            for name, measure in (("loop", loop_seconds), ("bare", bare_seconds)):
                seconds = measure(config, data)
                if turn:
                    times.seconds[name].append(seconds)
        text = (
            f"nano, {config.batch_size} × {config.context} tokens: the training loop, in units of a bare PyTorch loop"
        )
        results.claims.append(Claim(text, times.ratio("loop", "bare"), 1.1))
        speed = steps * config.batch_size * config.context / times.of("loop")
        results.claims.append(Claim("nano: tokens per second in the training loop", speed, None))

    return Task(f"the training loop, {steps} steps", work)


def _tokenising(tokenizer: str, documents: int | None) -> Task:
    def work(results: Results) -> None:
        with tempfile.TemporaryDirectory() as cache:
            values = {"source": CORPUS, "tokenizer": tokenizer, "max_documents": documents, "cache": cache}
            values["test_fraction"] = 0.1
            config = TextConfig.model_validate(values)
            size = sum(len(text.encode()) for text in open_texts(config))
            # A first time: BPE is trained, libraries are loaded. Only tokens are made again.
            load_text(config, context=256, seed=0)
            shutil.rmtree(Path(cache) / "tokens")
            start = time.perf_counter()
            load_text(config, context=256, seed=0)
            seconds = time.perf_counter() - start
        text = f"{tokenizer}: tokenising {size / 1e6:.1f} MB of {CORPUS} with {config.workers} workers, MB per second"
        results.claims.append(Claim(text, size / 1e6 / seconds, 1.0, at_most=False))

    return Task(f"tokenising: {tokenizer}", work)


def seconds_to_first_step(texts: Path, folder: Path, device: str) -> float:
    """From the start of a process that trains nano on a file to the end of its first step."""
    options = {
        "data.test_documents": 16,
        "data.test_fraction": 0.1,
        "log_every": 1,
        "eval_every": "null",
        "device": device,
    }
    command = [sys.executable, "-m", "softmax_rnn", "train", "--data", str(texts), "--steps", "2"]
    command += ["--output", str(folder), "--set", f"data.cache={texts.parent / 'cache'}"]
    for name, value in options.items():
        command += ["--set", f"{name}={value}"]
    start, first = time.perf_counter(), None
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if first is None and " 1/2 loss" in line:
                first = time.perf_counter() - start
    if first is None:
        raise RuntimeError(f"the run of the bench failed: {''.join(lines)}")
    return first


def write_pages(path: Path, pages: int) -> None:
    """A file of short documents, so that the evaluation at the start of a run is short as well."""
    texts = open_texts(TextConfig.model_validate({"source": CORPUS, "max_documents": pages}))
    path.write_text("".join(json.dumps({"text": text[:1000]}) + "\n" for text in texts), encoding="utf-8")


def _start(rounds: int, device: str) -> Task:
    def work(results: Results) -> None:
        with tempfile.TemporaryDirectory() as name:
            texts = Path(name) / "texts.jsonl"
            write_pages(texts, pages=1000)
            # The first one tokenises.
            turns = [seconds_to_first_step(texts, Path(name) / str(turn), device) for turn in range(rounds + 1)]
        text = "warm start: seconds from the start of the process to the end of the first step"
        results.claims.append(Claim(text, median(turns[1:]), 6.0))

    return Task("warm start", work)


def train_tasks(quick: bool = False, on_card: bool = False) -> Iterator[Task]:
    """All claims about the cost of training; quick: fewer steps, fewer rounds, part of the text."""
    device = "auto" if on_card else "cpu"  # the training loop finds the card by itself
    yield _loop(10 if quick else 20, 2 if quick else 7, device)
    for tokenizer in ("bytes", "bpe"):
        yield _tokenising(tokenizer, 300 if quick else None)
    yield _start(1 if quick else 3, device)
