"""Prediction intervals: what they rest on, and what widens them."""

from __future__ import annotations

from dataclasses import replace
from math import exp, hypot, log
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.job import NETWORKS, Job
from parsim.cost.layer_doubt import LayerDoubt, Missing
from parsim.cost.software import software
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import Plan
from parsim.scenario import load_scenario
from parsim.sim import simulate
from parsim.sim.confidence.basis import Z80
from parsim.sim.confidence.interval import Interval, step_interval
from parsim.sim.confidence.known_errors import (
    ANY,
    CALIBRATED,
    Errors,
    Group,
    Standing,
    any_software,
    distance,
    errors_of,
)
from parsim.sim.confidence.step_parts import Parts
from parsim.sim.plan_interval import stacks_on
from tests.commands import ROOT

MODEL = build_transformer(model_spec("megatron-22b"))
PLAN = Plan(tp=8, num_microbatches=4)
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
    assert "no run of maxtext is known" in step_interval(other, 1.0, ERRORS).basis


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


shares = st.floats(0.0, 1.0)
standings = st.builds(
    Standing,
    device=st.sampled_from(["a100", "h100"]),
    software=st.sampled_from(["megatron", "nemo", "maxtext"]),
    system=st.sampled_from(["pod", "pond"]),
    release=st.sampled_from(["", "2.1", "2.2"]),
    calibrated=st.booleans(),
    generic=st.just(False),
    sizes=st.fixed_dictionaries(
        {"devices": st.floats(1.0, 1e5), "hidden_size": st.floats(64.0, 1e5)}
    ),
    parts=st.builds(
        Parts, host=shares, within=shares, after=shares, quantized=shares, pressed=shares
    ),
    kernels=shares,
    exchange=shares,
)


def wider(first: Interval, other: Interval) -> bool:
    return first.low <= other.low * (1.0 + 1e-9) and first.high >= other.high * (1.0 - 1e-9)


@given(where=standings, seconds=st.floats(1e-6, 1e6))
def test_the_prediction_is_always_inside(where: Standing, seconds: float) -> None:
    assert step_interval(where, seconds, ERRORS).covers(seconds)


@given(where=standings, factor=st.floats(1.0, 100.0), name=st.sampled_from(["devices",
       "hidden_size"]))  # fmt: skip
def test_farther_outside_is_never_narrower(where: Standing, factor: float, name: str) -> None:
    low, high = RANGES[name]
    for near, far in ((high * factor, high * factor * 2.0), (low / factor, low / factor / 2.0)):
        result = [
            step_interval(replace(where, sizes={**where.sizes, name: size}), 1.0, ERRORS)
            for size in (near, far)
        ]
        assert wider(result[1], result[0])


@given(where=standings)
def test_an_unknown_system_is_never_narrower(where: Standing) -> None:
    known = step_interval(replace(where, system="pod"), 1.0, ERRORS)
    assert wider(step_interval(replace(where, system="nobody's"), 1.0, ERRORS), known)


@given(where=standings, more=shares)
def test_harder_parts_are_never_narrower(where: Standing, more: float) -> None:
    for name in ("host", "within", "after", "quantized", "pressed"):
        grown = {name: max(getattr(where.parts, name), more)}
        harder = replace(where, parts=replace(where.parts, **grown))
        assert wider(step_interval(harder, 1.0, ERRORS), step_interval(where, 1.0, ERRORS))


@given(where=standings, less=shares)
def test_better_known_kernels_are_never_wider(where: Standing, less: float) -> None:
    surer = replace(where, kernels=where.kernels * less)
    assert wider(step_interval(where, 1.0, ERRORS), step_interval(surer, 1.0, ERRORS))


def job(system: str = "dgx-a100", stack: str = "megatron-2022") -> Job:
    cluster = Cluster(system=load_catalog().system(system), num_nodes=1)
    return Job(model=MODEL, cluster=cluster, software=software(stack))


def test_a_prediction_lies_in_its_interval_and_says_what_it_rests_on() -> None:
    prediction = simulate(job(), PLAN)
    assert prediction.interval.low < prediction.step_time < prediction.interval.high
    assert prediction.interval.covers(prediction.step_time)
    assert not prediction.interval.covers(prediction.interval.high * 1.01)
    assert "runs of a100-sxm-80gb under megatron-2022" in prediction.interval.basis
    assert prediction.to_json()["step_time_interval_s"] == [
        prediction.interval.low,
        prediction.interval.high,
    ]


@pytest.mark.parametrize("system", ["dgx-a100", "dgx-h100", "dgx-b200"])
def test_a_generic_stack_is_wider_than_the_described_ones_usually_are(system: str) -> None:
    """A mixture of them is no wider than the one that is known worst."""

    def relative(stack: str) -> float:
        interval = simulate(job(system, stack), PLAN).interval
        return interval.high / interval.low

    described = ["megatron-2022", "nemo", "mpt-fsdp-2023", "torchtitan", "megatron-bridge"]
    assert relative("generic") > median(relative(stack) for stack in described)


def test_a_stand_in_for_an_unknown_system_is_wider() -> None:
    known = job()
    system = replace(known.system, stands_for="somebody's pod")
    unknown = replace(known, cluster=replace(known.cluster, system=system))
    result = [simulate(entry, PLAN) for entry in (known, unknown)]
    assert result[0].step_time == result[1].step_time
    assert result[1].interval.high > result[0].interval.high
    assert "no run on system somebody's pod" in result[1].interval.basis


def test_an_interval_is_of_the_step_time() -> None:
    first, two = (step_interval(BASE, seconds, ERRORS) for seconds in (1.0, 2.0))
    assert two.low == pytest.approx(2.0 * first.low)
    assert two.high == pytest.approx(2.0 * exp(0.05))


def test_recorded_steps_widen_at_once_and_narrow_slowly() -> None:
    changed = replace(BASE, calibrated=True)
    assert half(replace(changed, steps=(0.2,))) == pytest.approx(0.2)
    # (1 x 0.01 + 5 x 0.06) / 6: one good run among twelve shipped ones
    assert half(replace(changed, steps=(0.01,))) == pytest.approx(0.31 / 6.0)
    many = (0.01,) * 45
    assert half(replace(changed, steps=many)) == pytest.approx((45 * 0.01 + 5 * 0.06) / 50.0)
    # the second largest of nine: 0.8 x (9 + 1) = the eighth
    nine = (0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, -0.1, 0.3)
    assert half(replace(changed, steps=nine)) == pytest.approx(0.1)
    assert half(replace(BASE, steps=(0.5,))) == pytest.approx(0.05)


def test_what_a_calibration_left_open_adds() -> None:
    missing = (Missing(kind="block", share=0.8, deviation=0.25, reason="out of memory"),)
    doubt = LayerDoubt(timed=0.03, clock=0.04, missing=missing)
    changed = replace(BASE, calibrated=True, doubt=doubt)
    assert half(changed) == pytest.approx(hypot(0.06, Z80 * 0.03, Z80 * 0.04, Z80 * 0.2))
    basis = step_interval(changed, 2.0, ERRORS).basis
    assert "block (80 % of the step, out of memory)" in basis
    assert "drift while calibrating" in basis


def test_a_network_is_judged_by_runs_of_networks() -> None:
    scenario = load_scenario(ROOT / "scenarios/resnet50-dgx-1v.yaml")
    prediction = simulate(scenario.job, scenario.fixed_plan())
    assert "under pytorch-ddp, networks" in prediction.interval.basis
    assert prediction.standing.software == "pytorch-ddp, networks"
    assert {name for _, name, _ in errors_of(prediction.standing.software).groups} & {
        name for _, name, _ in errors_of().groups
    } == {ANY}
    standing, high = prediction.standing, prediction.interval.high / prediction.step_time
    assert high == pytest.approx(step_interval(standing, 1.0, errors_of(NETWORKS)).high)
    assert high < 1.25 < step_interval(standing, 1.0, errors_of()).high


def test_frameworks_that_nobody_described_are_in_no_mixture() -> None:
    scenario = load_scenario(ROOT / "scenarios/resnet50-dgx-1v.yaml", {"software": "generic"})
    stacks = stacks_on(scenario.job, errors_of(scenario.job.practice))
    described = ["mxnet", "mxnet-2016", "pytorch-2017", "pytorch-ddp", "tensorflow"]
    assert stacks == [*described, "tensorflow-xla"]
    undescribed = {"tensorflow-2017", "tensorflow-2016"}
    assert undescribed <= {name.removesuffix(NETWORKS) for _, name, _ in errors_of(NETWORKS).groups}


def test_what_one_publisher_reached_is_no_bar_for_a_device_without_runs() -> None:
    """Not that of its own machine, 0.04: no less than all runs, by the factor of a device."""
    new = replace(BASE, device="v100", software="mpt")
    single = replace(ERRORS, groups={
        **ERRORS.groups,
        (ANY, "mpt", ANY): replace(ERRORS.groups["a100", "mpt", ANY], device=ANY),
    })  # fmt: skip
    assert halves(new, single)[0] == pytest.approx(0.3 * 2.0)
    assert halves(replace(new, publisher="mosaicml"), single)[0] == pytest.approx(0.04 * 2.0)
