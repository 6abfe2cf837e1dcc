"""Models by name, as values that need no torch: variants with what the block around them does, and sizes.

>>> MODEL_VARIANTS["two_mamba"].options["conv_width"]
2
>>> block_options("softmax")
{}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.table.refused import refuse
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.errors import UnknownNameError, unknown_name


@dataclass(frozen=True)
class BlockVariant:
    """The name of a spec, the options of `SoftmaxRNNConfig` that go with it, and what to know about it."""

    spec_name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""

    @property
    def spec(self) -> AttentionSpec:
        """The attention's spec."""
        return VARIANTS[self.spec_name]


_ROWS: Mapping[str, BlockVariant] = MappingProxyType(
    {
        "gated_softmax_plusplus": BlockVariant(
            "gated_softmax",
            {"conv_width": 4, "conv_activation": "silu"},
            "gated_softmax on a convolution (width 4, SiLU) of q, k and v",
        ),
        "linear_mamba": BlockVariant("softmax", {"mixer": "mamba2"}, "a Mamba-2 mixer in place of attention"),
    }
)


class BlockTable(Mapping[str, BlockVariant]):
    """Name → spec and block options: every name of `VARIANTS`, its families included, and the blocks above."""

    def __getitem__(self, name: str) -> BlockVariant:
        if name in _ROWS:
            return _ROWS[name]
        if name in VARIANTS:
            row = VARIANTS.row(name)
            return BlockVariant(name, row.block, row.note)
        refuse(str(name))
        try:
            VARIANTS[name]  # a number that its family does not have is an error of its own
        except UnknownNameError:
            names = [*self, *(family.name for family in VARIANTS.families)]
            raise unknown_name("variant", name, names) from None
        raise AssertionError(name)

    def __contains__(self, name: object) -> bool:
        return name in _ROWS or name in VARIANTS

    def __iter__(self) -> Iterator[str]:
        yield from VARIANTS
        yield from (name for name in _ROWS if name not in VARIANTS)

    def __len__(self) -> int:
        return sum(1 for _ in self)


MODEL_VARIANTS = BlockTable()


def block_options(name: str) -> dict[str, Any]:
    """The options of `SoftmaxRNNConfig` that a variant's block needs."""
    return dict(MODEL_VARIANTS[name].options)


@dataclass(frozen=True)
class Size:
    """The numbers of a Llama block and how many there are."""

    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_hidden_layers: int


SIZES = MappingProxyType(
    {
        "nano": Size(128, 384, 4, 4),  # 0.9 M with the 256 tokens of bytes
        "micro": Size(320, 640, 10, 8),  # 9.5 M with 2048 tokens
        "small": Size(1024, 2048, 16, 20),  # 275 M with the paper's 32000
        "large": Size(3072, 6144, 16, 20),  # 2.08 B
        "large_depth": Size(1024, 2048, 32, 60),  # 695 M
    }
)
"""The paper's three, and two that train on a CPU."""
