"""A formula written in one line of Unicode as MathML, which browsers draw without a script or a font.

Fractions, roots, sums, powers and indices become what they mean; whatever is unknown stays as it is written.

>>> mathml("w = q·k/√d")[:42]
'<math display="block"><mrow><mi>w</mi><mo>'
>>> "<mfrac>" in mathml("w = q·k/√d"), "<msqrt>" in mathml("w = q·k/√d")
(True, True)
"""

from __future__ import annotations

import re
from html import escape

_UP = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹ⁿⁱᵒ⁺⁻ᵀ", "0123456789nio+−T", strict=True))
_DOWN = dict(zip("₀₁₂₃₄₅₆₇₈₉ₙ₌ⱼᵢᵣₛₜₖ₊₋", "0123456789n=jirstk+−", strict=True))
_CLOSING = {"(": ")", "[": "]", "{": "}", "|": "|"}
_SCRIPTS = "".join([*_UP, *_DOWN])
_TOKEN = re.compile(
    r"(?P<slash> / )|(?P<space>\s+)|(?P<number>\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
    rf"|(?P<name>[A-Za-z]+′?|[^\W\d_{_SCRIPTS}ΣΠ]′?)"
    rf"|(?P<up>[{''.join(_UP)}]+)|(?P<down>[{''.join(_DOWN)}]+)|(?P<other>.)"
)
_BREAKS = {"=", ",", "+", "−", "-"}


def mathml(text: str) -> str:
    """The whole formula, displayed; parts separated by commas are on separate lines."""
    lines = [_Parser(part).all() for part in re.split(r",\s\s+", text)]
    if len(lines) == 1:
        return f'<math display="block">{lines[0]}</math>'
    rows = "".join(f'<mtr><mtd style="text-align:left">{line}</mtd></mtr>' for line in lines)
    return f'<math display="block"><mtable displaystyle="true" columnalign="left">{rows}</mtable></math>'


class _Parser:
    """Reads tokens from left to right; each method returns MathML."""

    def __init__(self, text: str) -> None:
        self.tokens = [(match.lastgroup or "", match[0]) for match in _TOKEN.finditer(text)]
        self.place = 0

    def all(self) -> str:
        items = []
        while self.place < len(self.tokens):
            items.append(self.row(""))
            if self.place < len(self.tokens):  # a bracket that nothing opened
                items.append(_operator(self.take()[1]))
        return f"<mrow>{''.join(items)}</mrow>" if len(items) > 1 else items[0] if items else "<mrow></mrow>"

    def take(self) -> tuple[str, str]:
        self.place += 1
        return self.tokens[self.place - 1]

    def peek(self) -> tuple[str, str]:
        return self.tokens[self.place] if self.place < len(self.tokens) else ("", "")

    def row(self, closing: str) -> str:
        """Everything up to the closing bracket, which is left."""
        items: list[str] = []
        part = chain = 0
        """Where the numerator of a wide fraction, and of a tight one, begins."""
        while self.peek()[1] and not (closing and self.peek()[1] == closing):
            kind, text = self.peek()
            if text in ")]}" and not closing:
                break
            if kind == "slash":
                self.take()
                items[part:] = [_fraction(items[part:], self.row_until_comma(closing))]
            elif text == "/":
                self.take()
                items[chain:] = [_fraction(items[chain:], self.atom())]
            elif kind == "space":
                items += self.gap()
                chain = len(items)
            elif text == "·":
                self.take()
                after_fraction = bool(items) and items[-1].startswith("<mfrac>")
                items.append(_operator("·"))
                chain = len(items) if after_fraction else chain
            else:
                items.append(self.atom())
                if text in _BREAKS:
                    part = chain = len(items)
        return f"<mrow>{''.join(items)}</mrow>"

    def gap(self) -> list[str]:
        """The space beside a word; symbols need none."""
        before, _, after = ("", ""), self.take(), self.peek()
        if self.place > 1:
            before = self.tokens[self.place - 2]
        words = any(kind == "name" and len(text.rstrip("′")) > 1 for kind, text in (before, after))
        return ['<mspace width="0.3em"/>'] if words and before[1] not in _BREAKS else []

    def row_until_comma(self, closing: str) -> str:
        items = []
        while self.peek()[1] and self.peek()[1] not in (",", closing or ","):
            kind, text = self.peek()
            if kind == "space" or (text == "·" and not items):
                self.take()
            elif text in ")]}" and text != closing:
                break
            else:
                items.append(self.atom())
        return f"<mrow>{''.join(items)}</mrow>"

    def atom(self) -> str:
        """A name, a number, a bracket or an operator, with its powers and indices."""
        kind, text = self.take() if self.peek()[1] else ("", "")
        if kind == "number":
            made = f"<mn>{escape(text)}</mn>"
        elif kind == "name":
            made = self.applied(text)
        elif text in ("Σ", "Π"):
            return self.sum(text)
        elif text == "√":
            made = f"<msqrt>{self.atom()}</msqrt>"
        elif text in _CLOSING:
            made = self.bracket(text)
        else:
            return _operator(text)
        return self.scripts(made)

    def applied(self, name: str) -> str:
        """A name, before its brackets if it is a function's; words of several letters are upright."""
        upright = ' mathvariant="normal"' if len(name.rstrip("′")) > 1 else ""
        made = self.scripts(f"<mi{upright}>{escape(name)}</mi>")
        if self.peek()[1] == "(":
            self.take()
            made = f"<mrow>{made}{self.bracket('(')}</mrow>"
        return made

    def bracket(self, opening: str) -> str:
        closing = _CLOSING[opening]
        inner = self.row(closing)
        if self.peek()[1] == closing:
            self.take()
        if opening == "{":
            return inner
        return f"<mrow><mo>{opening}</mo>{inner}<mo>{closing}</mo></mrow>"

    def sum(self, sign: str) -> str:
        """Σ, with what is written under and over it."""
        big = f'<mo movablelimits="false">{"∑" if sign == "Σ" else "∏"}</mo>'
        kind, text = self.peek()
        if kind == "down":
            self.take()
            under = _script(text, _DOWN)
            if self.peek()[1] == "…":
                self.take()
                return f"<munderover>{big}{under}{self.atom()}</munderover>"
            return f"<munder>{big}{under}</munder>"
        if text == "_":
            self.take()
            return f"<munder>{big}{self.atom()}</munder>"
        return big

    def scripts(self, base: str) -> str:
        """What is written above and below at the right."""
        while True:
            kind, text = self.peek()
            if kind == "up":
                self.take()
                base = f"<msup>{base}{_script(text, _UP)}</msup>"
            elif kind == "down":
                self.take()
                base = f"<msub>{base}{_script(text, _DOWN)}</msub>"
            elif text == "!":
                self.take()
                base = f"<mrow>{base}<mo>!</mo></mrow>"
            elif text in ("^", "_"):
                self.take()
                tag = "msup" if text == "^" else "msub"
                base = f"<{tag}>{base}{self.atom()}</{tag}>"
            else:
                return base


def _fraction(above: list[str], below: str) -> str:
    return f"<mfrac><mrow>{''.join(above)}</mrow>{below}</mfrac>"


def _operator(text: str) -> str:
    return f"<mo>{escape(text)}</mo>"


def _script(text: str, table: dict[str, str]) -> str:
    plain = "".join(table[letter] for letter in text)
    pieces = re.findall(r"\d+|.", plain)
    tags = ["mn" if one.isdigit() else "mi" if one.isalpha() else "mo" for one in pieces]
    return "<mrow>" + "".join(f"<{tag}>{one}</{tag}>" for tag, one in zip(tags, pieces, strict=True)) + "</mrow>"
