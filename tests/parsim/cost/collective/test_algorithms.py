"""Switches that reduce, exchanges of all with all, gloo, and forced algorithms."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parsim.cost.collective.choice import choose
from parsim.cost.collective.kinds import Algorithm
from parsim.errors import PlanError
from tests.parsim.cost.collective.on_systems import group, seconds, system


def test_a_switch_that_reduces_between_nodes() -> None:
    """SHARP on DGX A100: about 110 GB/s of S, where a ring has 100 (nccl issue 320)."""
    on = system("dgx-a100")
    assert on.network is not None
    sharp = replace(on, curves=(), network=replace(on.network, sharp=True))
    where = group("dgx-a100", 32)
    choice = choose(sharp, "all_reduce", 4e9, where, algorithm="collnet")
    assert 4.0 / choice.seconds == pytest.approx(110.0, rel=0.1)
    with pytest.raises(PlanError, match=r"collnet cannot do all_reduce .*allowed: ring"):
        choose(on, "all_reduce", 4e9, where, algorithm="collnet")


def test_an_exchange_of_all_with_all_is_bound_by_the_interfaces() -> None:
    """Half of what each of 16 ranks sends leaves a node of 8 interfaces of 25 GB/s."""
    took = seconds("dgx-a100", "all_to_all", 1e9, 16)
    assert took == pytest.approx(8 * 0.5e9 / (0.96 * 200e9), rel=0.05)
    inside = seconds("dgx-a100", "all_to_all", 1e9, 8)
    assert 0.875e9 / 300e9 < inside < took


def test_gloo_takes_what_was_measured_of_it() -> None:
    """Two ranks of one machine: 117 us for 4 bytes, 2.0 to 2.2 GB/s of 16 and 64 MiB."""
    assert seconds("cpu", "all_reduce", 4.0, 2) == pytest.approx(117e-6, rel=0.01)
    for size in (16 * 2.0**20, 64 * 2.0**20):
        assert size / seconds("cpu", "all_reduce", size, 2) / 1e9 == pytest.approx(2.1, rel=0.05)
    took = choose(system("cpu"), "all_reduce", 1e6, group("cpu", 2))
    assert (took.library, took.algorithm) == ("gloo", "ring")
    with pytest.raises(PlanError, match="nvls cannot do all_reduce for this group on cpu"):
        choose(system("cpu"), "all_reduce", 1e6, group("cpu", 2), algorithm="nvls")


def test_a_forced_algorithm_is_no_faster_than_the_best() -> None:
    for name, ranks in (("dgx-h100", 8), ("dgx-h100", 16), ("dgx-a100", 16), ("dgx-b200", 8)):
        where = group(name, ranks)
        free = choose(system(name), "all_reduce", 1e9, where).seconds
        algorithms: tuple[Algorithm, ...] = ("ring", "tree")
        for algorithm in algorithms:
            forced = choose(system(name), "all_reduce", 1e9, where, algorithm=algorithm)
            assert forced.algorithm == algorithm
            assert forced.seconds >= free * (1 - 1e-12)
        slow = choose(system(name), "all_reduce", 1e9, where, algorithm="ring", protocol="LL")
        fast = choose(system(name), "all_reduce", 1e9, where, algorithm="ring", protocol="Simple")
        assert slow.protocol == "LL"
        assert slow.seconds > 1.5 * fast.seconds
