"""The training loop with a network that has no attention at all, against a loop as one would type it."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from softmax_rnn.data.rows import IGNORED
from softmax_rnn.train.batches import Order
from softmax_rnn.train.folder import RunFolder
from softmax_rnn.train.job import Job, run_job
from softmax_rnn.train.nonfinite import NonFiniteError, batch_hash
from softmax_rnn.train.optimizer import factor
from softmax_rnn.train.settings import TrainSettings

VOCAB, LENGTH = 13, 6
BAD_TOKEN = VOCAB - 1


class Bigram(nn.Module):
    """Guesses a token from the one before; nothing here is an attention."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.embedding, self.middle, self.head = nn.Embedding(VOCAB, 8), nn.Linear(8, 8), nn.Linear(8, VOCAB)
        for weight in self.parameters():
            weight.data = 0.3 * torch.randn(weight.shape, generator=generator)

    def forward(self, input_ids):
        return SimpleNamespace(logits=self.head(torch.tanh(self.middle(self.embedding(input_ids)))))


class Breaks(Bigram):
    """No number comes out where the bad token stands."""

    def forward(self, input_ids):
        broken = torch.where(input_ids == BAD_TOKEN, torch.nan, 0.0)
        return SimpleNamespace(logits=self.head(torch.tanh(self.middle(self.embedding(input_ids) + broken[..., None]))))


class Drops(Bigram):
    """Draws random numbers in every training step, and breaks off in step ``last``."""

    def __init__(self, last=None):
        super().__init__()
        self.last, self.step = last, 0

    def forward(self, input_ids):
        self.step += self.training
        if self.step == self.last and self.training:
            raise RuntimeError("the machine is gone")
        hidden = nn.functional.dropout(self.embedding(input_ids), 0.5, self.training)
        return SimpleNamespace(logits=self.head(torch.tanh(self.middle(hidden))))


def rows(count, seed=0, last=VOCAB - 1):
    chance = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        targets = chance.integers(0, last, LENGTH)
        targets[chance.random(LENGTH) < 0.25] = IGNORED
        made.append({"input_ids": chance.integers(0, last, LENGTH), "targets": targets})
    return made


TRAIN, TEST = rows(20), rows(9, seed=1)
SETTINGS = {"steps": 9, "batch_size": 8, "warmup_steps": 2, "learning_rate": 1e-2, "log_every": 2, "eval_every": 4}
SETTINGS |= {"checkpoint_every": 3, "weight_decay": 0.1, "clip": 0.05, "seed": 7}


def train(path, network=None, data=TRAIN, test=TEST, **settings):
    network = network or Bigram()
    job = Job("bigram", network, data, test, TrainSettings(**{**SETTINGS, **settings}), RunFolder(path))
    saved = {}
    outcome = run_job(job, lambda weights, folder: saved.update(weights), quiet=True)
    return outcome, saved, job.folder.metrics()


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return train(tmp_path_factory.mktemp("plain"))


def literal():
    """The same steps, typed out: weights at the end, and the loss and the norm of every step."""
    settings = TrainSettings(**SETTINGS)
    network, order = Bigram(), Order(len(TRAIN), settings.seed)
    matrices = [weight for weight in network.parameters() if weight.ndim > 1]
    others = [weight for weight in network.parameters() if weight.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=settings.learning_rate, betas=(0.9, 0.999), eps=1e-8)
    losses, norms = [], []
    for step in range(settings.steps):
        for group in optimizer.param_groups:
            group["lr"] = settings.learning_rate * factor(settings, step)
        total, count = torch.tensor(0.0), 0
        for index in order.take(step * 8, 8):
            logits = network(torch.from_numpy(TRAIN[index]["input_ids"])[None]).logits[0]
            for t, target in enumerate(TRAIN[index]["targets"].tolist()):
                if target != IGNORED:
                    total, count = total - logits[t].log_softmax(-1)[target], count + 1
        optimizer.zero_grad()
        (total / count).backward()
        norms.append(float(nn.utils.clip_grad_norm_(network.parameters(), settings.clip)))
        losses.append(float(total.detach() / count))
        optimizer.step()
    return network.state_dict(), losses, norms


def test_the_loop_is_the_literal_loop(plain):
    outcome, weights, metrics = plain
    expected, losses, norms = literal()
    assert outcome.step == 9
    for name, weight in expected.items():
        torch.testing.assert_close(weights[name], weight, atol=2e-6, rtol=1e-5)
    lines = [line for line in metrics if "loss" in line]
    assert [line["step"] for line in lines] == [2, 4, 6, 8, 9]
    assert lines[0]["loss"] == pytest.approx(sum(losses[:2]) / 2, abs=1e-6)
    assert lines[-1]["loss"] == pytest.approx(losses[8], abs=1e-6)
    assert [line["gradient_norm"] for line in lines] == pytest.approx([norms[s - 1] for s in (2, 4, 6, 8, 9)], rel=1e-4)
    settings = TrainSettings(**SETTINGS)
    rates = [settings.learning_rate * factor(settings, line["step"] - 1) for line in lines]
    assert [line["learning_rate"] for line in lines] == pytest.approx(rates, rel=1e-12)


def test_metrics_have_all_that_is_promised(plain):
    _, _, metrics = plain
    line = next(line for line in metrics if "loss" in line)
    names = "step loss learning_rate gradient_norm tokens skipped_steps tokens_per_second memory_bytes"
    assert list(line) == names.split()
    assert line["tokens_per_second"] > 0
    assert line["memory_bytes"] > 1e7


def test_evaluation_at_the_start_every_k_steps_and_at_the_end(plain):
    _, _, metrics = plain
    tested = [line for line in metrics if "test_loss" in line]
    assert [line["step"] for line in tested] == [0, 4, 8, 9]
    assert all(line["test_tokens"] == sum((row["targets"] != IGNORED).sum() for row in TEST) for line in tested)
    assert all(len(line["test_loss_by_position"]) == LENGTH for line in tested)
    assert tested[0]["test_perplexity"] == pytest.approx(math.exp(tested[0]["test_loss"]))


def test_tokens_are_the_counted_targets(plain):
    _, _, metrics = plain
    taken = Order(len(TRAIN), 7).take(0, 72)
    count = sum(int((TRAIN[index]["targets"] != IGNORED).sum()) for index in taken)
    assert [line["tokens"] for line in metrics if "loss" in line][-1] == count


@pytest.mark.parametrize("parts", [2, 8])
def test_parts_of_a_batch_give_the_same_as_the_whole(plain, parts, tmp_path):
    _, whole, metrics = plain
    _, weights, actual = train(tmp_path, accumulate=parts)
    for name, weight in whole.items():
        torch.testing.assert_close(weights[name], weight, atol=2e-6, rtol=1e-5)
    losses, expected = ([line["loss"] for line in lines if "loss" in line] for lines in (actual, metrics))
    assert losses == pytest.approx(expected, abs=1e-6)


def test_clipping_limits_and_none_does_not(plain, tmp_path):
    _, clipped, _ = plain
    _, free, _ = train(tmp_path, clip=None)
    assert any(not torch.equal(clipped[name], free[name]) for name in free)


def test_decay_all_reaches_the_biases(plain, tmp_path):
    _, some, _ = plain
    _, every, _ = train(tmp_path, decay_all=True)
    assert not torch.equal(some["head.bias"], every["head.bias"])


def test_bf16_computes_in_halves_and_keeps_weights_in_float32(plain, tmp_path):
    _, full, _ = plain
    network, seen = Bigram(), set()
    network.middle.register_forward_hook(lambda module, given, output: seen.add(output.dtype))
    _, weights, metrics = train(tmp_path, network, precision="bf16")
    assert seen == {torch.bfloat16}
    assert {weight.dtype for weight in weights.values()} == {torch.float32}
    # 8 bits of mantissa in every product, 9 steps.
    for name, weight in full.items():
        torch.testing.assert_close(weights[name], weight, atol=0.02, rtol=0.05)
    assert all(line["loss"] is not None for line in metrics if "loss" in line)


BAD = [*TRAIN[:7], {"input_ids": np.full(LENGTH, BAD_TOKEN), "targets": np.zeros(LENGTH, np.int64)}]


def test_numbers_that_are_not_finite_stop_the_run_with_step_batch_and_place(tmp_path):
    with pytest.raises(NonFiniteError) as caught:
        train(tmp_path, Breaks(), BAD, batch_size=4, accumulate=2)
    order = Order(8, 7).take(0, 8).tolist()
    step = 1 if 7 in order[:4] else 2
    taken = np.stack([BAD[index]["input_ids"] for index in order[4 * step - 4 : 4 * step]])
    said = str(caught.value)
    assert said.startswith(f"step {step}: loss nan, gradient norm nan on batch")
    assert batch_hash([{"input_ids": torch.from_numpy(taken)}]) in said
    assert "first bad output: middle" in said
    assert len(said.splitlines()) == 1


def test_a_test_loss_that_is_not_finite_stops_the_run(tmp_path):
    with pytest.raises(NonFiniteError, match=r"^step 0: the test loss is nan$"):
        train(tmp_path / "stop", Breaks(), test=BAD)
    outcome, _, _ = train(tmp_path / "skip", Breaks(), test=BAD, nonfinite="skip")
    assert outcome.result["test_loss"] is None


def test_steps_that_are_not_finite_are_left_out_and_counted(tmp_path, capsys):
    outcome, weights, metrics = train(tmp_path, Breaks(), BAD, batch_size=4, nonfinite="skip", log_every=1)
    lines = [line for line in metrics if "loss" in line]
    bad = [line["step"] for line in lines if line["loss"] is None]
    turns = [Order(8, 7).take(4 * step, 4).tolist() for step in range(9)]
    assert bad == [step + 1 for step, taken in enumerate(turns) if 7 in taken]
    assert [line["step"] for line in lines if line["gradient_norm"] is None] == bad
    assert outcome.result["skipped_steps"] == len(bad)
    assert outcome.result["train_loss"] == [line["loss"] for line in lines if line["loss"] is not None][-1]
    assert all(weight.isfinite().all() for weight in weights.values())
    (said,) = capsys.readouterr().err.splitlines()
    assert len(bad) > 1 and said.startswith(f"skipped: step {bad[0]}: loss nan")


def test_the_mean_loss_is_that_of_the_steps_that_were_kept(tmp_path):
    _, _, one = train(tmp_path / "one", Breaks(), BAD, batch_size=4, nonfinite="skip", log_every=1)
    _, _, all_at_once = train(tmp_path / "all", Breaks(), BAD, batch_size=4, nonfinite="skip", log_every=9)
    kept = [line["loss"] for line in one if line.get("loss") is not None]
    (line,) = [line for line in all_at_once if "loss" in line]
    assert line["loss"] == pytest.approx(sum(kept) / len(kept), abs=1e-6)


def test_a_run_that_draws_random_numbers_continues_with_the_same_ones(tmp_path):
    _, whole, _ = train(tmp_path / "whole", Drops())
    with pytest.raises(RuntimeError, match="the machine is gone"):
        train(tmp_path / "cut", Drops(last=8))
    torch.rand(5)
    outcome, continued, _ = train(tmp_path / "cut", Drops())
    assert outcome.step == 9
    assert all(torch.equal(continued[name], weight) for name, weight in whole.items())


def test_a_finished_run_whose_model_is_missing_writes_it_again(plain, tmp_path):
    _, expected, _ = plain
    outcome, first, metrics = train(tmp_path)
    (tmp_path / "result.json").unlink()
    again, second, after = train(tmp_path)
    assert again.result == outcome.result
    assert metrics == after
    assert all(torch.equal(first[name], second[name]) and torch.equal(first[name], expected[name]) for name in first)
    starts = json.loads((tmp_path / "environment.json").read_text())["starts"]
    assert [one["step"] for one in starts] == [0, 9]
