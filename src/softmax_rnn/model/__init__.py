"""The Hugging Face side. Importing this package registers the model with transformers' Auto classes.

>>> import softmax_rnn.model
>>> from transformers import AutoConfig
>>> AutoConfig.for_model("softmax_rnn", attention_spec="linear_elu").model_type
'softmax_rnn'
"""

from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

import softmax_rnn.model.foreign_configuration  # noqa: F401, it registers the configurations of converted models
from softmax_rnn.attention.table.model_table import MODEL_VARIANTS, SIZES, block_options
from softmax_rnn.model.cache import SpecCache
from softmax_rnn.model.configuration import SoftmaxRNNConfig
from softmax_rnn.model.modeling import SoftmaxRNNForCausalLM, SoftmaxRNNModel, SpecAttention
from softmax_rnn.model.sizes import build_config

AutoConfig.register(SoftmaxRNNConfig.model_type, SoftmaxRNNConfig, exist_ok=True)
AutoModel.register(SoftmaxRNNConfig, SoftmaxRNNModel, exist_ok=True)
AutoModelForCausalLM.register(SoftmaxRNNConfig, SoftmaxRNNForCausalLM, exist_ok=True)

__all__ = [
    "MODEL_VARIANTS",
    "SIZES",
    "SoftmaxRNNConfig",
    "SoftmaxRNNForCausalLM",
    "SoftmaxRNNModel",
    "SpecAttention",
    "SpecCache",
    "block_options",
    "build_config",
]
