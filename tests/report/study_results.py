"""Results of studies that never ran: numbers from a formula, so that tests know what to expect."""

from __future__ import annotations

import math
import random

from softmax_rnn.study.summary import summary

L2_NORM = "gated_softmax_no_gate_L2norm_nodivS_noclamp"
LEVELS = {"softmax": 1.80, L2_NORM: 1.79, "softmax_divS_gate": 2.01, "linear_elu": 2.44}
LEVELS |= {"taylor_1": 3.3, "taylor_2": 1.93, "taylor_4": 1.81}
SHORT = {name: {L2_NORM: "softmax_l2", "softmax_divS_gate": "softmax_gate_over_t"}.get(name, name) for name in LEVELS}
MACHINE = {"date": "2026-11-16", "processor": "Some Processor at 2 GHz", "cores": 2, "torch": "2.13.0"}


def entry(grid, varied, loss, accuracy, *, state="finished", steps=400, data=None, error=None, context=256, rough=0.01):
    """A run that ends at a loss and an accuracy; unfinished ones have half their steps."""
    noise = random.Random(str((grid, varied)))
    last = steps if state == "finished" else 0 if state == "planned" else steps // 2

    def at(step, end, begin):
        return end + (begin - end) * math.exp(-6 * step / steps) * (1 + rough * noise.random())

    tested = range(0, last + 1, 50) if last else ()
    result = {
        "test_loss": loss, "train_loss": loss - 0.05, "test_accuracy": accuracy, "parameters": 825_984,
        "tokens_per_second": 21_000 * (1 + 0.05 * noise.random()), "memory_bytes": 900_000_000, "step": steps,
    }  # fmt: skip
    name = "-".join([grid, *map(str, varied.values())])
    return {
        "name": name,
        "grid": grid,
        "varied": varied,
        "folder": f"runs/demo/runs/{name}",
        "state": state,
        "error": error,
        "settings": {**varied, "steps": steps, "context": context, "data": {"source": data or "shakespeare"}},
        "result": result if state == "finished" else None,
        "train_curve": [[step, at(step, loss - 0.05, 5.5)] for step in range(10, last + 1, 10)],
        "test_curve": [[step, at(step, loss, 5.5)] for step in tested],
        "accuracy_curve": [[step, accuracy * (1 - math.exp(-6 * step / steps))] for step in tested],
        "by_position": [loss + 1.5 / (i + 1) for i in range(32)] if last else [],
        "seconds": 75.0,
        "state_bytes": 4 * 2 * 128 * context,
    }


def language(levels=None, seeds=3, panels=("shakespeare", "kjv"), grid="language"):
    """Runs on texts: every variant, seed and data set, with a little noise that seeds share."""
    runs = []
    for place, data in enumerate(panels):
        for variant, level in (levels or LEVELS).items():
            for seed in range(seeds):
                own = random.Random(f"{variant}{seed}{data}").gauss(0, 0.006)
                loss = level + 0.15 * place + 0.05 * seed + own
                varied = {"variant": variant, "seed": seed, "data": data}
                runs.append(entry(grid, varied, loss, 0.6 - loss / 10, data=data))
    return runs


def recall(seeds=2, variants=("softmax", L2_NORM, "linear_elu"), dims=(32, 64, 128), pairs=(4, 8)):
    """Runs of a recall task: dimensions × pairs × learning rates."""
    runs = []
    for variant in variants:
        for dim in dims:
            for pair in pairs:
                for rate in (3e-4, 1e-3, 3e-3):
                    for seed in range(seeds):
                        solved = variant != "linear_elu" and not (variant == "softmax" and rate == 3e-3)
                        accuracy = 0.99 if solved else min(0.9, dim / (64 * pair)) * (1 - 30 * abs(rate - 1e-3))
                        accuracy += 0.004 * random.Random(f"{variant}{dim}{pair}{rate}{seed}").random()
                        varied = {
                            "variant": variant,
                            "model.hidden_size": dim,
                            "data.pairs": pair,
                            "learning_rate": rate,
                        }
                        varied["seed"] = seed
                        runs.append(entry("recall", varied, 2 - 1.9 * accuracy, accuracy, data="mqar", context=64))
    return runs


def results(runs, *, title="A study of attention", **more):
    """The values that a study writes, for these runs."""
    variants = list(dict.fromkeys(run["varied"]["variant"] for run in runs))
    facts = {
        name: {
            "formula": "o = Σ w v / Σ w,  w = exp(q·k/√d)",
            "parts": {"score": "exp", "normaliser": "row_sum"},
            "same_as": ["another_name"],
            "notes": ["without RoPE"],
            "cancellations": ["the clamp is never reached: a cosine is at most 1"],
        }
        for name in variants
    }
    study = {
        "name": "demo", "title": title, "asks": "Does a norm replace the denominator?", "scale": "cpu",
        "found": "L2 norm is as good as softmax.", "command": "softmax-rnn study demo", "minutes": 30.0,
    }  # fmt: skip
    return {
        "study": study,
        "machine": MACHINE,
        "runs": runs,
        "summary": summary(runs),
        "variants": facts,
        "claims": [],
        "published": [],
        "terms": None,
        **more,
    }


CLAIMS = [
    {
        "claim": f"The claim that is {state}.",
        "paper": "section 4.1, figure 1",
        "state": state,
        "evidence": "shakespeare: +0.2100 ± 0.0100, 3 seeds",
        "rule": "the 95 % interval of the paired difference in test loss says that gate is worse than softmax",
    }
    for state in ("reproduced", "not reproduced", "undecided")
]
PUBLISHED = [
    {"source": "the paper, figure 2", "what": "Pile, 90k steps", "value": 2.58, "unit": "nats", "variant": "softmax"},
    {"source": "the paper, figure 2", "what": "gate, Pile, 90k steps", "value": 2.62, "unit": "nats"},
]
TERMS = {
    "variant": "softmax",
    "layers": [
        {"layer": layer, "log_terms": [n * math.log(1.5 + layer) - math.lgamma(n + 1) for n in range(13)]}
        for layer in range(4)
    ],
    "dominant": [{"layer": layer, "order": 1 + layer} for layer in range(4)],
}
SPREAD = {"half": 0.1, "low": -0.05, "high": 0.15, "n": 8}
EFFECTS = [
    {"grid": "factorial", "effect": name, "kind": "main effect", "mean": 0.05, **SPREAD}
    for name in ("norm l2", "clamp")
]
TRENDS = [
    {
        "grid": "width", "along": "model.hidden_size", "what": "softmax_l2", "than": "softmax", "paper": 3072,
        "points": [{"size": size, "mean": 0.05, **SPREAD} for size in (64.0, 128.0)],
        "slope": {"mean": -0.01, **SPREAD}, "prediction": {"mean": 0.02, **SPREAD},
    }
]  # fmt: skip


def everything(levels=None):
    """A study with every section: texts, recall, orders, claims, published numbers, terms, runs in every state."""
    runs = language(levels) + recall()
    states = [("failed", "RunError: the loss is no longer finite"), ("incomplete", None), ("planned", None)]
    for seed, (state, error) in enumerate(states, start=7):
        varied = {"variant": next(iter(levels or LEVELS)), "seed": seed, "data": "kjv"}
        runs.append(entry("language", varied, 2.2, 0.3, state=state, error=error, data="kjv"))
    return results(runs, claims=CLAIMS, published=PUBLISHED, terms=TERMS, effects=EFFECTS, trends=TRENDS)
