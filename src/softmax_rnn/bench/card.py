"""Measurements on a CUDA or ROCm card: tiles first, then attention against the platform's kernels and others'.

It has not run on a card yet; its parts are tested on a CPU. The file that it writes says what was measured where.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from softmax_rnn.attention.attend import attend
from softmax_rnn.attention.kernels.triton import tiles
from softmax_rnn.attention.plan import FORMS, Situation, choose
from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.bench.inputs import Tensors, random_inputs
from softmax_rnn.bench.peers import Function, forward_backward, ours, sdpa, timed_pass
from softmax_rnn.bench.results import Claim, Results, Task
from softmax_rnn.bench.timing import race
from softmax_rnn.bench.verify import check_variant
from softmax_rnn.errors import InputError
from softmax_rnn.files import write_json

VARIANTS_ON_CARD = ("softmax", "gated_softmax", "gated_softmax_decay", "linear_elu", "simple_gla", "taylor_2")
HEADS = 16
BATCH = 8
ROUNDS = 10


def check_device(device: str) -> None:
    """Refuse a card that is not there."""
    if device not in ("cpu", "cuda"):
        raise InputError(f"device: expected cpu or cuda (ROCm's cards are cuda too), got {device!r}")
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError(f"device: torch {torch.__version__} sees no CUDA or ROCm card on this machine")


@contextmanager
def measured_on(device: str) -> Iterator[None]:
    """Inside, new tensors and models are on the device, and times are taken by its events."""
    check_device(device)
    with torch.device(device):
        yield


def facts() -> dict[str, Any]:
    """The card, and the peers that are installed."""
    known: dict[str, Any] = {"torch": torch.__version__, "cuda": torch.version.cuda, "hip": torch.version.hip}
    if torch.cuda.is_available():
        card = torch.cuda.get_device_properties(torch.cuda.current_device())
        known |= {"card": card.name, "memory": card.total_memory, "processors": card.multi_processor_count}
    for name in ("triton", "fla"):
        known[name] = importlib.util.find_spec(name) is not None
    return known


def peers(variant: str) -> dict[str, Function]:
    """Others' kernels for the same function, where they are installed."""
    known: dict[str, Function] = {"sdpa": sdpa}
    if variant in ("softmax", "gated_softmax") and torch.cuda.is_available():
        known["flex_attention"] = _flex(variant)
    if variant in ("linear_elu", "simple_gla") and importlib.util.find_spec("fla") and torch.cuda.is_available():
        known["flash-linear-attention"] = _fla(variant)
    return known


def _flex(variant: str) -> Function:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    compiled, clamp = torch.compile(flex_attention), VARIANTS[variant].score.clamp

    def clamped(score: Tensor, *_: Tensor) -> Tensor:
        return score.clamp(max=clamp)

    def causal(_: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return j <= i

    def function(tensors: Tensors) -> Tensor:
        time = tensors["q"].shape[2]
        mask = create_block_mask(causal, None, None, time, time)
        change = None if clamp is None else clamped
        return compiled(tensors["q"], tensors["k"], tensors["v"], score_mod=change, block_mask=mask)  # type: ignore[return-value]

    return function


def _fla(variant: str) -> Function:
    def function(tensors: Tensors) -> Tensor:
        from fla.ops.linear_attn import chunk_linear_attn  # type: ignore[import-not-found]
        from fla.ops.simple_gla import chunk_simple_gla  # type: ignore[import-not-found]

        q, k, v = (tensors[name].transpose(1, 2) for name in "qkv")
        if variant == "linear_elu":
            q, k = (torch.nn.functional.elu(x) + 1 for x in (q, k))
            return chunk_linear_attn(q, k, v, normalize=True)[0].transpose(1, 2)  # pyright: ignore[reportCallIssue]
        return chunk_simple_gla(q, k, v, g=tensors["forget_gate"].transpose(1, 2))[0].transpose(1, 2)  # pyright: ignore[reportCallIssue]

    return function


def on_device(tensors: Tensors, device: torch.device) -> Tensors:
    """The same tensors on a device."""
    return {name: x.to(device) for name, x in tensors.items()}


def _race(variant: str, time: int, key_dim: int, backward: bool, batch: int, rounds: int) -> Task:
    def work(results: Results) -> None:
        spec, device = VARIANTS[variant], torch.get_default_device()
        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        given = random_inputs(spec, batch=batch, heads=HEADS, time=time, key_dim=key_dim, dtype=dtype)
        tensors = on_device(given, device)
        functions = {"ours": ours(spec)} | peers(variant)
        contestants = {name: timed_pass(function, tensors, backward) for name, function in functions.items()}
        times = race(contestants, rounds)
        half = dtype == torch.bfloat16
        where: Any = {"device": device.type, "half": half, "needs_grad": backward}
        form = choose(spec, Situation(batch, HEADS, HEADS, time, time, key_dim, key_dim, **where)).form
        for name in functions:
            ratio = times.ratio(name, "sdpa")
            row = {"variant": variant, "contestant": name, "time": time, "key_dim": key_dim, "backward": backward}
            row |= {"seconds": times.of(name), "form": form if name == "ours" else None, "ratio": ratio}
            results.rows.append(row | {"sdpa_seconds": times.of("sdpa")})
            if name != "sdpa":
                text = f"{VARIANTS.short(variant)}, {name}: {what} at T={time}, D={key_dim}, in units of SDPA"
                results.claims.append(Claim(text, ratio, None))

    what = "training step" if backward else "forward"
    return Task(f"{what} at T={time}, D={key_dim}: {variant}", work)


def attention_tasks(quick: bool = False) -> Iterator[Task]:
    """The card's tiles, then every kind of kernel against its peers."""
    yield Task("tiles of this card", lambda results: results.memory.append({"tiles": tuned(quick), **facts()}))
    for time, batch in ((2048, BATCH),) if quick else ((2048, BATCH), (8192, BATCH // 2), (32768, 1)):
        for variant in VARIANTS_ON_CARD:
            for backward in (False, True):
                yield _race(variant, time, 64, backward, batch, 3 if quick else ROUNDS)


def tuned(quick: bool = False, time: int = 4096) -> list[dict[str, Any]]:
    """The fastest tile of each kernel among those that compile, kept in the cache folder for later runs."""
    if torch.get_default_device().type != "cuda":
        return []
    best: list[dict[str, Any]] = []
    for dim in (64,) if quick else (64, 128):
        for dtype in (torch.bfloat16,) if quick else (torch.bfloat16, torch.float32):
            for kernel, variant in TUNED_WITH.items():
                tile = _fastest(kernel, variant, dim, dtype, time)
                if tile is not None:
                    name = str(dtype).removeprefix("torch.")
                    best.append({"kernel": kernel, "dim": dim, "dtype": name, "tile": asdict(tile)})
    write_json(tiles.tuned_file(), best)
    tiles.forget()
    return best


TUNED_WITH = {
    "block_sums": "gated_softmax_decay",
    "key_gradients": "gated_softmax_decay",
    "query_gradients": "gated_softmax_decay",
    "chunk_states": "taylor_2",
    "read_states": "taylor_2",
    "feature_gradients": "taylor_2",
    "linear_sums": "linear_elu",
    "linear_query_gradients": "linear_elu",
    "linear_key_gradients": "linear_elu",
}


def _fastest(kernel: str, variant: str, dim: int, dtype: torch.dtype, time: int) -> tiles.Tile | None:
    spec = VARIANTS[variant]
    given = random_inputs(spec, batch=2, heads=HEADS, time=time, key_dim=dim, dtype=dtype)
    tensors = on_device(given, torch.get_default_device())
    work = forward_backward(lambda leaves: attend(spec, **leaves, form="triton"), tensors)
    seconds: dict[tiles.Tile, float] = {}
    for tile in tiles.candidates(kernel, tiles.target(), str(dtype).removeprefix("torch.")):
        with tiles.trying(kernel, tile), _what_fits():
            seconds[tile] = race({"it": work}, 3).of("it")
    return min(seconds, key=lambda tile: seconds[tile]) if seconds else None


@contextmanager
def _what_fits() -> Iterator[None]:
    """A tile that the card cannot hold is not a candidate."""
    from triton.runtime.errors import OutOfResources

    try:
        yield
    except OutOfResources:
        return


QUICK_CHECKS = ("gated_softmax_decay", "linear_elu", "taylor_2")
"""Blockwise with a decay, and both kinds of state."""


def kernels_line() -> str:
    """Whether the kernels are used on this machine, and on a card their largest error against float64."""
    if not torch.cuda.is_available():
        return "not used: torch sees no CUDA or ROCm card"
    refusal = FORMS["triton"].refuse(VARIANTS["gated_softmax_decay"], Situation(device="cuda"))
    if refusal is not None:
        return f"not used: {refusal}"
    checks = [check for name in QUICK_CHECKS for check in check_variant(name, "cuda", ("triton",))]
    worst = max(max(check.output_error, check.gradient_error) for check in checks)
    passed = "within" if all(check.passed for check in checks) else "ABOVE"
    return (
        f"largest error against float64 {worst:.1e}, {passed} {checks[0].tolerance:g}; all rows: verify --device cuda"
    )
