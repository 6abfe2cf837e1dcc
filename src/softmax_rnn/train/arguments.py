"""Our settings in the words of transformers' Trainer, the optimiser and the schedule among them."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn
from transformers import TrainingArguments

from softmax_rnn.train.schedule import factor
from softmax_rnn.train.settings import TrainSettings
from softmax_rnn.train.trackers import PROJECT


def on_cpu(settings: TrainSettings) -> bool:
    """Whether the run takes the CPU: asked for, or nothing else is there."""
    return settings.device == "cpu" or not torch.accelerator.is_available()


def training_arguments(settings: TrainSettings, output: Path, name: str, processes: int) -> TrainingArguments:
    """The Trainer's arguments. Saving, evaluating and the order of data are our own, so they are switched off here."""
    cpu = on_cpu(settings)
    return TrainingArguments(
        output_dir=str(output),
        run_name=name,
        max_steps=settings.steps,
        per_device_train_batch_size=settings.rows_of_process(processes),
        gradient_accumulation_steps=settings.accumulate,
        seed=settings.seed,
        max_grad_norm=settings.clip or 0.0,
        bf16=settings.precision == "bf16",
        gradient_checkpointing=settings.recompute,
        use_cpu=cpu,
        ddp_backend="gloo" if cpu and processes > 1 else None,
        ddp_find_unused_parameters=False,
        logging_steps=settings.log_every,
        logging_nan_inf_filter=False,
        report_to=list(settings.trackers) or "none",
        save_strategy="no",
        eval_strategy="no",
        ignore_data_skip=True,
        remove_unused_columns=False,
        disable_tqdm=True,
        log_level="error",
        project=PROJECT,
        trackio_static_space_id=False,
    )


def adamw(network: nn.Module, settings: TrainSettings) -> torch.optim.AdamW:
    """AdamW; tensors of one dimension decay only when the settings say so."""
    weights = [p for p in network.parameters() if p.requires_grad]
    plain = [p for p in weights if p.ndim < 2 and not settings.decay_all]
    groups = [
        {"params": [p for p in weights if p.ndim >= 2 or settings.decay_all], "weight_decay": settings.weight_decay},
        {"params": plain, "weight_decay": 0.0},
    ]
    betas = (settings.beta1, settings.beta2)
    groups = [group for group in groups if group["params"]]
    return torch.optim.AdamW(groups, lr=settings.learning_rate, betas=betas, eps=settings.epsilon)


def learning_rates(optimizer: torch.optim.Optimizer, settings: TrainSettings) -> torch.optim.lr_scheduler.LambdaLR:
    """The schedule of the settings."""
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: factor(settings, step))
