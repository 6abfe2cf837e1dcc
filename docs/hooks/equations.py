"""Blocks of LaTeX (```math, which GitHub shows as well) as MathML: browsers draw it without a script or a font.

>>> with_mathml("```math\\nx^2\\n```")[:41]
'<div class="equation"><math xmlns="http:/'
"""

from __future__ import annotations

import re

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError

FENCE = re.compile(r"^```math\n(.*?)\n```$", re.MULTILINE | re.DOTALL)


def with_mathml(text: str) -> str:
    """The page with every equation converted."""
    return FENCE.sub(lambda block: f'<div class="equation">{_mathml(block[1])}</div>', text)


def _mathml(latex: str) -> str:
    found = convert(latex, display="block")
    if "\\" in found:
        raise PluginError(f"equation: a command is unknown to latex2mathml, which left it as text: {latex}")
    return found
