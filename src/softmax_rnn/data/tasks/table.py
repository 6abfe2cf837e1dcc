"""The tasks by name.

>>> task_config("mqar", length=128, pairs=8).context
128
>>> task_config("mqar", pairs=30)
Traceback (most recent call last):
    ...
softmax_rnn.errors.InputError: pairs: expected at most length/4 = 16, got 30
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from softmax_rnn.data.tasks.induction import Induction
from softmax_rnn.data.tasks.mqar import MQAR
from softmax_rnn.data.tasks.selective_copy import SelectiveCopy
from softmax_rnn.data.tasks.task import Task
from softmax_rnn.errors import unknown_name
from softmax_rnn.validation import checked

TASKS: Mapping[str, type[Task]] = MappingProxyType(
    {"mqar": MQAR, "selective_copy": SelectiveCopy, "induction": Induction}
)


def task_config(name: str, **settings: Any) -> Task:
    """The task of a name with these settings, the others at their defaults.

    >>> task = task_config("induction", length=64)
    >>> task_config(**task.model_dump()) == task
    True
    """
    if name not in TASKS:
        raise unknown_name("task", name, TASKS)
    return checked(TASKS[name], settings, f"setting of {name}")
