"""A tour of wrong calls of the library: wrong shapes, dtypes, devices and names are an `InputError` of one line."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

import softmax_rnn
from softmax_rnn import model as model_side

# Any: a type checker would refuse most of these calls, and it should.
sr: Any = softmax_rnn
build_config: Any = model_side.build_config

SOFTMAX, TAYLOR, GATED = (sr.VARIANTS[name] for name in ("softmax", "taylor_2", "gated_softmax"))
Q = torch.ones(1, 2, 5, 4)
Q_T = Q[:, :, 0]
MASK = torch.ones(1, 5, dtype=torch.bool)
IDS = torch.ones(1, 5, dtype=torch.int64)


def attend(spec: Any = SOFTMAX, q: Any = Q, k: Any = Q, v: Any = Q, **more):
    return sr.attend(spec, q, k, v, **more)


def state(**sizes):
    return sr.init_state(TAYLOR, **{"batch": 1, "heads": 2, "key_dim": 4, **sizes})


def step(state, spec=TAYLOR, q=Q_T, k=Q_T, v=Q_T, **more):
    return sr.step(spec, q, k, v, state, **more)


def model(**inputs):
    options = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "vocab_size": 32}
    return model_side.SoftmaxRNNForCausalLM(build_config("nano", "softmax", **options))(**inputs)


CALLS: dict[str, tuple[Callable[[], object], str]] = {
    # attend
    "3 axes": (lambda: attend(q=Q[0]), "q: expected 4 axes (batch, heads, time, dim), got shape (2, 5, 4)"),
    "shorter keys": (lambda: attend(k=Q[:, :, :3]), "k: expected shape (1, heads of k, 5, 4), got (1, 2, 3, 4)"),
    "fewer heads of v": (lambda: attend(v=Q[:, :1]), "v: expected shape (1, 2, 5, value dim), got (1, 1, 5, 4)"),
    "3 heads on 2": (lambda: attend(q=torch.ones(1, 3, 5, 4)), "k: its 2 heads must divide the 3 heads of q"),
    "no time": (lambda: attend(q=Q[:, :, :0], k=Q[:, :, :0], v=Q[:, :, :0]), "got none in time: (1, 2, 0, 4)"),
    "a list": (lambda: attend(q=Q.tolist()), "q: expected a tensor, got list"),
    "whole numbers": (lambda: attend(q=Q.long()), "q: expected a floating-point tensor, got torch.int64"),
    "two dtypes": (lambda: attend(k=Q.double()), "k: expected the dtype of q, torch.float32, got torch.float64"),
    "two devices": (lambda: attend(v=Q.to("meta")), "v: expected the device of q, cpu, got meta"),
    "a name": (lambda: attend("softmax"), "spec: expected an AttentionSpec, such as VARIANTS[name], got str"),
    "misspelt variant": (lambda: attend(sr.VARIANTS["sofmax"]), "unknown variant 'sofmax'; did you mean 'softmax'?"),
    "misspelt form": (lambda: attend(form="fusd"), "unknown form 'fusd'; did you mean 'fused'?"),
    "form that cannot": (lambda: attend(form="chunked"), "form: 'chunked' cannot compute this spec (exp has infini"),
    "misspelt choice": (lambda: attend(nonpositive="eror"), "unknown value of nonpositive 'eror'; did you mean 'err"),
    "gate left out": (lambda: attend(GATED), "input_gate: this spec needs it, as a tensor of shape (1, 2, 5)"),
    "gate of no use": (lambda: attend(input_gate=Q[..., 0]), "input_gate: this spec does not use it"),
    "mask of floats": (lambda: attend(key_mask=MASK.float()), "key_mask: expected a boolean tensor (True = real), got"),
    "short mask": (lambda: attend(key_mask=MASK[:, :4]), "key_mask: expected shape (1, 5), got (1, 4)"),
    "segments of floats": (lambda: attend(segment_ids=MASK.float()), "segment_ids: expected a tensor of whole numbers"),
    # init_state, step, extend
    "state of a name": (lambda: sr.init_state("taylor_2", batch=1, heads=2, key_dim=4), "VARIANTS[name], got str"),
    "no batch": (lambda: state(batch=0), "batch: expected a whole number of 1 or more, got 0"),
    "negative heads": (lambda: state(heads=-1), "heads: expected a whole number of 1 or more, got -1"),
    "dim in words": (lambda: state(key_dim="4"), "key_dim: expected a whole number of 1 or more, got '4'"),
    "odd sharing": (lambda: state(kv_heads=3), "kv_heads: expected a divisor of the 2 heads, got 3"),
    "state of integers": (lambda: state(dtype=torch.int64), "dtype: expected a floating-point dtype, got torch.int64"),
    "device that is none": (lambda: state(device="gpu"), "device: 'gpu' cannot be used: Expected one of cpu, cuda"),
    "device that is absent": (lambda: state(device="xpu:99"), "device: 'xpu:99' cannot be used"),
    "no state": (lambda: step(None), "state: this spec has a FixedState, got a NoneType; make it with init_state"),
    "state of another spec": (lambda: step(state(), SOFTMAX), "this spec has a GrowingState, got a FixedState"),
    "state of another batch": (lambda: step(state(batch=2)), "state: its lengths has shape (2,), the call needs (1,)"),
    "state elsewhere": (lambda: step(state(device="meta")), "state: expected the device of q, cpu, got meta"),
    "step with time": (lambda: step(state(), q=Q), "q_t: expected 3 axes (batch, heads, dim), got (1, 2, 5, 4)"),
    "step with a list": (lambda: step(state(), key_mask=[True]), "key_mask: expected a boolean tensor"),
    "misspelt tensor": (lambda: step(state(), output_gat=Q_T), "'output_gat'; did you mean 'output_gate'?"),
    "wider state": (lambda: sr.extend(TAYLOR, Q, Q, Q, state(key_dim=8)), "the call needs (1, 2, 15, 5)"),
    # specs
    "explain a name": (lambda: sr.explain("softmax"), "spec: expected an AttentionSpec, such as VARIANTS[name]"),
    **{f"{call.__name__} of names": (lambda f=call, n=count: f(*["softmax"] * n), "VARIANTS[name], got str")
       for call, count in ((sr.formula, 1), (sr.choose, 1), (sr.simplify, 1), (sr.diff, 2), (sr.same_function, 2))},
    "misspelt part": (lambda: sr.AttentionSpec.from_dict({"scor": None}), "unknown part 'scor'; did you mean 'score'?"),
    "a list of parts": (lambda: sr.AttentionSpec.from_dict([1]), "spec: expected parts by name, got a list"),
    "torn JSON": (lambda: sr.AttentionSpec.from_json("{"), "spec is not valid JSON: Expecting property name"),
    "part in words": (lambda: sr.AttentionSpec(score="exp"), "score: expected one of exp, polynomial"),
    # the model
    "misspelt size": (lambda: build_config("nanno"), "unknown size 'nanno'; did you mean 'nano'?"),
    "heads that do not fit": (lambda: build_config(num_attention_heads=3), "is not a multiple of the number of"),
    "option in words": (lambda: build_config(vocab_size="many"), "model.vocab_size: expected a whole number, got"),
    "no input": (lambda: model(), "input_ids: expected exactly one of input_ids and inputs_embeds"),
    "tokens of floats": (lambda: model(input_ids=IDS.float()), "input_ids: expected whole numbers, got torch.float32"),
    "tokens in a list": (lambda: model(input_ids=[[1, 2]]), "input_ids: expected a tensor, got list"),
    "one axis": (lambda: model(input_ids=IDS[0]), "input_ids: expected 2 axes (batch, time)"),
    "too large a token": (lambda: model(input_ids=IDS * 99), "input_ids: expected tokens from 0 to 31, the model's"),
    "negative token": (lambda: model(input_ids=-IDS), "expected tokens from 0 to 31, the model's vocabulary, got -1"),
    "narrow vectors": (lambda: model(inputs_embeds=torch.ones(1, 5, 7)), "expected shape (batch, time, 16), got"),
    "short model mask": (lambda: model(input_ids=IDS, attention_mask=IDS[:, :4]), "expected shape (1, 5), got (1, 4)"),
    "short segments": (lambda: model(input_ids=IDS, segment_ids=IDS[:, :3]), "segment_ids: expected shape (1, 5)"),
    "short labels": (lambda: model(input_ids=IDS, labels=IDS[:, :3]), "labels: expected shape (1, 5), got (1, 3)"),
    "labels of floats": (lambda: model(input_ids=IDS, labels=IDS.float()), "labels: expected whole numbers, got"),
    "too large a label": (lambda: model(input_ids=IDS, labels=IDS * 99), "labels: expected tokens from 0 to 31"),
    "cache of another kind": (lambda: model(input_ids=IDS, past_key_values=3), "past_key_values: expected a SpecCache"),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_call_is_one_line(name):
    call, said = CALLS[name]
    with pytest.raises(sr.InputError, match=re.escape(said)) as caught:
        call()
    assert len(str(caught.value).splitlines()) == 1
