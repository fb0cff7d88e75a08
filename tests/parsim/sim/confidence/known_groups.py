"""Made-up groups of errors, and what a plan's interval takes of them."""

from __future__ import annotations

from dataclasses import replace
from math import log

import pytest

from parsim.sim.confidence.interval import step_interval
from parsim.sim.confidence.known_errors import ANY, CALIBRATED, Errors, Group, Standing
from parsim.sim.confidence.step_parts import Parts

RANGES = {"devices": (8.0, 64.0), "hidden_size": (1024.0, 8192.0)}
SIZES = {"devices": 32.0, "hidden_size": 4096.0}


def group(device: str, name: str, half: float, release: str = ANY) -> Group:
    return Group(device=device, software=name, release=release, n=9, half=half, ranges=RANGES,
                 systems=("pod",))  # fmt: skip


GROUPS = (
    group(ANY, ANY, 0.3),
    group("a100", ANY, 0.15),
    group("a100", "megatron", 0.05),
    group("a100", "torch", 0.05),
    replace(group("a100", "torch", 0.02, "2.1"), irregular=1.6),
    group(ANY, "nemo", 0.04),
    replace(group("a100", "mpt", 0.04), publishers=("mosaicml",)),
    replace(group("a100", "lm", 0.04), publishers=("NVIDIA", "mlcommons")),
    Group(device=CALIBRATED, software=ANY, n=12, half=0.06, ranges={}),
)
ERRORS = Errors(
    groups={(each.device, each.software, each.release): each for each in GROUPS},
    factors={"known": 1.0, "model": 1.2, "size": 1.25, "mixture": 1.5, "kind": 1.3,
             "device": 2.0, "software": 1.8, "release": 0.8},
    unknown_software=0.25,
    reach=0.1,
    models=frozenset({"48 layers of 6144"}),
    stacks=frozenset({"megatron", "torch", "nemo", "mpt", "lm"}),
    weights={"kernels": 1.0, "host": 2.0, "exchange": 3.0, "skew": 4.0, "quantized": 1.5,
             "pressed": 2.5},
)  # fmt: skip
BASE = Standing(device="a100", software="megatron", system="pod", calibrated=False,
                generic=False, sizes=SIZES, parts=Parts(),
                model="48 layers of 6144")  # fmt: skip


def halves(where: Standing, errors: Errors = ERRORS) -> tuple[float, float]:
    result = step_interval(where, 2.0, errors)
    return -log(result.low / 2.0), log(result.high / 2.0)


def half(where: Standing) -> float:
    low, high = halves(where)
    assert low == pytest.approx(high)
    return high
