"""The forms: exact ways to compute the contraction, one object and one file each. This is their only table."""

from softmax_rnn.attention.forms.blockwise import Blockwise
from softmax_rnn.attention.forms.chunked import Chunked
from softmax_rnn.attention.forms.form import Form
from softmax_rnn.attention.forms.fused import Fused
from softmax_rnn.attention.forms.parallel import Parallel
from softmax_rnn.attention.forms.recurrent import Recurrent
from softmax_rnn.attention.forms.triton import Triton

FORMS: dict[str, Form] = {
    form.name: form for form in (Parallel(), Fused(), Blockwise(), Chunked(), Recurrent(), Triton())
}

__all__ = ["FORMS", "Form"]
