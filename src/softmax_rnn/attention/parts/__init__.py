"""The parts of an attention: small frozen values, each fit for one field of a spec, one file per field.

A part says what it is, and how it is computed; torch is imported only when it computes.
"""

from softmax_rnn.attention.parts.base import Part
from softmax_rnn.attention.parts.capped_exp import CappedExp
from softmax_rnn.attention.parts.channel_decays import ChannelGate, KeyDecay
from softmax_rnn.attention.parts.chunk_ends import ChunkEnds
from softmax_rnn.attention.parts.decays import Decay, ForgetGate, Forgetting
from softmax_rnn.attention.parts.feature_maps import Cosine, EluPlusOne, FeatureMap, Relu, SiluQuery, SoftmaxFeatures
from softmax_rnn.attention.parts.feature_sum import FeatureSum
from softmax_rnn.attention.parts.fixed_decays import FixedDecay, Schedule
from softmax_rnn.attention.parts.gates import InputGate, OutputGate
from softmax_rnn.attention.parts.kept_keys import KeptKeys
from softmax_rnn.attention.parts.learned_maps import GatedKeys, Hedgehog, LearnedNorm, LearnedRelu, Projected
from softmax_rnn.attention.parts.levels import Levels
from softmax_rnn.attention.parts.mamba_decay import MambaDecay
from softmax_rnn.attention.parts.nala import NormAware, Reading
from softmax_rnn.attention.parts.near_far import Alone, Averaged, Gated, Lolcats, NearFar
from softmax_rnn.attention.parts.normalisers import CumulativeGate, LearnedLength, Length, Normaliser, RowSum
from softmax_rnn.attention.parts.norms import FLOAT32_EPS, L2Norm, LayerNorm, OutputNorm, RMSNorm
from softmax_rnn.attention.parts.position_maps import CosFormer, Rotated
from softmax_rnn.attention.parts.random_features import RandomFeatures
from softmax_rnn.attention.parts.score import (
    MAX_ORDER,
    Exp,
    Polynomial,
    Score,
    power_score,
    taylor_coefficients,
    taylor_score,
)
from softmax_rnn.attention.parts.skips import ConvolvedValue, OwnValue, Skip
from softmax_rnn.attention.parts.structure import NearKeys, Structure, Window
from softmax_rnn.attention.parts.vector_gate import Activation, VectorGate
from softmax_rnn.attention.parts.write_rules import DeltaRule, NormalisedDelta, Read, WriteRule

__all__ = [
    "FLOAT32_EPS",
    "MAX_ORDER",
    "Activation",
    "Alone",
    "Averaged",
    "CappedExp",
    "ChannelGate",
    "ChunkEnds",
    "ConvolvedValue",
    "CosFormer",
    "Cosine",
    "CumulativeGate",
    "Decay",
    "DeltaRule",
    "EluPlusOne",
    "Exp",
    "FeatureMap",
    "FeatureSum",
    "FixedDecay",
    "ForgetGate",
    "Forgetting",
    "Gated",
    "GatedKeys",
    "Hedgehog",
    "InputGate",
    "KeptKeys",
    "KeyDecay",
    "L2Norm",
    "LayerNorm",
    "LearnedLength",
    "LearnedNorm",
    "LearnedRelu",
    "Length",
    "Levels",
    "Lolcats",
    "MambaDecay",
    "NearFar",
    "NearKeys",
    "NormAware",
    "NormalisedDelta",
    "Normaliser",
    "OutputGate",
    "OutputNorm",
    "OwnValue",
    "Part",
    "Polynomial",
    "Projected",
    "RMSNorm",
    "RandomFeatures",
    "Read",
    "Reading",
    "Relu",
    "Rotated",
    "RowSum",
    "Schedule",
    "Score",
    "SiluQuery",
    "Skip",
    "SoftmaxFeatures",
    "Structure",
    "VectorGate",
    "Window",
    "WriteRule",
    "power_score",
    "taylor_coefficients",
    "taylor_score",
]
