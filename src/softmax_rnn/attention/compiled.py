"""What `torch.compile` sees of `attend`, `extend` and `step`: one call each, whose body is traced by its operators.

Dynamo would trace the bookkeeping around the mathematics line by line; here it runs as it is, once per graph, and
AOTAutograd records the operators that it calls. A spec is a text in the graph, a state is its tensors.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

from torch import Tensor
from torch._dynamo import nonstrict_trace
from torch.utils import _pytree

from softmax_rnn.attention.call import Call, check_call, check_state
from softmax_rnn.attention.execute import check_graph, run, run_on
from softmax_rnn.attention.host_sync import like_a_device
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.state import State


def _flatten(state: State) -> tuple[list[Tensor], tuple[tuple[str, ...], bool]]:
    tensors = state.tensors
    return list(tensors.values()), (tuple(tensors), state.fresh)


def _unflatten(kind: type[State], tensors: Any, context: tuple[tuple[str, ...], bool]) -> State:
    names, fresh = context
    state = kind.of(dict(zip(names, tensors, strict=True)))
    state.mark(fresh)
    return state


for _kind in State.kinds:
    _name = f"softmax_rnn.attention.state.{_kind.__name__}"
    _pytree.register_pytree_node(_kind, _flatten, partial(_unflatten, _kind), serialized_type_name=_name)


def attend(spec: AttentionSpec, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    """`attend.attend`, traced."""
    check_graph(spec, q.shape[2])
    return _attend(spec.text, q, k, v, {name: x for name, x in options.items() if x is not None})


def extend(spec: AttentionSpec, q: Tensor, k: Tensor, v: Tensor, state: State, **options: Any) -> tuple[Tensor, State]:
    """`attend.extend`, traced."""
    check_graph(spec, q.shape[2])
    return _extend(spec.text, q, k, v, state, {name: x for name, x in options.items() if x is not None})


_spec = cache(AttentionSpec.from_json)


def _call(text: str, q: Tensor, k: Tensor, v: Tensor, options: dict[str, Any]) -> tuple[Call, str | None]:
    # Contiguous: for a transposed gate the tracer predicts the wrong strides for the gradient of logsigmoid.
    given: dict[str, Any] = {name: x.contiguous() if isinstance(x, Tensor) else x for name, x in options.items()}
    form, nonpositive = given.pop("form", None), given.pop("nonpositive")
    masks = (given.pop("key_mask", None), given.pop("segment_ids", None))
    return check_call(_spec(text), q, k, v, given, *masks, nonpositive), form


@nonstrict_trace
def _attend(text: str, q: Tensor, k: Tensor, v: Tensor, options: dict[str, Any]) -> Tensor:
    return run(*_call(text, q, k, v, options))


@nonstrict_trace
def _extend(text: str, q: Tensor, k: Tensor, v: Tensor, state: State, options: dict[str, Any]) -> tuple[Tensor, State]:
    # The backend "eager" runs what the others trace: the state after it has the same tensors.
    with like_a_device():
        call, form = _call(text, q, k, v, options)
        check_state(call, state)
        return run_on(call, state, form)
