"""Prediction intervals: what they rest on, and what widens them."""

from __future__ import annotations

from dataclasses import replace
from math import hypot, log

import pytest

from parsim.sim.confidence.basis import Z80
from parsim.sim.confidence.interval import step_interval
from parsim.sim.confidence.known_errors import (
    ANY,
    any_software,
    distance,
)
from parsim.sim.confidence.step_parts import Parts
from tests.parsim.sim.confidence.known_groups import (
    BASE,
    ERRORS,
    RANGES,
    SIZES,
    group,
    half,
    halves,
)


def test_the_device_under_its_software() -> None:
    assert half(BASE) == pytest.approx(0.05)


def test_a_release_that_was_measured_and_is_irregular() -> None:
    known = replace(BASE, software="torch", release="2.1")
    assert half(known) == pytest.approx(0.02)
    basis = step_interval(known, 1.0, ERRORS).basis
    assert "release 2.1 is irregular: one of its plans took 1.6 times more or less" in basis


def test_a_release_that_was_not_measured() -> None:
    other = replace(BASE, software="torch", release="2.2")
    assert half(other) == pytest.approx(0.05 * 0.8)
    assert half(replace(other, release="")) == pytest.approx(0.05)
    assert "none of release 2.2" in step_interval(other, 1.0, ERRORS).basis
    assert half(replace(BASE, release="2.2")) == half(BASE)  # no run of that stack states one


def test_a_model_that_no_run_has() -> None:
    new = replace(BASE, model="61 layers of 7168")
    assert half(new) == pytest.approx(0.05 * 1.2)
    assert half(replace(new, kinds=("experts",))) == pytest.approx(0.05 * 1.5)
    basis = step_interval(new, 1.0, ERRORS).basis
    assert "none of a model of 61 layers of 7168" in basis


def test_a_kind_of_plan_that_no_run_of_the_group_has() -> None:
    new = replace(BASE, kinds=("context parallelism", "ZeRO-3"))
    assert half(new) == pytest.approx(0.05 * 1.3)
    basis = step_interval(new, 1.0, ERRORS).basis
    assert "none with context parallelism and ZeRO-3" in basis


def test_a_model_wider_than_any_of_the_software_on_the_device() -> None:
    wide = replace(BASE, sizes={**SIZES, "hidden_size": 16384.0})
    assert half(wide) == pytest.approx(hypot(0.05 * 1.25, 0.1 * log(2.0)))
    assert "all of narrower models" in step_interval(wide, 1.0, ERRORS).basis
    others = (replace(wide, kinds=("experts",)), replace(wide, sizes={"devices": 32.0}))
    for other in others:  # experts say how large a mixture is; a network has no one width
        assert "all of narrower models" not in step_interval(other, 1.0, ERRORS).basis
    # a release's runs may be narrower than those of the software's other releases
    narrow = replace(group("a100", "torch", 0.02, "2.1"), ranges={**RANGES, "hidden_size": (8, 9)})
    errors = replace(ERRORS, groups={**ERRORS.groups, ("a100", "torch", "2.1"): narrow})
    same = replace(BASE, software="torch", release="2.1")
    assert "narrower" not in step_interval(same, 1.0, errors).basis


def test_software_without_any_run_is_generic() -> None:
    other = replace(BASE, software="maxtext")
    assert half(other) == pytest.approx(hypot(0.15 * 1.8, 0.25))
    assert half(replace(other, generic=True)) == half(other)
    assert "generic assumptions" in step_interval(replace(other, generic=True), 1.0, ERRORS).basis
    assert "none of maxtext among them" in step_interval(other, 1.0, ERRORS).basis


def test_software_whose_runs_are_on_other_devices() -> None:
    """No surer than the device under others, nor than the software elsewhere."""
    other = replace(BASE, software="nemo")
    assert half(other) == pytest.approx(0.15 * 1.8)
    unsure = replace(ERRORS, groups={**ERRORS.groups, (ANY, "nemo", ANY): group(ANY, "nemo", 0.2)})
    assert halves(other, unsure)[0] == pytest.approx(0.2 * 1.8)
    assert "none of it under nemo" in step_interval(other, 1.0, ERRORS).basis


def test_software_whose_dense_models_alone_have_runs() -> None:
    mixture = replace(BASE, software="nemo, experts")
    assert half(mixture) == pytest.approx(0.15 * 1.8)
    assert "none of it under nemo, experts" in step_interval(mixture, 1.0, ERRORS).basis


def test_a_mixture_under_other_software_is_judged_by_mixtures_of_its_device() -> None:
    mixture = replace(BASE, software="nemo, experts")
    alone = group("a100", any_software(mixture.software), 0.22)
    errors = replace(ERRORS, groups={**ERRORS.groups, ("a100", alone.software, ANY): alone})
    assert halves(mixture, errors)[0] == pytest.approx(0.22 * 1.8)
    assert halves(replace(BASE, software="nemo"), errors)[0] == pytest.approx(0.15 * 1.8)
    assert "of a100 under any software, experts" in step_interval(mixture, 1.0, errors).basis


def test_a_described_stack_whose_runs_are_left_out_is_not_an_unknown_one() -> None:
    described = replace(ERRORS, stacks=ERRORS.stacks | {"maxtext"})
    assert halves(replace(BASE, software="maxtext"), described)[0] == pytest.approx(0.15 * 1.8)


def test_software_that_one_publisher_measured_is_new_to_everybody_else() -> None:
    theirs = replace(BASE, software="mpt", publisher="mosaicml")
    assert half(theirs) == pytest.approx(0.04)
    ours = replace(theirs, publisher="")
    assert half(ours) == pytest.approx(0.15 * 1.8)  # the device's runs under any software
    assert half(replace(ours, publisher="NVIDIA")) == half(ours)
    basis = step_interval(ours, 1.0, ERRORS).basis
    assert "9 published runs of a100 under mpt" in basis
    assert "all of them by mosaicml, none by anybody else" in basis
    assert half(replace(BASE, software="lm")) == pytest.approx(0.04)  # two publishers


def test_another_device_under_the_software() -> None:
    assert half(replace(BASE, device="h100", software="nemo")) == pytest.approx(0.04 * 2.0)


def test_neither_was_measured() -> None:
    changed = replace(BASE, device="h100", software="maxtext")
    assert half(changed) == pytest.approx(hypot(0.3 * 2.0, 0.25))  # the least known decides
    assert "none of h100" in step_interval(changed, 1.0, ERRORS).basis


def test_a_calibrated_device_has_the_errors_of_calibrated_ones() -> None:
    changed = replace(BASE, calibrated=True, software="maxtext")
    assert half(changed) == pytest.approx(0.06)
    assert half(replace(changed, kernels=0.1)) == pytest.approx(hypot(0.06, Z80 * 0.1))
    unsure = replace(changed, exchange=0.1)
    assert half(unsure) == pytest.approx(hypot(0.06, Z80 * 0.1))
    assert "its collectives add 12.8 %" in step_interval(unsure, 1.0, ERRORS).basis


def test_a_system_without_runs_widens_by_its_links() -> None:
    changed = replace(BASE, system="pond", exchange=0.1)
    assert half(changed) == pytest.approx(hypot(0.05, Z80 * 0.1))
    assert half(replace(changed, system="pod")) == pytest.approx(0.05)
    assert "no run on system pond" in step_interval(changed, 1.0, ERRORS).basis


def test_hard_parts_widen_by_their_weights() -> None:
    parts = Parts(host=0.5, within=0.25, after=0.05, quantized=1.0)
    low, high = halves(replace(BASE, parts=parts))
    both = (1.0, 2.0 * 0.5, 3.0 * 0.3, 1.5)
    assert low == pytest.approx(0.05 * hypot(*both))
    assert high == pytest.approx(0.05 * hypot(*both, 4.0 * 0.5 * 0.25))


def test_memory_near_its_limit_and_waiting_hosts_make_steps_longer_only() -> None:
    low, high = halves(replace(BASE, parts=Parts(pressed=1.0)))
    assert low == pytest.approx(0.05)
    assert high == pytest.approx(0.05 * hypot(1.0, 2.5))


def test_sizes_outside_of_the_measured_ones_widen() -> None:
    large = replace(BASE, sizes={**SIZES, "devices": 256.0})  # 4 times the largest run
    assert half(large) == pytest.approx(hypot(0.05, 0.1 * log(4.0)))
    assert "devices a factor 4.0 outside" in step_interval(large, 2.0, ERRORS).basis


def test_distance_by_hand() -> None:
    assert distance({"devices": 8.0, "hidden_size": 8192.0}, RANGES) == 0.0
    assert distance({"devices": 4.0, "hidden_size": 16384.0}, RANGES) == pytest.approx(
        log(2.0) * 2**0.5
    )


def test_a_host_that_no_run_shows_widens() -> None:
    free = half(BASE)
    assert half(replace(BASE, launches=0.3)) == pytest.approx(hypot(free, Z80 * 0.3))
    basis = step_interval(replace(BASE, launches=0.3), 2.0, ERRORS).basis
    assert "a host that paces it adds 38.4 %" in basis
