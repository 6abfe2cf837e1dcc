"""The Hugging Face side. Importing this package registers the model with transformers' Auto classes.

>>> import softmax_rnn.model
>>> from transformers import AutoConfig
>>> AutoConfig.for_model("softmax_rnn", attention_spec="linear_elu").model_type
'softmax_rnn'
"""

from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

from softmax_rnn.attention.table.models import MODEL_VARIANTS, SIZES, block_options
from softmax_rnn.model.cache import SpecCache
from softmax_rnn.model.configuration import SoftmaxRNNConfig
from softmax_rnn.model.foreign import CONVERTED
from softmax_rnn.model.modeling import SoftmaxRNNForCausalLM, SoftmaxRNNModel, SpecAttention
from softmax_rnn.model.sizes import build_config

AutoConfig.register(SoftmaxRNNConfig.model_type, SoftmaxRNNConfig, exist_ok=True)
AutoModel.register(SoftmaxRNNConfig, SoftmaxRNNModel, exist_ok=True)
AutoModelForCausalLM.register(SoftmaxRNNConfig, SoftmaxRNNForCausalLM, exist_ok=True)
for converted in set(CONVERTED.values()):
    assert converted.config_class is not None
    AutoConfig.register(converted.config_class.model_type, converted.config_class, exist_ok=True)
    AutoModelForCausalLM.register(converted.config_class, converted, exist_ok=True)

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
