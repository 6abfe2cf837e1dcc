"""Examples in docstrings as blocks of code: an extension of Griffe, which reads the package for the API pages.

>>> with_fences("Text.\\n\\n>>> 1 + 1\\n2\\n\\nMore.")
'Text.\\n\\n```pycon\\n>>> 1 + 1\\n2\\n```\\n\\nMore.'
"""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*?(?=\n[ \t]*\n(?!>>> )|\Z)", re.MULTILINE | re.DOTALL)


def with_fences(text: str) -> str:
    """The docstring with its examples fenced; one example ends at an empty line."""
    return EXAMPLE.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```", text)


class Doctests(griffe.Extension):
    """Fences the examples of every object."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Change the docstring before it is shown."""
        if obj.docstring:
            obj.docstring.value = with_fences(obj.docstring.value)
