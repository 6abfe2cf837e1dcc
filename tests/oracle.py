"""The literal truth: every attention variant written from its formula, one query i and one key j at a time.

Read `ORACLE` beside the formula table. Nothing is fast or stabilised (no row maximum is subtracted):
run it in float64 with moderate scores. Gradients come from autograd. The package is never imported.

    ORACLE["softmax"](q, k, v); taylor(order=2)(q, k, v); power(p=2, feature_map=relu)(q, k, v, forget_gate=g)

Every variant takes q, k, v and the tensors below by name, and returns (B, H, T, E). It ignores a tensor that
its formula does not mention.

    q (B, H, T, D), k (B, Hkv, T, D), v (B, Hkv, T, E)   rotated; query head h reads kv head h // (H / Hkv)
    input_gate, output_gate (B, H, T)   gⁱ, gᵒ after the sigmoid; the two cumulative variants take g raw
    forget_gate (B, H, T)               log decay of each step
    norm_weight, norm_bias (E)          absent: 1 and 0; norm_weight (H, 1, E) where a norm is over all heads
    length_exponent (H)                 c, before the sigmoid
    beta (B, H, T)                      β, how much of a difference is written
    key_mask (B, T)                     True = real, False = padding
    segment_ids (B, T)                  i sees j only where the ids are equal

Letters: i query, j key, s = q_i·k_j, d head dimension, n_i number of keys that i sees. In a formula a scalar
is (H, 1) and a vector (H, E): all heads of one sequence at once. Every Σ runs over the keys that i sees;
a row that sees no key is exactly 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace

import torch
from torch import Tensor


class Row:
    """The letters of one query i of one sequence x; the letters of a key take its j."""

    def __init__(self, x: SimpleNamespace, i: int):
        self.x, self.i = x, i
        self.all_keys = [j for j in range(len(x.real)) if self.visible(j)]
        self.keys = x.structure(self if hasattr(x.structure, "reads_row") else self.all_keys)
        self.n = len(self.keys)  # n_i

    def visible(self, j: int) -> bool:
        return j <= self.i and bool(self.x.segment[j] == self.x.segment[self.i]) and bool(self.x.real[j])

    q = property(lambda r: r.x.q[:, r.i])  # q_i
    d = property(lambda r: r.x.q.shape[-1])
    out_gate = property(lambda r: r.x.output_gate[:, r.i, None])  # gᵒ_i
    exponent = property(lambda r: torch.sigmoid(r.x.length_exponent)[:, None])  # σ(c)

    def k(self, j: int) -> Tensor:
        return self.x.k[:, j]

    def v(self, j: int) -> Tensor:
        return self.x.v[:, j]

    def in_gate(self, j: int) -> Tensor:  # gⁱ_j
        return self.x.input_gate[:, j, None]


Weight = Callable[[Row, int], Tensor]  # w_ij
Map = Callable[[Tensor], Tensor]  # of one vector
Structure = Callable[[list[int]], list[int]]


# ---- Maps of a vector
def identity(y: Tensor) -> Tensor:
    return y


def relu(y: Tensor) -> Tensor:
    return torch.where(y > 0, y, 0.0)


def elu1(y: Tensor) -> Tensor:  # elu + 1
    return torch.where(y > 0, y + 1, torch.exp(y.clamp(max=0)))


def l2(y: Tensor) -> Tensor:  # y / |y|, and 0 for a zero vector
    square = (y * y).sum(-1, keepdim=True)
    return torch.where(square > 0, y / torch.where(square > 0, square, 1.0).sqrt(), 0.0)


def rms(r: Row, y: Tensor) -> Tensor:
    return y / ((y**2).mean(-1, keepdim=True) + 1.1920929e-07).sqrt() * r.x.norm_weight


def ln(r: Row, y: Tensor) -> Tensor:
    y = y - y.mean(-1, keepdim=True)
    return y / ((y**2).mean(-1, keepdim=True) + 1e-5).sqrt() * r.x.norm_weight + r.x.norm_bias


# ---- Weights w_ij
def dot(phi: Map = identity) -> Weight:  # φ(q_i)·φ(k_j)
    return lambda r, j: (phi(r.q) * phi(r.k(j))).sum(-1, keepdim=True)


def scaled(phi: Map = identity) -> Weight:  # φ(q_i)·φ(k_j)/√d
    return lambda r, j: dot(phi)(r, j) / math.sqrt(r.d)


def exp(r: Row, j: int) -> Tensor:  # E
    return torch.exp(scaled()(r, j))


def exp5(r: Row, j: int) -> Tensor:  # E5
    return torch.exp(scaled()(r, j).clamp(max=5))


def relu5(r: Row, j: int) -> Tensor:  # min(relu(q)·relu(k)/√d, 5)
    return scaled(relu)(r, j).clamp(max=5)


def power_weight(p: int, phi: Map) -> Weight:  # (φ(q)·φ(k)/√d)^p
    return lambda r, j: scaled(phi)(r, j) ** p


def taylor_weight(order: int, phi: Map) -> Weight:  # Σ_{n≤order} (φ(q)·φ(k)/√d)^n / n!
    return lambda r, j: sum(power_weight(n, phi)(r, j) / float(math.factorial(n)) for n in range(order + 1))


def decay(r: Row, j: int) -> Tensor:  # exp(Σ_{j<t≤i} log decay of t); padding does not decay
    steps = [r.x.forget_gate[:, t, None] for t in range(j + 1, r.i + 1) if r.x.real[t]]
    return torch.exp(sum(steps, torch.zeros_like(r.v(j)[:, :1])))


# ---- Sums over the keys that i sees
def sum_v(r: Row, w: Weight) -> Tensor:  # Σ w v
    return sum(w(r, j) * r.v(j) for j in r.keys)


def sum_gv(r: Row, w: Weight) -> Tensor:  # Σ w gⁱ v
    return sum(w(r, j) * r.in_gate(j) * r.v(j) for j in r.keys)


def sum_w(r: Row, w: Weight) -> Tensor:  # Σ w
    return sum(w(r, j) for j in r.keys)


def exp_gates(r: Row) -> Tensor:  # Σ_{t≤i} exp(g_t), g the raw projection of the output gate
    return sum(torch.exp(r.x.output_gate[:, t, None]) for t in r.all_keys)


# ---- Structures: which of the keys up to i, padding and other segments left out, does i see?
def window(width: int, sinks: int = 0) -> Structure:  # the last width of them, and the first sinks
    return lambda keys: [j for n, j in enumerate(keys) if n < sinks or n >= len(keys) - width]


def chunk_ends(length: int) -> Callable[[Row], list[int]]:  # the own key, and the last of each earlier chunk
    def seen(r: Row) -> list[int]:
        chunk = len([t for t in r.all_keys if t < r.i]) // length
        ends = [j for n, j in enumerate(r.all_keys) if (n + 1) % length == 0 and n // length < chunk]
        return [*ends, r.i] if r.i in r.all_keys else ends

    seen.reads_row = True  # whether i itself is padding matters
    return seen


def levels(w: Weight) -> Weight:  # w · λ_i[bit_length(i XOR j)], positions counted from the segment's first key
    def weight(r: Row, j: int) -> Tensor:
        i = len([t for t in r.all_keys if t < r.i])
        raw = r.x.level_scales * r.x.level_weights[:, r.i]
        level = min((i ^ (place(r, j) - 1)).bit_length(), raw.shape[-1] - 1)
        return w(r, j) * torch.log(1 + torch.exp(raw[:, level, None]))

    return weight


def near_far(far: Weight, width: int, sinks: int = 0) -> Weight:  # exp on window and sinks, another weight on the rest
    return lambda r, j: exp(r, j) if j in window(width, sinks)(r.all_keys) else far(r, j)


def centred(order: int, width: int, sinks: int = 0) -> Weight:  # e^(q·μ/√d) T(q·(k − μ)/√d) far, μ the mean far key
    def far(r: Row, j: int) -> Tensor:
        m, x = far_scores(r, width, sinks)
        return torch.exp(m) * sum(x[j] ** n / float(math.factorial(n)) for n in range(order + 1))

    return near_far(far, width, sinks)


def far_scores(r: Row, width: int, sinks: int) -> tuple[Tensor, dict[int, Tensor]]:  # q·μ/√d, and q·(k − μ)/√d by key
    gone = [n for n in r.all_keys if n not in window(width, sinks)(r.all_keys)]
    mean = sum(r.k(n) for n in gone) / len(gone)
    m = (r.q * mean).sum(-1, keepdim=True) / math.sqrt(r.d)
    return m, {n: (r.q * (r.k(n) - mean)).sum(-1, keepdim=True) / math.sqrt(r.d) for n in gone}


def gaussian(order: int, width: int, sinks: int = 0) -> Weight:  # e^(m + s/2) Σ_n He_n(x − m; s)/n! far
    def far(r: Row, j: int) -> Tensor:
        m, x = far_scores(r, width, sinks)
        faded = {n: decay(r, n) if r.x.forget_gate is not None else torch.ones_like(m) for n in x}
        variance = sum(faded[n] * x[n] ** 2 for n in x) / sum(faded.values())
        s = variance / (1 + variance / 20)
        hermite = [torch.ones_like(m), x[j]]
        for n in range(1, order):
            hermite.append(x[j] * hermite[n] - n * s * hermite[n - 1])
        return torch.exp(m + s / 2) * sum(hermite[n] / float(math.factorial(n)) for n in range(order + 1))

    return near_far(far, width, sinks)


def lolcats(far: Weight, width: int, sinks: int = 0) -> Weight:  # γ exp(x − m) near, m the largest near x
    def near(r: Row, j: int) -> Tensor:
        largest = torch.stack([scaled()(r, n) for n in window(width, sinks)(r.all_keys)]).amax(0)
        return torch.sigmoid(r.x.near_weight)[:, None] * torch.exp(scaled()(r, j) - largest)

    return lambda r, j: near(r, j) if j in window(width, sinks)(r.all_keys) else far(r, j)


def two_outputs(  # (1 − g) softmax near + g Σ w v / Σ w far; the near one alone where nothing is far
    far: Weight, width: int, sinks: int = 0, share: Callable[[Row], Tensor | float] = lambda r: 0.5
) -> Callable[..., Tensor]:
    def mean(r: Row, weight: Weight, keys: list[int]) -> Tensor:
        return sum(weight(r, j) * r.v(j) for j in keys) / sum(weight(r, j) for j in keys)

    def formula(r: Row) -> Tensor:
        near = window(width, sinks)(r.all_keys)
        gone = [j for j in r.all_keys if j not in near]
        if not gone:
            return mean(r, exp, near)
        return (1 - share(r)) * mean(r, exp, near) + share(r) * mean(r, far, gone)

    return f(formula)


def far_gate(r: Row) -> Tensor:  # σ(c)
    return torch.sigmoid(r.x.far_gate)[:, None]


# Keys with the largest mass so far stay exact, the others get a far weight, or none. Heads in groups share them.
def kept_keys(
    far: Weight | None, width: int, sinks: int, kept: int, group: int = 2, centred: bool = False
) -> Callable[..., Tensor]:
    def exact(r: Row) -> list[list[int]]:  # of each group of heads, for the newest key that i sees
        groups = range(len(r.q) // group)
        keep, near, mass = [[] for _ in groups], [[] for _ in groups], [{} for _ in groups]
        for n, i in enumerate(r.all_keys):
            row = Row(r.x, i)
            for g in groups:
                if n >= sinks + width:
                    keep[g].append(r.all_keys[n - width])
                if len(keep[g]) > kept:
                    keep[g].remove(min(keep[g], key=lambda j: mass[g][j]))
                near[g] = sorted(
                    {*r.all_keys[: min(sinks, n + 1)], *keep[g], *r.all_keys[max(n - width + 1, 0) : n + 1]}
                )
                for h in range(g * group, (g + 1) * group):
                    weights = {j: exp(row, j)[h].item() for j in near[g]}
                    for j in near[g]:
                        mass[g][j] = mass[g].get(j, 0.0) + weights[j] / sum(weights.values())
        return near

    def formula(r: Row) -> Tensor:
        near, out = exact(r), []
        for h in range(len(r.q)):
            weights = {j: exp(r, j)[h] for j in near[h // group]}
            gone = [j for j in r.all_keys if j not in weights]
            if far is not None and not centred:
                weights |= {j: far(r, j)[h] for j in gone}
            if centred and gone:  # e^m T(x − m) of order 2, m the mean of x over the folded keys
                x = {j: scaled()(r, j)[h] for j in gone}
                m = sum(x.values()) / len(gone)
                weights |= {j: torch.exp(m) * (1 + (x[j] - m) + (x[j] - m) ** 2 / 2) for j in gone}
            out.append(sum(w * r.v(j)[h] for j, w in weights.items()) / sum(weights.values()))
        return torch.stack(out)

    return f(formula)


# ---- Skips
def by_head(r: Row, y: Tensor) -> Tensor:  # a tensor of key heads (Hkv, …), repeated for the query heads
    group = len(r.q) // len(y)
    return torch.stack([y[h // group] for h in range(len(r.q))])


def own_value(r: Row) -> Tensor:  # D v_i; a padded position has no value
    return r.x.skip_weight[:, None] * r.v(r.i) if r.x.real[r.i] else torch.zeros_like(r.v(r.i))


def convolved(r: Row) -> Tensor:  # Σ_b c_b ⊙ v of the b-th key before i, among those that i sees
    taps = by_head(r, r.x.skip_taps)
    width = taps.shape[-1]
    newest = list(reversed(r.keys))[:width]
    return sum((taps[..., width - 1 - b] * r.v(j) for b, j in enumerate(newest)), torch.zeros_like(r.v(r.i)))


# ---- From the formula of one row to a function of tensors
# Tensors without an axis of the batch.
PARAMETERS = {"norm_weight", "norm_bias", "length_exponent", "log_rate", "bonus", "skip_weight", "skip_taps"}
PARAMETERS |= {"level_scales", "near_weight", "far_gate", "lower_bound"}
ABSENT = {"input_gate": None, "output_gate": None, "forget_gate": None, "norm_weight": 1.0, "norm_bias": 0.0}


def f(formula: Callable[[Row], Tensor], structure: Structure = list) -> Callable[..., Tensor]:
    def attention(q, k, v, *, key_mask=None, segment_ids=None, **tensors):
        (batch, heads, length, _), group = q.shape, q.shape[1] // k.shape[1]
        k, v = (torch.stack([y[:, h // group] for h in range(heads)], dim=1) for y in (k, v))
        ones = torch.ones(batch, length, dtype=torch.bool)
        real, segment = ones if key_mask is None else key_mask, ones if segment_ids is None else segment_ids
        out = []
        for b in range(batch):
            x = SimpleNamespace(q=q[b], k=k[b], v=v[b], real=real[b], segment=segment[b], **ABSENT)
            for name, y in tensors.items():
                if y is not None:
                    setattr(x, name, y if name in PARAMETERS else y[b])
            x.structure = structure
            rows = [Row(x, i) for i in range(length)]
            out.append(torch.stack([formula(r) if r.keys else x.v[:, :0].sum(1) for r in rows], dim=1))
        return torch.stack(out)

    return attention


# Σ w v / Σ w; a forget gate, if given, decays w
def normalised(weight: Weight, structure: Structure = list) -> Callable[..., Tensor]:
    def formula(r: Row) -> Tensor:
        w = weight if r.x.forget_gate is None else lambda r, j: weight(r, j) * decay(r, j)
        weights = {j: w(r, j) for j in r.keys}
        return sum(weights[j] * r.v(j) for j in r.keys) / sum(weights.values())

    return f(formula, structure)


def taylor(order: int, feature_map: Map | None = None) -> Callable[..., Tensor]:
    return normalised(taylor_weight(order, feature_map or identity))


def power(p: int, feature_map: Map | None = None) -> Callable[..., Tensor]:
    return normalised(power_weight(p, feature_map or identity))


taylor79, elu_dot, relu_dot, cosine = taylor_weight(79, identity), dot(elu1), dot(relu), dot(l2)

ORACLE: dict[str, Callable[..., Tensor]] = {
    "softmax": f(lambda r: sum_v(r, exp) / sum_w(r, exp)),
    "softmax_clamp_denom": f(lambda r: sum_v(r, exp5) / sum_w(r, exp5).clamp(min=1)),
    "softmax_detach_denom": f(lambda r: sum_v(r, exp5) / sum_w(r, exp5).clamp(min=1).detach()),
    "softmax_detach_denom_gate": f(lambda r: r.out_gate * sum_v(r, exp5) / (sum_w(r, exp5) + 1e-4).detach()),
    "softmax_divs": f(lambda r: sum_v(r, exp5) / r.n),
    "softmax_gate": f(lambda r: r.out_gate * sum_v(r, exp5)),
    "softmax_divS_gate": f(lambda r: r.out_gate * sum_v(r, exp5) / r.n),
    "softmax_divS_gatev2": f(lambda r: sum_v(r, lambda r, j: r.out_gate * exp5(r, j) / r.n)),
    "softmax_divS_norm": f(lambda r: rms(r, sum_v(r, exp5) / r.n)),
    "softmax_taylor_80terms": f(lambda r: sum_v(r, taylor79) / sum_w(r, taylor79)),
    "gated_softmax": f(lambda r: ln(r, r.out_gate * sum_gv(r, exp5) / r.n)),
    "gated_softmax_no_norm": f(lambda r: r.out_gate * sum_gv(r, exp5) / r.n),
    "gated_softmax_no_in_gate": f(lambda r: ln(r, r.out_gate * sum_v(r, exp5) / r.n)),
    "gated_softmax_no_out_gate": f(lambda r: ln(r, sum_gv(r, exp5) / r.n)),
    "gated_softmax_no_out_gate_no_norm": f(lambda r: sum_gv(r, exp5) / r.n),
    "gated_softmax_no_in_gate_no_norm": f(lambda r: r.out_gate * sum_v(r, exp5) / r.n),
    "gated_relu_no_in_gate_no_norm": f(lambda r: r.out_gate * sum_v(r, relu5) / r.n),
    "gated_softmax_no_gate": f(lambda r: ln(r, sum_v(r, exp5) / r.n)),
    "gated_softmax_no_gate_rmsnorm": f(lambda r: rms(r, sum_v(r, exp5) / r.n)),
    "gated_softmax_no_gate_rmsnorm_nodivS": f(lambda r: rms(r, sum_v(r, exp5))),
    "gated_softmax_no_gate_L2norm_nodivS": f(lambda r: l2(sum_v(r, exp5))),
    "gated_softmax_no_gate_L2norm_nodivS_noclamp": f(lambda r: l2(sum_v(r, exp))),
    "gated_ReLU_no_gate_L2norm_nodivS_noclamp": f(lambda r: l2(sum_v(r, scaled(relu)))),
    "gated_softmax_out_gate_L2norm_nodivS_noclamp": f(lambda r: l2(r.out_gate * sum_v(r, exp))),
    "gated_softmax_post_out_gate_L2norm_nodivS_noclamp": f(lambda r: r.out_gate * l2(sum_v(r, exp))),
    "gated_softmax_no_gate_no_norm": f(lambda r: sum_v(r, exp5) / r.n),
    "linear_elu": f(lambda r: sum_v(r, elu_dot) / sum_w(r, elu_dot)),
    "linear_relu": f(lambda r: sum_v(r, relu_dot) / (sum_w(r, relu_dot) + 1e-8)),
    "linear_cosine": f(lambda r: sum_v(r, cosine) / r.n**r.exponent),
    # The other reading: each value divided by its own n_j^σ(c).
    "linear_cosine_by_key": f(lambda r: sum_v(r, lambda r, j: cosine(r, j) / Row(r.x, j).n ** r.exponent)),
    # In the reference's code but not documented.
    "gated_softmax_no_gate_customnorm": f(lambda r: r.x.v.shape[-1] * l2(sum_v(r, exp5) / r.n)),
    "gated_softmax_cumgate": f(lambda r: sum_v(r, exp5) / exp_gates(r).clamp(min=1)),
    "cumulative_gated_softmax": f(lambda r: sum_v(r, exp5) / (r.n * exp_gates(r))),
    "gated_softmax_decay": f(lambda r: ln(r, r.out_gate * sum_gv(r, lambda r, j: exp5(r, j) * decay(r, j)) / r.n)),
    # Softmax with a forget gate (without one: softmax).
    "forgetting_transformer": normalised(exp),
    "window_64": normalised(exp, window(64)),
    "streaming_llm": normalised(exp, window(1020, 4)),
    "streaming_llm_64": normalised(exp, window(64, 4)),
    "rat_16": f(lambda r: r.x.output_gate[:, r.i] * sum_v(r, exp) / sum_w(r, exp), chunk_ends(16)),
    "near_far_64": normalised(near_far(taylor_weight(2, identity), 64, 4)),
    "kept_keys_64": kept_keys(None, 64, 4, 64, centred=True),
    "heavy_hitters_64": kept_keys(None, 64, 4, 64),
    "near_far_centred_64": normalised(centred(2, 64, 4)),
    "near_far_gaussian_64": normalised(gaussian(2, 64, 4)),
    "near_far_gate_64": two_outputs(dot(elu1), 64, share=far_gate),
}


# ---- Decays: constant per head, of one step of time, per channel
def rms5(r: Row, y: Tensor) -> Tensor:  # the RMS norm with an eps of 1e-5
    return y / ((y**2).mean(-1, keepdim=True) + 1e-5).sqrt() * r.x.norm_weight


def rms_across_heads(r: Row, y: Tensor) -> Tensor:  # the same, with one mean over the channels of all heads
    return y / ((y**2).mean() + 1e-5).sqrt() * r.x.norm_weight[:, 0]


def channel_out_gate(r: Row) -> Tensor:  # gᵒ_i, a value per channel
    return r.x.output_gate[:, r.i]


def distance(r: Row, j: int) -> int:  # steps from j to i; padding does not count
    return sum(bool(r.x.real[t]) for t in range(j + 1, r.i + 1))


def constant(rate: Callable[[int, int], float], weight: Weight) -> Weight:  # w · rate(h, H)^(i − j)
    def w(r: Row, j: int) -> Tensor:
        heads = r.q.shape[0]
        factors = [rate(h, heads) ** distance(r, j) for h in range(heads)]
        return weight(r, j) * torch.tensor(factors, dtype=r.q.dtype)[:, None]

    return w


def retnet_rate(h: int, heads: int) -> float:
    return 1 - 2.0 ** (-5 - h)


def lightning_rate(h: int, heads: int) -> float:  # of layer 0
    return math.exp(-8 / heads * h)


def alibi_rate(h: int, heads: int) -> float:
    return math.exp(-(2.0 ** (-8 * (h + 1) / heads)))


def step_decay(r: Row, j: int) -> Tensor:  # exp(−e^A Σ_{j<t≤i} Δ_t)
    steps = sum((r.x.time_step[:, t] for t in range(j + 1, r.i + 1) if r.x.real[t]), torch.zeros_like(r.x.log_rate))
    return torch.exp(-torch.exp(r.x.log_rate) * steps)[:, None]


def mamba(r: Row, j: int) -> Tensor:  # q·k · exp(−e^A Σ Δ) · Δ_j
    return dot()(r, j) * step_decay(r, j) * r.x.time_step[:, j, None]


def mamba2(weight: Weight) -> Callable[..., Tensor]:  # RMS(SiLU(z) ⊙ (Σ w v + D v))
    return f(lambda r: rms_across_heads(r, channel_out_gate(r) * (sum_v(r, weight) + own_value(r))))


def gated_rms(weight: Weight) -> Callable[..., Tensor]:  # SiLU(g) ⊙ RMS(Σ w v)
    return f(lambda r: channel_out_gate(r) * rms5(r, sum_v(r, weight)))


alibi = constant(alibi_rate, exp)

ORACLE |= {
    "retnet": gated_rms(constant(retnet_rate, scaled())),
    "lightning": gated_rms(constant(lightning_rate, dot())),
    "alibi": f(lambda r: sum_v(r, alibi) / sum_w(r, alibi)),
    "simple_gla": gated_rms(lambda r, j: scaled()(r, j) * decay(r, j)),
    "mamba2_ssd": mamba2(mamba),
    "log_linear_mamba2": mamba2(levels(mamba)),
    "log_linear_linear": normalised(levels(elu_dot)),
    "log_linear_taylor_2": normalised(levels(taylor_weight(2, identity))),
    "log_linear_softmax": normalised(levels(exp)),
}


# ---- Write rules: v′_i from the v′_j of the earlier keys that i sees
class KeyRow(Row):
    q = property(lambda r: r.x.k[:, r.i])  # the key of position i looks up


def written(x: SimpleNamespace, i: int, rule: Callable[[SimpleNamespace, int], Tensor]) -> Tensor:
    known = x.__dict__.setdefault("written", {})
    if i not in known:
        known[i] = rule(x, i)
    return known[i]


def delta_rule(w: Weight, f_of_one: float = 1.0) -> Callable[[SimpleNamespace, int], Tensor]:
    def rule(x: SimpleNamespace, i: int) -> Tensor:  # β_i / f(1) · (v_i − Σ_{j<i} w(k_i, k_j) v′_j)
        r = KeyRow(x, i)
        read = sum((w(r, j) * written(x, j, rule) for j in r.keys if j < i), torch.zeros_like(r.v(i)))
        return x.beta[:, i, None] / f_of_one * (r.v(i) - read)

    return rule


def normalised_rule(x: SimpleNamespace, i: int) -> Tensor:  # v_i − β_i Σ_{j<i} w_ij v′_j / Σ_{j<i} w_ij
    r = Row(x, i)
    earlier = [j for j in r.keys if j < i]
    if not earlier:
        return r.v(i)
    read = sum(exp(r, j) * written(x, j, normalised_rule) for j in earlier) / sum(exp(r, j) for j in earlier)
    return r.v(i) - x.beta[:, i, None] * read


def sum_written(r: Row, w: Weight, rule: Callable[[SimpleNamespace, int], Tensor]) -> Tensor:  # Σ w v′
    return sum(w(r, j) * written(r.x, j, rule) for j in r.keys)


def delta(w: Weight, f_of_one: float = 1.0) -> Callable[..., Tensor]:
    return f(lambda r: rms5(r, sum_written(r, w, delta_rule(w, f_of_one))))


def fading_cosine(r: Row, j: int) -> Tensor:
    return cosine(r, j) * step_decay(r, j)


def gated_deltanet(r: Row) -> Tensor:
    return channel_out_gate(r) * rms5(r, sum_written(r, fading_cosine, delta_rule(fading_cosine)))


ORACLE |= {
    "deltanet": delta(cosine),
    "taylor_delta_2": delta(lambda r, j: 1 + cosine(r, j) + cosine(r, j) ** 2 / 2, f_of_one=2.5),
    "softmax_delta": delta(lambda r, j: torch.exp(cosine(r, j)), f_of_one=math.e),
    "gated_deltanet": f(gated_deltanet),
    "deltaformer": f(lambda r: sum_written(r, exp, normalised_rule) / sum_w(r, exp)),
}


# ---- Decays per channel
def channel_decay(r: Row, j: int, log: Callable[[int], Tensor], last: int) -> Tensor:  # exp(Σ_{j<t≤last} log α_t)
    return torch.exp(sum((log(t) for t in range(j + 1, last + 1) if r.x.real[t]), torch.zeros_like(r.q)))


def channel_dot(r: Row, j: int) -> Tensor:  # Σ_c q_c k_c decay_c
    return (r.q * r.k(j) * channel_decay(r, j, lambda t: r.x.channel_gate[:, t], r.i)).sum(-1, keepdim=True)


def hgrn2(r: Row, j: int) -> Tensor:  # SiLU(q)·((1 − α_j) ⊙ decay)/√d, α = b + (1 − b) σ(k), b = σ(lower_bound)
    b = torch.sigmoid(by_head(r, r.x.lower_bound))

    def alpha(t: int) -> Tensor:
        return b + (1 - b) * torch.sigmoid(r.k(t))

    keep = channel_decay(r, j, lambda t: torch.log(alpha(t)), r.i)
    return (r.q * torch.sigmoid(r.q) * (1 - alpha(j)) * keep).sum(-1, keepdim=True) / math.sqrt(r.d)


def rwkv6(r: Row, j: int) -> Tensor:  # the decay of the query's own step comes after it has read; u on its own key
    if j == r.i:
        return (r.q * r.x.bonus * r.k(j)).sum(-1, keepdim=True)
    before = max((t for t in range(r.i) if r.x.real[t]), default=-1)
    return (r.q * r.k(j) * channel_decay(r, j, lambda t: r.x.channel_gate[:, t], before)).sum(-1, keepdim=True)


def gla(r: Row, j: int) -> Tensor:
    return channel_dot(r, j) / math.sqrt(r.d)


def gla_taylor_2(r: Row, j: int) -> Tensor:
    x = gla(r, j)
    return 1 + x + x**2 / 2


ORACLE |= {
    "gla": gated_rms(gla),
    "hgrn2": f(lambda r: rms_across_heads(r, sum_v(r, hgrn2))),
    "rwkv6": f(lambda r: channel_out_gate(r) * ln(r, sum_v(r, rwkv6))),
    "gla_taylor_2": normalised(gla_taylor_2),
}


# ---- Feature maps: φ(r, x, j) of a vector x (H, D) at position j of the row's sequence; j is None for the query
PARAMETERS |= {f"{side}_{name}" for side in ("query", "key") for name in ("map", "map_bias", "projection")}
PARAMETERS |= {"map_weight", "map_bias"}


def matrix(r: Row, name: str, j: int | None) -> Tensor:  # of the query, or of the key head that a query head reads
    return getattr(r.x, f"query_{name}") if j is None else by_head(r, getattr(r.x, f"key_{name}"))


def times(w: Tensor, y: Tensor) -> Tensor:  # W y, head by head
    return torch.stack([w[h] @ y[h] for h in range(len(y))])


def place(r: Row, j: int | None) -> int:  # 1, 2, 3, …: the number of position j among the keys of its segment
    known = r.x.__dict__.setdefault("places", {})
    if j is not None and j not in known:
        known[j] = len(Row(r.x, j).all_keys)
    return len(r.all_keys) if j is None else known[j]


def hedgehog(r: Row, y: Tensor, j: int | None) -> Tensor:
    e = torch.exp(2 * times(matrix(r, "map", j), y))
    both = torch.cat([e, 1 / e], -1)
    return both / both.sum(-1, keepdim=True)


def two_softmaxes(r: Row, y: Tensor, j: int | None) -> Tensor:  # [softmax(Wx), softmax(−Wx)]
    e = torch.exp(times(matrix(r, "map", j), y))
    return torch.cat([e / e.sum(-1, keepdim=True), (1 / e) / (1 / e).sum(-1, keepdim=True)], -1)


def t2r(r: Row, y: Tensor, j: int | None) -> Tensor:
    return relu(times(matrix(r, "map", j), y) + matrix(r, "map_bias", j))


def softmax_features(r: Row, y: Tensor, j: int | None) -> Tensor:
    return torch.exp(y) / torch.exp(y).sum(-1, keepdim=True)


def projected(r: Row, y: Tensor, j: int | None) -> Tensor:
    return times(matrix(r, "projection", j), y)


def rebased(r: Row, y: Tensor, j: int | None) -> Tensor:
    y = projected(r, y, j)
    y = y - y.mean(-1, keepdim=True)
    return y / ((y**2).mean(-1, keepdim=True) + 1e-5).sqrt() * r.x.map_weight + r.x.map_bias


def cosformer(r: Row, y: Tensor, j: int | None) -> Tensor:
    angle = math.pi / 2 * place(r, j) / 4096
    return torch.cat([relu(y) * math.cos(angle), relu(y) * math.sin(angle)], -1)


def exponent(y: Tensor) -> Tensor:  # 3 (½ + tanh|q|)
    return 3 * (0.5 + torch.tanh((y**2).sum(-1, keepdim=True).sqrt()))


def positive_power(y: Tensor, p: Tensor | float) -> Tensor:  # y^p of positive entries, 0 of the others
    return torch.where(y > 0, torch.where(y > 0, y, 1.0) ** p, 0.0)


def nala(r: Row, y: Tensor, j: int | None) -> Tensor:
    base, p = (l2(y), exponent(y)) if j is None else (y, 3.0)
    return torch.cat([positive_power(base, p), positive_power(-base, p)], -1)


def nala_preprint(r: Row, y: Tensor, j: int | None) -> Tensor:
    size = positive_power(l2(y).abs(), exponent(y)) if j is None else y.abs() ** 3
    return torch.cat([size * torch.cos(l2(y)), size * torch.sin(l2(y))], -1)


def rotated(phi, blocks: int = 1):  # neighbouring pairs turn by i · 10000^(−p/P), in each block by itself
    def turned(r: Row, y: Tensor, j: int | None) -> Tensor:
        out = []
        for part in phi(r, y, j).chunk(blocks, -1):
            pairs = part.shape[-1] // 2
            for p in range(pairs):
                a, b, angle = part[:, 2 * p], part[:, 2 * p + 1], place(r, j) * 10_000 ** (-p / pairs)
                out += [a * math.cos(angle) - b * math.sin(angle), a * math.sin(angle) + b * math.cos(angle)]
        return torch.stack(out, -1)

    return turned


def plain(phi: Map):  # a map that looks at the vector alone
    return lambda r, y, j: phi(y)


def alike(phi) -> Weight:  # φ(q_i)·φ(k_j)
    return lambda r, j: (phi(r, r.q, None) * phi(r, r.k(j), j)).sum(-1, keepdim=True)


def random_features(omega: Tensor):  # ω is given: it is drawn, not derived
    def phi(r: Row, y: Tensor, j: int | None) -> Tensor:
        y = y / r.d**0.25
        return torch.exp(y @ omega.T - (y**2).sum(-1, keepdim=True) / 2) / math.sqrt(len(omega))

    return phi


def over_sum(weight: Weight, eps: float = 0.0) -> Callable[..., Tensor]:
    return f(lambda r: sum_v(r, weight) / (sum_w(r, weight) + eps))


def taylor_2(weight: Weight, d: int) -> Weight:  # 1 + x + x²/2, x the weight over √d
    return lambda r, j: 1 + weight(r, j) / d**0.5 + weight(r, j) ** 2 / (2 * d)


def unrotated_sum(r: Row, phi, eps: float = 1e-6) -> Tensor:  # Σ φ(q)·φ(k) and an eps for each key
    return sum_w(r, alike(phi)) + eps * r.n


def nalaformer(phi) -> Callable[..., Tensor]:
    inner = alike(rotated(phi, 2))
    return f(lambda r: channel_out_gate(r) * ln(r, sum_v(r, inner) / unrotated_sum(r, phi) + convolved(r)))


def mlstm_weight(r: Row, j: int) -> Tensor:
    return scaled()(r, j) * by_head(r, r.x.key_gate)[:, j, None] * decay(r, j)


elu_map = plain(elu1)
ORACLE |= {
    "hedgehog": over_sum(alike(hedgehog)),
    "t2r": over_sum(alike(t2r), 1e-8),
    "softmax_features": over_sum(alike(softmax_features)),
    "lolcats_64": normalised(lolcats(alike(two_softmaxes), 64)),
    "near_far_average_64": two_outputs(alike(softmax_features), 64),
    "linear_norm_aware": over_sum(alike(nala), 1e-6),
    "cosformer": over_sum(alike(cosformer), 1e-6),
    "based_16": over_sum(taylor_2(alike(projected), 16), 1e-12),
    "rebased": over_sum(lambda r, j: alike(rebased)(r, j) ** 2 / 16, 1e-5),
    "nalaformer": nalaformer(nala),
    "nalaformer_preprint": nalaformer(nala_preprint),
    "recgrela": f(
        lambda r: (
            channel_out_gate(r)
            * (
                sum_v(r, alike(rotated(elu_map))) / unrotated_sum(r, elu_map)
                + convolved(r) * torch.sigmoid(convolved(r))
            )
        )
    ),
    "roformer_linear": f(lambda r: sum_v(r, alike(rotated(elu_map))) / sum_w(r, alike(elu_map))),
    "mlstm": f(
        lambda r: channel_out_gate(r) * ln(r, sum_v(r, mlstm_weight) / sum_w(r, mlstm_weight).abs().clamp(min=1))
    ),
}
