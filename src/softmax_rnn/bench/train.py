"""What training costs beside the network: the engine's loop against a bare one, tokenising, and the start of a run."""

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
from typing import Any

from transformers import TrainerCallback

from softmax_rnn.bench.results import Claim, Results, Task
from softmax_rnn.bench.timing import Times
from softmax_rnn.data.config import TextConfig
from softmax_rnn.data.documents import open_texts
from softmax_rnn.data.text import load_text
from softmax_rnn.experiment.config import RunConfig, resolve
from softmax_rnn.experiment.material import Material, load_material
from softmax_rnn.experiment.network import build_network
from softmax_rnn.train.arguments import adamw, learning_rates
from softmax_rnn.train.engine import Engine
from softmax_rnn.train.feed import Feed, Share
from softmax_rnn.train.folder import RunFolder
from softmax_rnn.train.job import Job
from softmax_rnn.train.loss import counted, loss_sum
from softmax_rnn.train.progress import TrainProgress
from softmax_rnn.train.signals import StopWish

CORPUS = "stdlib"
"""The embedded corpus that is on every machine."""
_FIRST = 2
"""Steps in front that do not count."""


class Clock(TrainerCallback):
    """Notes when each step is done."""

    def __init__(self) -> None:
        self.ticks: list[float] = []

    def on_step_end(self, *given: Any, **named: Any) -> None:
        """A step is done; what Trainer logs after it belongs to the next."""
        self.ticks.append(time.perf_counter())

    @property
    def seconds(self) -> float:
        """The time of all steps but the first ones."""
        return self.ticks[-1] - self.ticks[_FIRST - 1]


def engine_seconds(config: RunConfig, material: Material) -> float:
    """The time of the run's steps in the engine, with its order of data, its checks and its records."""
    network = build_network(config, material.vocab_size)
    with tempfile.TemporaryDirectory() as name:
        folder = RunFolder(Path(name))
        job = Job("bench", network, material.train, [material.test[0]], config, folder)
        engine = Engine(job, TrainProgress("bench", config.steps, quiet=True), StopWish())
        clock = Clock()
        engine.add_callback(clock)
        engine.train()
    return clock.seconds


def bare_seconds(config: RunConfig, material: Material) -> float:
    """The same steps in a loop as one would type it, with batches that lie ready."""
    network = build_network(config, material.vocab_size).train()
    optimizer = adamw(network, config)
    schedule = learning_rates(optimizer, config)
    feed = iter(Feed(material.train, config, Share(), first_step=0))
    batches = [next(feed) for _ in range(config.steps)]
    clock = Clock()
    for batch in batches:
        targets = batch.pop("targets")
        loss = loss_sum(network(**batch).logits, targets) / counted(targets)
        loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        clock.on_step_end()
    return clock.seconds


def _loop(steps: int, rounds: int) -> Task:
    def work(results: Results) -> None:
        config = resolve({"size": "nano", "steps": steps + _FIRST, "data": {"source": CORPUS, "max_documents": 200}})
        material = load_material(config)
        times = Times({"engine": [], "bare": []})
        for turn in range(rounds + 1):
            for name, measure in (("engine", engine_seconds), ("bare", bare_seconds)):
                seconds = measure(config, material)
                if turn:
                    times.seconds[name].append(seconds)
        text = (
            f"nano, {config.batch_size} × {config.context} tokens: the engine's loop, in units of a bare PyTorch loop"
        )
        results.claims.append(Claim(text, times.ratio("engine", "bare"), 1.1))
        speed = steps * config.batch_size * config.context / times.of("engine")
        results.claims.append(Claim("nano: tokens a second in the engine's loop", speed, None))

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
        text = f"{tokenizer}: tokenising {size / 1e6:.1f} MB of {CORPUS} with {config.workers} workers, MB a second"
        results.claims.append(Claim(text, size / 1e6 / seconds, 1.0, at_most=False))

    return Task(f"tokenising: {tokenizer}", work)


def seconds_to_first_step(texts: Path, folder: Path) -> float:
    """From the start of a process that trains nano on a file to the end of its first step."""
    options = {"data.test_documents": 16, "data.test_fraction": 0.1, "log_every": 1, "eval_every": "null"}
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
    """A file of short documents, so that the evaluation at the start of a run is short too."""
    texts = open_texts(TextConfig.model_validate({"source": CORPUS, "max_documents": pages}))
    path.write_text("".join(json.dumps({"text": text[:1000]}) + "\n" for text in texts), encoding="utf-8")


def _start(rounds: int) -> Task:
    def work(results: Results) -> None:
        with tempfile.TemporaryDirectory() as name:
            texts = Path(name) / "texts.jsonl"
            write_pages(texts, pages=1000)
            # The first one tokenises.
            seconds = [seconds_to_first_step(texts, Path(name) / str(turn)) for turn in range(rounds + 1)][1:]
        text = "warm start: seconds from the start of the process to the end of the first step"
        results.claims.append(Claim(text, median(seconds), 15.0))

    return Task("warm start", work)


def train_tasks(quick: bool = False) -> Iterator[Task]:
    """All claims about the cost of training; quick: fewer steps, fewer rounds, part of the text."""
    yield _loop(steps=10 if quick else 20, rounds=2 if quick else 7)
    for tokenizer in ("bytes", "bpe"):
        yield _tokenising(tokenizer, 300 if quick else None)
    yield _start(rounds=1 if quick else 3)
