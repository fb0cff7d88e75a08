"""Places of ranks, and what a machine can hold."""

from __future__ import annotations

import importlib
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor.devices.capacity import check_world, largest_fitting
from executor.devices.machine import DeviceReport
from executor.devices.mesh import coordinates, ranks_by_place, replica_index
from parsim.errors import InputError, PlanError
from parsim.plan import AXES, Plan

DEGREE = st.integers(1, 4)
CPU = DeviceReport(kind="cpu", backend="gloo", count=2, names=("cpu",), shareable=True)
GPU = DeviceReport(kind="cuda", backend="nccl", count=1, names=("H200",), shareable=False)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    pp, dp_replicate, dp_shard, tp, cp = (draw(DEGREE) for _ in range(5))
    return Plan(
        pp=pp,
        dp_replicate=dp_replicate,
        dp_shard=dp_shard,
        tp=tp,
        cp=cp,
        rank_order=tuple(draw(st.permutations(AXES))),
    )


@given(plans())
def test_every_rank_has_its_own_place(plan: Plan) -> None:
    places = [coordinates(plan, rank) for rank in range(plan.world_size)]
    assert len({tuple(coordinate.items()) for coordinate in places}) == plan.world_size
    assert all(0 <= coordinate[axis] < plan.degree(axis) for coordinate in places for axis in AXES)


@given(plans())
def test_a_place_leads_back_to_its_rank(plan: Plan) -> None:
    ranks = range(plan.world_size)
    places = [coordinates(plan, rank) for rank in ranks]
    strides = {axis: plan.stride(axis) for axis in AXES}
    assert [
        sum(strides[axis] * coordinate[axis] for axis in AXES) for coordinate in places
    ] == list(ranks)


@given(plans(), st.sampled_from(AXES), st.data())
def test_neighbours_are_a_stride_apart(plan: Plan, axis: str, data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, plan.world_size - 1))
    coordinate = coordinates(plan, rank)
    if coordinate[axis] + 1 < plan.degree(axis):
        there = {**coordinate, axis: coordinate[axis] + 1}
        assert coordinates(plan, rank + plan.stride(axis)) == there


@given(plans())
def test_mesh_has_every_rank_at_its_place(plan: Plan) -> None:
    pytest.importorskip("torch")
    ranks = ranks_by_place(plan)
    for rank in range(plan.world_size):
        assert int(ranks[tuple(coordinates(plan, rank).values())]) == rank


def test_tensor_ranks_are_adjacent_by_default() -> None:
    plan = Plan(pp=2, dp_replicate=2, tp=2)
    assert coordinates(plan, 1) == {"pp": 0, "dp_replicate": 0, "dp_shard": 0, "cp": 0, "tp": 1}
    assert coordinates(plan, 4)["pp"] == 1


def test_replicas_count_shards_first() -> None:
    plan = Plan(dp_replicate=2, dp_shard=3, tp=2, zero_stage=3)
    assert [replica_index(plan, rank) for rank in range(0, 12, 2)] == [0, 1, 2, 3, 4, 5]


def test_rank_outside_the_plan() -> None:
    with pytest.raises(PlanError, match=r"rank=4 is not in a plan of 4 ranks; allowed: 0\.\.3"):
        coordinates(Plan(tp=4), 4)


@given(plans(), st.integers(1, 64))
def test_what_fits_does_fit_and_divides(plan: Plan, count: int) -> None:
    fitting = largest_fitting(plan, count)
    assert fitting.world_size <= count
    assert all(plan.degree(axis) % fitting.degree(axis) == 0 for axis in AXES)
    if plan.world_size <= count:
        assert fitting.world_size == plan.world_size


def test_plan_that_fits_is_accepted() -> None:
    check_world(Plan(tp=2), CPU, oversubscribe=False)


def test_more_ranks_than_cores() -> None:
    with pytest.raises(InputError) as refused:
        check_world(Plan(pp=2, dp_replicate=2, tp=2), CPU, oversubscribe=False)
    assert str(refused.value) == (
        "world size 8 (pp=2 x dp=2 x cp=1 x tp=2) is more than the 2 CPU cores of this machine; "
        "what fits: pp=1 x dp=1 x cp=1 x tp=2 = 2; or share the devices among ranks with "
        "--oversubscribe"
    )


def test_cores_may_be_shared() -> None:
    check_world(Plan(tp=8), CPU, oversubscribe=True)


@pytest.mark.parametrize("oversubscribe", [False, True])
def test_a_gpu_holds_one_rank(oversubscribe: bool) -> None:
    with pytest.raises(InputError) as refused:
        check_world(Plan(tp=2), GPU, oversubscribe=oversubscribe)
    assert str(refused.value) == (
        "world size 2 (pp=1 x dp=1 x cp=1 x tp=2) is more than the 1 GPU of this machine; what "
        "fits: pp=1 x dp=1 x cp=1 x tp=1 = 1; or run on the CPU with --oversubscribe (one GPU "
        "holds one rank, unless NCCL is 2.30 or newer and NCCL_MULTI_RANK_GPU_ENABLE=1)"
    )


@pytest.mark.parametrize("module", ["executor.__main__", "executor.calibration.__main__"])
def test_an_unknown_kind_of_device_is_told_in_one_line(
    module: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = ["scenarios/gpt2-small-cpu.yaml"] if module == "executor.__main__" else ["--out=nowhere"]
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setattr(sys, "argv", [module, *plan, "--device=tpu"])
    assert importlib.import_module(module).main() == 2
    assert capsys.readouterr().err == "error: device='tpu' is unknown; allowed: cpu, cuda\n"
