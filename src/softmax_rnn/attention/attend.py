"""Attention as functions: the whole sequence, a piece that continues a state, one step."""

from __future__ import annotations

from contextlib import nullcontext

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from softmax_rnn.attention.call import check_call, check_state
from softmax_rnn.attention.execute import run, run_on
from softmax_rnn.attention.host_sync import like_a_device
from softmax_rnn.attention.quick_step import quick_step
from softmax_rnn.attention.spec import AttentionSpec, check_spec
from softmax_rnn.attention.start import init_state
from softmax_rnn.attention.state import State
from softmax_rnn.errors import InputError

__all__ = ["attend", "extend", "init_state", "step"]


def attend(
    spec: AttentionSpec,
    q: Float[Tensor, "B H T D"],
    k: Float[Tensor, "B Hkv T D"],
    v: Float[Tensor, "B Hkv T E"],
    *,
    key_mask: Bool[Tensor, "B T"] | None = None,
    segment_ids: Int[Tensor, "B T"] | None = None,
    form: str | None = None,
    nonpositive: str = "warn",
    **tensors: Tensor | None,
) -> Float[Tensor, "B H T E"]:
    """Causal attention: o_i = epilogue( Σ_{j≤i} f(φ(q_i)·φ(k_j)) · decay(i, j) · u_j ).

    ``tensors`` are those that the parts of the spec declare, by name (``spec.declared`` has their shapes):
    ``input_gate`` and ``output_gate`` are the values g of the formulas, after the sigmoid (the raw projection for a
    cumulative gate), ``forget_gate`` the log decay of each step, ``length_exponent`` the parameter c of n^σ(c),
    before the sigmoid. ``key_mask`` is True for real positions; positions see only keys of their own segment.
    ``form`` forces a form. Where a row sum is not positive ``nonpositive`` says whether to "warn", to raise an
    "error", or to "ignore" it.

    >>> import torch
    >>> from softmax_rnn.attention.variants import VARIANTS
    >>> q = k = v = torch.ones(1, 2, 5, 4)
    >>> attend(VARIANTS["softmax"], q, k, v).shape
    torch.Size([1, 2, 5, 4])
    """
    if torch.compiler.is_dynamo_compiling():
        from softmax_rnn.attention import compiled

        masks = {"key_mask": key_mask, "segment_ids": segment_ids}
        return compiled.attend(spec, q, k, v, **masks, form=form, nonpositive=nonpositive, **tensors)
    call = check_call(spec, q, k, v, tensors, key_mask, segment_ids, nonpositive)
    return run(call, form)


def extend(
    spec: AttentionSpec,
    q: Float[Tensor, "B H T D"],
    k: Float[Tensor, "B Hkv T D"],
    v: Float[Tensor, "B Hkv T E"],
    state: State,
    *,
    key_mask: Bool[Tensor, "B T"] | None = None,
    form: str | None = None,
    nonpositive: str = "warn",
    **tensors: Tensor | None,
) -> tuple[Float[Tensor, "B H T E"], State]:
    """`attend` for the next T positions after a state: their outputs, and the state after them.

    >>> import torch
    >>> from softmax_rnn.attention.variants import VARIANTS
    >>> spec, (q, k, v) = VARIANTS["taylor_2"], torch.randn(3, 1, 2, 6, 4)
    >>> first, state = extend(spec, q[:, :, :4], k[:, :, :4], v[:, :, :4],
    ...                       init_state(spec, batch=1, heads=2, key_dim=4))
    >>> rest, state = extend(spec, q[:, :, 4:], k[:, :, 4:], v[:, :, 4:], state)
    >>> torch.allclose(torch.cat([first, rest], 2), attend(spec, q, k, v), atol=1e-5)
    True
    """
    if torch.compiler.is_dynamo_compiling():
        from softmax_rnn.attention import compiled

        options = {"key_mask": key_mask, "form": form, "nonpositive": nonpositive}
        return compiled.extend(spec, q, k, v, state, **options, **tensors)
    if key_mask is None and not tensors and form is None:
        taken = quick_step(spec, q, k, v, state, nonpositive, axes=4)
        if taken is not None:
            return taken
    call = check_call(spec, q, k, v, tensors, key_mask, None, nonpositive)
    check_state(call, state)
    return run_on(call, state, form)


def step(
    spec: AttentionSpec,
    q_t: Float[Tensor, "B H D"],
    k_t: Float[Tensor, "B Hkv D"],
    v_t: Float[Tensor, "B Hkv E"],
    state: State,
    *,
    key_mask: Bool[Tensor, " B"] | None = None,
    nonpositive: str = "warn",
    in_place: bool = False,
    **tensors: Tensor | None,
) -> tuple[Float[Tensor, "B H E"], State]:
    """One position in the recurrent form; tensors along time come without their axis of time: gates are (B, H).

    With ``in_place`` the new state is written where the old one was, so that its addresses never change: what a
    recorded graph needs. The old state is gone then, and a state that grows has no such place.

    >>> import torch
    >>> from softmax_rnn.attention.variants import VARIANTS
    >>> spec = VARIANTS["linear_elu"]
    >>> state = init_state(spec, batch=1, heads=2, key_dim=4)
    >>> out, state = step(spec, *torch.randn(3, 1, 2, 4), state)
    >>> out.shape
    torch.Size([1, 2, 4])
    """
    moves = in_place and getattr(state, "grows", False)
    if key_mask is None and not tensors and not moves and not torch.compiler.is_dynamo_compiling():
        taken = quick_step(spec, q_t, k_t, v_t, state, nonpositive, axes=3, in_place=in_place)
        if taken is not None:
            return taken
    for name, x in (("q_t", q_t), ("k_t", k_t), ("v_t", v_t)):
        if not isinstance(x, Tensor) or x.dim() != 3:
            came = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
            raise InputError(f"{name}: expected 3 axes (batch, heads, dim), got {came}")
    check_spec(spec)
    axes = {name: declared.time_axis for name, declared in spec.declared.items()}
    widened = {name: _with_time(x, axes.get(name)) for name, x in tensors.items()}
    if in_place and (not isinstance(state, State) or state.grows):
        raise InputError("in_place: expected a state of fixed size; the state of this spec grows with the context")
    # On a CPU the states of levels come and go; those of a device have places of their own.
    fixed = in_place and state.comes_and_goes and not torch.compiler.is_dynamo_compiling()
    with like_a_device() if fixed else nullcontext():
        output, after = extend(
            spec,
            q_t.unsqueeze(2),
            k_t.unsqueeze(2),
            v_t.unsqueeze(2),
            state,
            key_mask=key_mask.unsqueeze(-1) if isinstance(key_mask, Tensor) else key_mask,
            form="recurrent",
            nonpositive=nonpositive,
            **widened,
        )
    return output[:, :, 0], _written(state, after) if in_place else after


def _written(state: State, after: State) -> State:
    state.overwrite(after)
    return state


def _with_time(x: Tensor | None, axis: int | None) -> Tensor | None:
    return x.unsqueeze(axis) if axis is not None and isinstance(x, Tensor) and x.dim() >= axis else x
