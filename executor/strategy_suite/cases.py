"""What the suite compares: two models, every strategy on two workers, and delays of workers."""

from __future__ import annotations

from collections.abc import Mapping
from io import StringIO
from typing import Any

import numpy as np

from executor.suite.cases import Platform, SuiteCase, scenario_text
from executor.suite.models import MEDIUM, SMALL
from parsim.arrays import Array

WORKERS = 2
MODELS: Mapping[str, tuple[Mapping[str, Any], int]] = {
    "gpt-7m": ({**SMALL, "seq_len": 32, "dropout": False}, 4),
    "llama-15m": ({**MEDIUM, "seq_len": 64}, 4),
}
"""A model and its global batch: few tokens, so that messages are no small part of a step."""

STRATEGIES: Mapping[str, Any] = {
    "ddp": "ddp",
    "data_parallel": "data_parallel",
    "one server": {"name": "parameter_server", "servers": 1, "on": "devices"},
    "two servers": {"name": "parameter_server", "servers": 2, "on": "devices"},
    "two servers, 10 %": {
        "name": "parameter_server",
        "servers": 2,
        "on": "devices",
        "compression": 0.1,
    },
    "one server, asynchronous": {"name": "asynchronous_server", "servers": 1, "on": "devices"},
    "two servers, asynchronous": {"name": "asynchronous_server", "servers": 2, "on": "devices"},
    "gossip": "gossip",
    "asynchronous gossip": "asynchronous_gossip",
    "local SGD, every 2": {"name": "local_sgd", "every": 2},
    "DiLoCo, every 2": {"name": "diloco", "every": 2},
}
"""What stands under `plan.strategy`, by the name in the report."""

CLASSIFIERS: Mapping[str, tuple[Mapping[str, Any], int]] = {
    "20,000 classes": ({"name": "multi-task-1-16", "image_size": 32, "num_classes": 20000}, 16),
}
"""A small trunk under a product by far larger: what layouts are for."""
MESH: Mapping[str, Any] = {"name": "layout", "mesh": {"devices": WORKERS}}
LAYOUTS: Mapping[str, Any] = {
    **{name: STRATEGIES[name] for name in ("ddp", "two servers", "gossip")},
    "layout by batch": {**MESH, "layout": {"batch": "devices"}},
    "layout by classes": {**MESH, "signatures": {"head0.classes": {"weight": "S(1)"}}},
}
"""Strategies of the classifier: its model whole on every rank, or laid out on both."""

RATE = 50e6
"""Bytes a second of a rank's link in the limited turns, each way."""
LIMITED_MODELS: Mapping[str, tuple[Mapping[str, Any], int]] = {
    "gpt-7m": ({**SMALL, "seq_len": 32, "dropout": False}, 4),
    "resnet18": ({"name": "resnet18", "image_size": 32, "num_classes": 10}, 16),
}
"""Models of the limited turns: a transformer and a network of images, 29 and 45 MB of weights."""
LIMITED: Mapping[str, Any] = {
    "ddp": {"name": "local_sgd", "every": 1},  # all-reduced gradients behind the backward
    **{name: STRATEGIES[name] for name in ("one server", "two servers", "two servers, 10 %")},
    "two servers, 16 bit": {
        "name": "parameter_server",
        "servers": 2,
        "on": "devices",
        "compression": 0.5,
        "compressor": "half",
    },
    "two servers, asynchronous": STRATEGIES["two servers, asynchronous"],
    "gossip": "gossip",
    "asynchronous gossip": "asynchronous_gossip",
    "local SGD, every 2": {"name": "local_sgd", "every": 2},
    "local SGD, every 4": {"name": "local_sgd", "every": 4},
    "DiLoCo, every 2": {"name": "diloco", "every": 2},
}
"""Strategies of the limited turns: those whose exchanges pass a link, workers alike."""

WARMUP, MEASURED = 2, 4
"""Rounds of a turn; averages are every second round, so that a turn has as many as there should be.
"""
MEASURED_ASYNCHRONOUS = 12
"""Measured rounds of a turn where nobody waits for others: a rate counts until the faster worker is
done, and the slower one needs enough rounds by then."""


def cases() -> list[SuiteCase]:
    """Every strategy with every model, and layouts, on the links that the machine has."""
    return [*_cases(MODELS, STRATEGIES), *_cases(CLASSIFIERS, LAYOUTS)]


def limited_cases() -> list[SuiteCase]:
    """Strategies with the models whose links are limited; reductions wait for the backward."""
    return _cases(LIMITED_MODELS, LIMITED, overlap_grad_reduce=False)


def limited_text(case: SuiteCase, platform: Platform) -> str:
    """The scenario of a case with links of RATE between the ranks, in place of measured curves."""
    from ruamel.yaml import YAML

    yaml, text = YAML(), StringIO()
    document = yaml.load(scenario_text(case, platform))
    document["cluster"]["intra"] = {"bandwidth": f"{RATE / 1e6:g}MB/s", "efficiency": 1.0}
    yaml.dump(document, text)
    return text.getvalue()


def _cases(
    models: Mapping[str, tuple[Mapping[str, Any], int]],
    strategies: Mapping[str, Any],
    **common: Any,  # noqa: ANN401 - keys of a plan
) -> list[SuiteCase]:
    return [
        SuiteCase(
            name=f"{model}, {name}",
            family=model,
            model=block,
            batch=batch,
            plan={
                "dp": WORKERS,
                "microbatch_size": batch // WORKERS,
                "strategy": strategy,
                **common,
            },
        )
        for model, (block, batch) in models.items()
        for name, strategy in strategies.items()
    ]


AGED: Mapping[str, Mapping[str, Any]] = {
    "no bound": {"servers": 1},
    "bound 1": {"servers": 1, "staleness": 1},
    "bound 0": {"servers": 1, "staleness": 0},
}
"""Options of the asynchronous server whose ages are compared."""

DELAYED_WORKERS, DELAYED_ROUNDS = 4, 60
SLOWEST = 2.0
"""The last worker's delays are so many times as long."""


def delays(mean: float, seed: int = 7) -> Array:
    """Seconds that each worker sleeps in each round, (rounds, workers): lognormal, sigma 0.3."""
    random = np.random.default_rng(seed)
    drawn = np.exp(0.3 * random.standard_normal((DELAYED_ROUNDS, DELAYED_WORKERS)))
    drawn[:, -1] *= SLOWEST
    return np.asarray(mean * drawn)
