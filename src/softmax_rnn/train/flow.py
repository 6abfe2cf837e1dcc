"""When to log, evaluate, save and stop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from softmax_rnn.train.processes import any_process

if TYPE_CHECKING:
    from softmax_rnn.train.engine import Engine


class Flow(TrainerCallback):
    """Decides after every step; Trainer then logs, evaluates and saves, in this order."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """The network before its first step is measured too."""
        if self._engine.resume is None:
            self._engine.evaluate()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """The last step is always logged, evaluated and saved; a wish to stop is granted with a checkpoint."""
        settings, step = self._engine.job.settings, state.global_step
        self._engine.progress.at(step)
        last = step >= settings.steps
        if last:
            control.should_log = True
        if last or (settings.eval_every is not None and step % settings.eval_every == 0):
            control.should_evaluate = True
        if last or step % settings.checkpoint_every == 0:
            control.should_save = True
        if any_process(self._engine.wish.name is not None, args.device):
            control.should_save = control.should_training_stop = True
