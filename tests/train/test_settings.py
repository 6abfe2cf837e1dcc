"""What a user may write about training, and what the learning rate then is."""

import math

import pytest

from softmax_rnn.errors import InputError
from softmax_rnn.train.optimizer import factor
from softmax_rnn.train.settings import TrainSettings
from softmax_rnn.validation import checked


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"steps": 0}, "steps: expected a number greater than 0, got 0"),
        ({"steps": 1.5}, "steps: expected a valid integer"),
        ({"batch_size": "many"}, "batch_size: expected a valid integer, got 'many'"),
        ({"seed": -1}, "seed: expected a number greater than or equal to 0, got -1"),
        ({"learning_rate": math.inf}, "learning_rate: expected a finite number, got inf"),
        ({"beta2": 1.0}, "beta2: expected a number less than 1, got 1.0"),
        ({"clip": 0}, "clip: expected a number greater than 0, got 0"),
        ({"keep_checkpoints": 1}, "keep_checkpoints: expected a number greater than or equal to 2, got 1"),
        ({"nonfinite": "ignore"}, "nonfinite: expected 'stop' or 'skip', got 'ignore'"),
        ({"trackers": ["tensorbord"]}, "expected 'tensorboard', 'wandb' or 'trackio', got 'tensorbord'"),
        ({"warmup_steps": 40, "decay_steps": 40}, "decay_steps: expected more than warmup_steps = 40, got 40"),
        ({"warmup": 3}, "unknown setting 'warmup'; did you mean 'warmup_steps'?"),
    ],
)
def test_wrong_values_are_one_line(settings, said):
    with pytest.raises(InputError) as caught:
        checked(TrainSettings, settings)
    assert said in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_linear_schedule():
    settings = TrainSettings(steps=100_000, warmup_steps=10_000, decay_steps=1_000_000)
    result = [factor(settings, step) for step in (0, 1, 5_000, 10_000, 505_000, 100_000, 1_000_000, 2_000_000)]
    assert result == pytest.approx([0.0, 1e-4, 0.5, 1.0, 0.5, 1 - 90 / 990, 0.0, 0.0], abs=1e-12)


def test_cosine_schedule():
    settings = TrainSettings(steps=110, warmup_steps=10, schedule="cosine")
    expected = [(1 + math.cos(math.pi * done)) / 2 for done in (0.0, 0.25, 0.5, 1.0)]
    assert [factor(settings, step) for step in (10, 35, 60, 110)] == pytest.approx(expected, abs=1e-12)


def test_constant_schedule_and_no_warm_up():
    settings = TrainSettings(steps=10, warmup_steps=0, schedule="constant")
    assert [factor(settings, step) for step in (0, 5, 50)] == [1.0, 1.0, 1.0]


def test_a_run_shorter_than_its_warm_up_only_rises():
    settings = TrainSettings(steps=10, warmup_steps=40)
    assert [factor(settings, step) for step in (0, 4, 9)] == [0.0, 0.1, 9 / 40]
