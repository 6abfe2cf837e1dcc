"""The model card beside saved weights: what to import, because transformers alone does not know the architecture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from softmax_rnn.attention.formula import formula
from softmax_rnn.console import plural
from softmax_rnn.files import write_text
from softmax_rnn.model.loading import quiet

_TEXT = """---
library_name: softmax-rnn
pipeline_tag: text-generation
---

A `{kind}` with {layers}, saved by the Python package softmax-rnn. transformers does not know
the architecture `{architecture}` by itself: import `softmax_rnn.model` first.

```python
import softmax_rnn.model  # registers the architecture
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("this folder")
```

Attention: {attention}
"""


class WithCard(PreTrainedModel):
    """Saving writes a card, unless there is one."""

    def save_pretrained(self, save_directory: Any, *args: Any, **kwargs: Any) -> None:
        """transformers' own, and the card."""
        with quiet():
            super().save_pretrained(save_directory, *args, **kwargs)
        card = Path(save_directory) / "README.md"
        if kwargs.get("is_main_process", True) and not card.exists():
            text = card_text(self)
            write_text(card, text)


def card_text(model: PreTrainedModel) -> str:
    """The card of a model: which class, how to load it, and the formulas of its layers."""
    config: Any = model.config
    formulas = ["a Mamba-2 mixer" if spec is None else f"`{formula(spec)}`" for spec in config.specs]
    lines = "".join(f"\n- layer {i}: {text}" for i, text in enumerate(formulas))
    attention = formulas[0] if len(set(formulas)) == 1 else f"\n{lines}"
    kind, architecture = type(model).__name__, config.model_type
    return _TEXT.format(
        kind=kind, layers=plural(len(formulas), "layer"), architecture=architecture, attention=attention
    )
