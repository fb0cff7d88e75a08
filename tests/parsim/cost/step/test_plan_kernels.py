"""The kernels of a step add up to its layers, and what no calibration measured of them is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from parsim.cluster.hardware import Measured
from parsim.cost.coverage import coverage_notes, kernel_spread, outside
from parsim.cost.data.update import CLIP, NORM, OPTIMIZER
from parsim.cost.job import Job
from parsim.cost.kernel.residuals import UNMEASURED
from parsim.cost.software import software
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.plan_kernels import plan_kernels
from parsim.plan import Plan, PlanTable, Recompute
from parsim.scenario import load_scenario
from parsim.sim import simulate

UPDATES = (NORM, CLIP, OPTIMIZER)
SCENARIOS = sorted(
    path
    for path in Path("scenarios").glob("*.yaml")
    if "plan:" in path.read_text("utf-8")
    and "\n  groups:" not in path.read_text("utf-8")  # kernels are those of one device
)


def layers_seconds(job: Job, plan: Plan) -> float:
    """What the simulator prices: all layers, embedding and head of all micro-batches."""
    layers = LayerTable.of(job, PlanTable.of([plan]))
    total = 0.0
    for kind, cost, again in zip(job.model.kinds, layers.kinds, layers.recomputed, strict=True):
        number = sum(block is kind for block in job.model.blocks)
        passes = cost.forward.kernels[0] + cost.backward.kernels[0] + again.kernels[0]
        total += number * float(passes)
    for cost in (layers.before, layers.behind):
        total += float(cost.forward.kernels[0] + cost.backward.kernels[0])
    return total * plan.num_microbatches / plan.pp


def kernel_seconds(job: Job, plan: Plan) -> float:
    return sum(kernel.weight for kernel in plan_kernels(job, plan) if kernel.kind not in UPDATES)


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_kernels_add_up_to_the_layers(path: Path) -> None:
    scenario = load_scenario(path)
    plan = scenario.fixed_plan()
    assert kernel_seconds(scenario.job, plan) == pytest.approx(
        layers_seconds(scenario.job, plan), rel=1e-9
    )


@pytest.mark.parametrize("recompute", Recompute)
@pytest.mark.parametrize("stack", ["generic", "executor-cpu", "megatron-2021", "torchtitan"])
def test_recomputed_kernels_run_again(recompute: Recompute, stack: str) -> None:
    scenario = load_scenario(Path("scenarios/gpt2-small-cpu.yaml"))
    job = replace(scenario.job, software=software(stack))
    plan = replace(scenario.fixed_plan(), tp=2, pp=1, recompute=recompute)
    assert kernel_seconds(job, plan) == pytest.approx(layers_seconds(job, plan), rel=1e-9)


@pytest.mark.parametrize("stack", ["megatron-bridge", "torchtitan"])
@pytest.mark.parametrize("recompute", Recompute)
def test_kernels_of_modules_that_are_repeated_by_name_run_again(
    recompute: Recompute, stack: str
) -> None:
    """Experts, whose activation alone is repeated, and a norm; with every policy beside them."""
    scenario = load_scenario(Path("scenarios/mixture-small-cpu.yaml"))
    job, modules = replace(scenario.job, software=software(stack)), ("moe_act", "layernorm")
    plan = replace(scenario.fixed_plan(), recompute=recompute, recompute_modules=modules)
    alone = kernel_seconds(job, replace(plan, recompute_modules=()))
    assert kernel_seconds(job, plan) == pytest.approx(layers_seconds(job, plan), rel=1e-9)
    assert (kernel_seconds(job, plan) > alone) == (recompute is not Recompute.FULL)


def test_the_optimizer_updates_all_parameters() -> None:
    scenario = load_scenario(Path("scenarios/gpt2-small-cpu.yaml"))
    job, plan = scenario.job, replace(scenario.fixed_plan(), pp=1, stage_layers=None)
    stack = job.software
    moved = {
        "gradient_norm": stack.norm_bytes,
        "gradient_clip": stack.clip_bytes,
        "optimizer": stack.optimizer_bytes,
    }
    updates = {kernel.kind: kernel for kernel in plan_kernels(job, plan) if kernel.kind in moved}
    for kind, each in moved.items():
        assert updates[kind].where[0] == job.model.parameters * each
        assert updates[kind].count == 1.0


def test_stacks_whose_update_holds_norm_and_clipping_have_no_such_kernels() -> None:
    scenario = load_scenario(Path("scenarios/gpt3-175b-dgx-a100.yaml"))
    kernels = plan_kernels(scenario.job, scenario.fixed_plan())
    assert not {"gradient_norm", "gradient_clip"} & {kernel.kind for kernel in kernels}


def measured_job(residuals: Measured, *, calibrated: bool = True) -> tuple[Job, Plan]:
    scenario = load_scenario(Path("scenarios/gpt2-small-cpu.yaml"))
    job, plan = scenario.job, scenario.fixed_plan()
    device = replace(job.device, calibrated=calibrated, residuals=residuals)
    system = replace(job.system, device=device)
    return replace(job, cluster=replace(job.cluster, system=system)), plan


def all_points(factor: float) -> Measured:
    """A point beside every kernel of the plan, each size so many times as large."""
    job, plan = measured_job({})
    points: dict[str, dict[tuple[float, ...], float]] = {}
    for kernel in plan_kernels(job, plan):
        points.setdefault(kernel.kind, {})[tuple(factor * x for x in kernel.where)] = 1.0
    return {kind: tuple((*at, 1.0) for at in rows) for kind, rows in points.items()}


def test_a_plan_that_was_measured_has_no_note() -> None:
    for factor in (1.0, 1.5):
        assert coverage_notes(*measured_job(all_points(factor))) == ()


def test_without_measured_points_nothing_is_said() -> None:
    assert coverage_notes(*measured_job({})) == ()
    assert coverage_notes(*measured_job(all_points(1e4), calibrated=False)) == ()


def test_far_shapes_are_outside() -> None:
    shares = outside(*measured_job(all_points(1e4)))
    assert sum(shares.values()) == pytest.approx(1.0)


def test_a_kind_without_points_is_outside() -> None:
    points = {kind: rows for kind, rows in all_points(1.0).items() if kind != "gemm"}
    job, plan = measured_job(points)
    shares = outside(job, plan)
    assert set(shares) == {"gemm"}
    kernels = plan_kernels(job, plan)
    products = sum(kernel.weight for kernel in kernels if kernel.kind == "gemm")
    assert shares["gemm"] == pytest.approx(products / sum(kernel.weight for kernel in kernels))
    (note,) = coverage_notes(job, plan)
    assert note.startswith(f"{100 * shares['gemm']:.0f} % of the step's kernel time are kernels")
    assert note in simulate(job, plan).notes


def test_a_catalog_device_has_no_spread_of_kernels() -> None:
    assert kernel_spread(*measured_job(all_points(1.0), calibrated=False)) == 0.0


def test_kernels_that_were_measured_are_sure() -> None:
    assert kernel_spread(*measured_job(all_points(1.0))) < 0.005


def test_the_spread_grows_with_the_distance_to_what_was_measured() -> None:
    """Points that scatter by 10 %, farther and farther away from the plan's shapes."""

    def scattered(factor: float) -> Measured:
        return {
            kind: tuple((*point[:-1], 1.1 if i % 2 else 0.9) for i, point in enumerate(points))
            for kind, points in all_points(factor).items()
        }

    spreads = [kernel_spread(*measured_job(scattered(factor))) for factor in (1.0, 2.0, 8.0, 1e3)]
    assert spreads == sorted(spreads)
    assert spreads[-1] > 5.0 * spreads[0]


def test_each_kind_that_is_measured_narrows() -> None:
    points = all_points(1.0)
    known: Measured = {}
    before = kernel_spread(*measured_job({}))
    assert before <= 0.2
    for kind in points:
        known = {**known, kind: points[kind]}
        after = kernel_spread(*measured_job(known))
        assert after <= before
        before = after


def test_more_points_of_a_kind_never_widen() -> None:
    """Measured points where the model errs by one factor: each more shape is one surer."""
    full = all_points(1.0)
    spreads = []
    for count in (4, 8, len(full["gemm"])):
        known = {**full, "gemm": tuple((*at[:-1], 1.2) for at in full["gemm"][:count])}
        spreads.append(kernel_spread(*measured_job(known)))
    assert spreads == sorted(spreads, reverse=True)


def test_one_kind_errs_together() -> None:
    """All kinds measured but products: their share times their spread, by hand."""
    job, plan = measured_job({})
    kernels = plan_kernels(job, plan)
    share = sum(kernel.weight for kernel in kernels if kernel.kind == "gemm")
    share /= sum(kernel.weight for kernel in kernels)
    known = {kind: at for kind, at in all_points(1.0).items() if kind != "gemm"}
    spread = kernel_spread(*measured_job(known))
    assert spread == pytest.approx(share * UNMEASURED["gemm"], rel=0.01)


def test_a_calibrated_machine_is_less_sure_of_shapes_it_has_not_measured() -> None:
    halves = []
    for points in (all_points(1.0), {}):
        job, plan = measured_job(points)
        prediction = simulate(job, plan)
        halves.append(prediction.interval.high / prediction.step_time)
    assert halves[1] > halves[0]
    assert "kernels away from the calibrated ones" in prediction.interval.basis
