"""Plans whose stages have replicas of their own: one each is 1F1B, tiers agree, bounds, bytes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from parsim.cluster.hardware import Cluster
from parsim.cost.job import Job
from parsim.errors import InputError, PlanError
from parsim.plan import Plan, Recompute
from parsim.plan.stages import Stage
from parsim.schedule.replicas import StageReplicas
from parsim.schedule.versions import Versions
from parsim.sim import simulate
from parsim.sim.program import by_events, by_recurrence, peak_bytes
from parsim.sim.stages.prices import StagePrices, steady_state
from parsim.sim.stages.run import TaskRun
from parsim.sim.step.priced_step import price_step
from parsim.strategy.unequal_stages import unequal_stages
from parsim.strategy.weight_versions import without_flush
from tests.parsim.sim.conftest import gpt_job

ALONE = Stage(layers=6)
EQUAL = Plan(tp=2, pp=4, stages=(ALONE,) * 4, num_microbatches=12, precision="bf16")
UNEQUAL = Plan(
    pp=2,
    stages=(Stage(layers=18, replicas=6), Stage(layers=6, replicas=2)),
    num_microbatches=24,
)


def on(devices: int, job: Job) -> Job:
    """The job on one node with so many devices."""
    node = replace(job.system, devices_per_node=devices)
    return replace(job, cluster=Cluster(system=node, num_nodes=1))


def prices(counts: tuple[int, ...], forward: tuple[float, ...], **more: float) -> StagePrices:
    ones, ahead = np.ones(len(counts)), np.array(forward)
    return StagePrices(
        forward=ahead,
        backward=2.0 * ahead,
        update=0.25 * ones,
        message=more.get("message", 0.0),
        reduce=more.get("reduce", 0.0),
        weights=100.0 * ones,
        activations=ones,
        static=1000.0 * ones,
        counts=counts,
        tail={
            "late": np.zeros(1),
            "norm": np.array([0.125]),
            "optimizer": np.full(sum(counts), 0.25),
            "gather": np.zeros(1),
            "tied": np.zeros(1),
            "straggler": np.zeros(1),
        },
    )


def late(counts: tuple[int, ...]) -> Versions:
    """Versions of stages whose replicas do not wait for the sum of their gradients."""
    rounds = tuple(int(count > 1) for count in counts)
    return Versions(rule="pipedream", pp=len(counts), counts=counts, late=rounds)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("recompute", [Recompute.NONE, Recompute.FULL])
def test_one_replica_each_is_the_plan_of_equal_stages(overlap: bool, recompute: Recompute) -> None:
    job = on(8, gpt_job())
    ours = replace(EQUAL, overlap_p2p=overlap, recompute=recompute)
    alike = replace(ours, stages=None, stage_layers=(6,) * 4)
    mine, theirs = simulate(job, ours), simulate(job, alike)
    assert mine.step_time == pytest.approx(theirs.step_time, rel=1e-12)
    assert mine.bubble_fraction == pytest.approx(theirs.bubble_fraction, rel=1e-9)
    assert mine.peak_allocated == pytest.approx(theirs.peak_allocated, rel=1e-12)
    for part, seconds in theirs.breakdown.items():
        assert mine.breakdown[part] == pytest.approx(seconds, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("schedule", ["1f1b", "pipedream"])
def test_tiers_agree_and_parts_sum(schedule: str) -> None:
    prediction = simulate(
        on(8, gpt_job()), replace(UNEQUAL, schedule=schedule), tier="events", timeline=True
    )
    assert sum(prediction.breakdown.values()) == pytest.approx(prediction.step_time, rel=1e-9)
    assert prediction.peak_allocated[0] == pytest.approx(sum(prediction.memory_by_rank[0].values()))
    assert prediction.timeline is not None
    labels = prediction.timeline.meta["rank_labels"]
    assert (labels["5"], labels["7"]) == ("stage 0 replica 5", "stage 1 replica 1")


@pytest.mark.parametrize("plan", [UNEQUAL, replace(EQUAL, tp=1, stages=None)])
@pytest.mark.parametrize("schedule", ["1f1b", "pipedream"])
def test_the_bubble_is_the_tables_share_of_the_phase(schedule: str, plan: Plan) -> None:
    """Updates between micro-batches are work of the compute stream, and no idle time."""
    job = on(8, gpt_job())
    job = replace(job, model=replace(job.model, tied_embeddings=False))
    devices = replace(plan, schedule=schedule)
    ours = simulate(on(devices.world_size, job), devices)
    share = ours.breakdown["bubble"] / ours.pipeline_time
    assert ours.bubble_fraction == pytest.approx(share, rel=1e-9)
    assert ours.bubble_overhead == pytest.approx(share / (1.0 - share), rel=1e-9)


def test_replicas_where_the_work_is_are_faster() -> None:
    """20 of 24 layers on 6 of 8 devices: near the bound, unlike 4 and 4."""
    job = on(8, gpt_job())
    balanced = replace(
        UNEQUAL,
        stages=(Stage(layers=20, replicas=6), Stage(layers=4, replicas=2)),
        num_microbatches=96,
    )
    halves = replace(balanced, stages=(Stage(layers=20, replicas=4), Stage(layers=4, replicas=4)))
    run = TaskRun(job, balanced)
    each = (run.prices.forward + run.prices.backward) / np.array([6, 2])
    bound = balanced.num_microbatches * each.max()
    assert bound <= run.pipeline_time < 1.1 * bound
    assert run.step_time < 0.8 * TaskRun(job, halves).step_time


def test_one_tensor_degree_stated_by_each_stage_is_that_of_the_plan() -> None:
    job = on(8, gpt_job())
    stated = replace(EQUAL, tp=1, stages=(replace(ALONE, tp=2),) * 4)
    mine, theirs = simulate(job, stated), simulate(job, EQUAL)
    assert mine.step_time == pytest.approx(theirs.step_time, rel=1e-12)
    assert mine.peak_allocated == pytest.approx(theirs.peak_allocated, rel=1e-12)
    assert mine.breakdown == pytest.approx(theirs.breakdown, rel=1e-9, abs=1e-12)


def test_a_stage_of_its_own_tensor_degree_is_that_of_the_plan_with_it() -> None:
    """Seconds and bytes of each stage; each receiving rank gets the whole border."""
    job = on(8, gpt_job())
    job = replace(job, model=replace(job.model, tied_embeddings=False))
    stages = (Stage(layers=12, replicas=2, tp=2), Stage(layers=12, tp=4))
    mixed = replace(UNEQUAL, stages=stages, overlap_p2p=True)
    run = TaskRun(job, mixed)
    for number, tp in enumerate((2, 4)):
        same = replace(mixed, tp=tp, stages=(replace(stages[0], tp=tp), stages[1]))
        alike = TaskRun(job, same).prices
        for name in ("forward", "backward", "weights", "activations", "static"):
            assert getattr(run.prices, name)[number] == getattr(alike, name)[number]
    back = np.asarray(run.prices.message_back)
    assert np.asarray(run.prices.message)[0] > 1.5 * back[0]  # two copies ahead, one back
    prediction = simulate(job, mixed, tier="events", timeline=True)
    assert sum(prediction.breakdown.values()) == pytest.approx(prediction.step_time, rel=1e-9)
    assert prediction.timeline is not None
    labels = prediction.timeline.meta["rank_labels"]
    assert (labels["1"], labels["2"]) == ("stage 0 replica 1 tp 2", "stage 1 tp 4")
    assert prediction.plan.label().endswith("layers 12+12 on replicas 2+1 of tp 2+4")
    layout = run.priced.replicas
    assert [list(layout.devices(rank)) for rank in range(3)] == [[0, 1], [2, 3], [4, 5, 6, 7]]
    assert layout.rank_of == (0, 0, 1, 1, 2, 2, 2, 2)


def test_recomputed_layers_trade_memory_for_time() -> None:
    job = on(8, gpt_job())
    steps, peaks = [], []
    for again in (0, 9, 18):
        first = replace(UNEQUAL.stages[0], recompute_layers=again)  # type: ignore[index]
        prediction = simulate(job, replace(UNEQUAL, stages=(first, Stage(layers=6, replicas=2))))
        steps.append(prediction.step_time)
        peaks.append(prediction.peak_allocated[0])
    assert steps[0] < steps[1] < steps[2]
    assert peaks[0] > peaks[1] > peaks[2]
    whole = replace(UNEQUAL.stages[0], recompute_layers=18)  # type: ignore[index]
    both = (whole, Stage(layers=6, replicas=2, recompute_layers=6))
    full = replace(UNEQUAL, recompute=Recompute.FULL)
    assert simulate(job, replace(UNEQUAL, stages=both)).step_time == pytest.approx(
        simulate(job, full).step_time, rel=1e-9
    )


def test_a_stage_that_recomputes_some_layers_holds_what_it_does_in_a_plan_that_does() -> None:
    """Its first layers are made again when what the others kept is gone."""
    job = on(8, gpt_job())
    plan = Plan(tp=2, pp=4, num_microbatches=12, precision="bf16", recompute_layers=2)
    some = replace(plan, recompute_layers=0, stages=(replace(ALONE, recompute_layers=2),) * 4)
    of_plan, of_stages = (simulate(job, each).peak_allocated for each in (plan, some))
    assert of_stages == pytest.approx(of_plan, rel=0.01)
    fewer, more = (replace(ALONE, recompute_layers=again) for again in (0, 6))
    all_or_none = [simulate(job, replace(some, stages=(each,) * 4)) for each in (fewer, more)]
    mixed = np.average([each.peak_allocated for each in all_or_none], axis=0, weights=[4, 2])
    assert np.all(np.array(of_stages)[:3] <= mixed[:3] * (1.0 + 1e-9))


@pytest.mark.parametrize("message", [0.0, 0.125])
@pytest.mark.parametrize("counts", [(3, 1), (1, 3, 1), (2, 1, 2)])
def test_recurrence_is_events_on_every_task(counts: tuple[int, ...], message: float) -> None:
    forward = (1.0, 1.5, 0.5)[: len(counts)]
    priced = prices(counts, forward, message=message, reduce=0.5)
    for program in (
        unequal_stages(
            StageReplicas(counts), StageReplicas(counts).rows(12), blocking=message > 0.0
        ),
        without_flush(Versions(rule="pipedream", pp=len(counts), counts=counts), 12),
        without_flush(late(counts), 12),
    ):
        ready = priced.on(program)
        walked, run = by_recurrence(ready), by_events(ready)
        assert run.step_time == float(walked.step_time[0])
        for task in program.tasks:
            ends = np.broadcast_to(walked.times[task.name].end, (len(task.ranks), 1))[:, 0]
            assert [run.ends[task.name, rank, 0] for rank in task.ranks] == ends.tolist()


def test_the_step_of_a_replicated_pipeline_by_hand() -> None:
    """Two replicas of F = 2, X = 4 before one of F = 1, X = 2; then reduce, norm and update."""
    priced = prices((2, 1), (2.0, 1.0), reduce=0.5)
    replicas = StageReplicas((2, 1))
    end = by_recurrence(priced.on(unequal_stages(replicas, replicas.rows(8))))
    slowest = 2.0 + 8 * 3.0 + 4.0  # first forward, the last stage all the time, last backward
    assert float(end.step_time[0]) == slowest + 0.5 + 0.125 + 0.25


@pytest.mark.parametrize(
    ("counts", "warmups", "pace"),
    [
        ((1, 3, 1), (4, 1, 0), 5.99),
        ((1, 3, 1), (6, 1, 0), 3.0),
        ((9, 5, 1, 1), (1, 1, 1, 0), 3.22),
        ((9, 5, 1, 1), (2, 1, 1, 0), 3.0),
    ],
)
def test_warm_ups_of_a_stage_that_starves(
    counts: tuple[int, ...], warmups: tuple[int, ...], pace: float
) -> None:
    """Seconds a micro-batch with F_s = r_s, X = 2 F; the bound is max (F + X) / r = 3.

    Source: PipeDream's order of actions with these numbers, run apart from parsim.
    """
    priced = prices(counts, tuple(map(float, counts)))
    replicas = StageReplicas(counts)
    few, many = (
        by_recurrence(priced.on(unequal_stages(replicas, replicas.rows(count, warmups))))
        for count in (90, 225)
    )
    assert float(many.updated[0] - few.updated[0]) / 135 == pytest.approx(pace, abs=0.02)


def test_versions_of_a_replicated_stage_are_its_warm_up_and_one() -> None:
    versions = Versions(rule="pipedream", pp=2, counts=(3, 1))
    assert [versions.used(0, mb) for mb in range(9)] == [0, 0, 0, 0, 0, 0, 1, 1, 1]
    assert [versions.kept(stage) for stage in (0, 1)] == [2, 1]
    peaks = peak_bytes(prices((3, 1), (3.0, 1.0)).on(without_flush(versions, 24)))
    assert peaks.tolist() == [1000 + 100 + 2] * 3 + [1000 + 1]


@pytest.mark.parametrize("counts", [(7, 1), (3, 1), (4, 2, 1), (15, 1)])
def test_the_steady_pace_of_replicas_is_the_slowest_stage(counts: tuple[int, ...]) -> None:
    """Max over stages of (F + X + reduce + update) / r, or of F + X + update where they go on.

    The first stage is the slowest; nothing of the drain, whose backwards follow each other, counts.
    """
    forward = tuple(1.2 * count if not stage else 0.9 * count for stage, count in enumerate(counts))
    priced = prices(counts, forward, reduce=0.75)
    waits = Versions(rule="pipedream", pp=len(counts), counts=counts)
    bound = 3.0 * 1.2 + 0.25 / counts[0]
    assert steady_state(late(counts), priced) == pytest.approx(bound, rel=1e-9)
    assert steady_state(waits, priced) >= bound + 0.75 / counts[0] - 1e-9


def test_a_sum_that_takes_longer_than_a_round_sets_the_pace() -> None:
    priced = prices((2, 1), (1.0, 0.25), reduce=7.0)
    assert steady_state(late((2, 1)), priced) == pytest.approx(7.0 / 2, rel=1e-9)


def test_a_gradient_waits_beside_the_next_backward() -> None:
    """Versions are as many as before; one gradient more stands until its sum is there."""
    more = replace(prices((3, 1), (3.0, 1.0), reduce=0.5), gradients=np.array([10.0, 10.0]))
    waits = Versions(rule="pipedream", pp=2, counts=(3, 1))
    usual, delayed = (peak_bytes(more.on(without_flush(v, 24))) for v in (waits, late((3, 1))))
    assert usual.tolist() == [990 + 100 + 1 + 10] * 3 + [1000]
    assert delayed.tolist() == [990 + 100 + 2 + 10] * 3 + [1000]


def test_late_updates_of_a_plan() -> None:
    """They take no longer than waiting, hold a gradient more, and draw what they do."""
    job = on(8, gpt_job())
    waits = replace(UNEQUAL, schedule="pipedream")
    first, second = waits.stages or ()
    both = tuple(replace(stage, late_update=True) for stage in (first, second))
    goes_on = replace(waits, stages=both)
    usual, run = simulate(job, waits), simulate(job, goes_on)
    assert run.step_time < usual.step_time
    gradient = TaskRun(job, goes_on).prices.gradients
    assert np.all(np.asarray(gradient) > 0.0)
    gap = np.array(run.peak_allocated) - np.array(usual.peak_allocated)
    assert np.all((gap > 0.0) & (gap <= 1.001 * np.asarray(gradient)))
    for prediction in (usual, run):
        assert sum(prediction.breakdown.values()) == pytest.approx(prediction.step_time)
        assert min(prediction.breakdown.values()) >= -1e-12
    assert run.breakdown["gradient_reduction"] == 0.0 < usual.breakdown["gradient_reduction"]
    assert run.memory["gradients"] > usual.memory["gradients"]
    task_run = TaskRun(job, goes_on)
    shown, versions = task_run.timeline().meta["weight_versions"], task_run.versions
    assert versions is not None
    assert shown == versions.table(len(shown[0]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_microbatches": 9}, r"stages\[0\]\.replicas=6 does not divide num_microbatches=9"),
        ({"dp_replicate": 2}, "dp_replicate=2 is for all alike; use dp_replicate=1"),
        ({"schedule": "gpipe"}, "are for schedule='1f1b', 'pipedream', 'auto'"),
        (
            {
                "stages": (
                    Stage(layers=18, replicas=6, late_update=True),
                    Stage(layers=6, replicas=2),
                )
            },
            r"stages\[0\]\.late_update=true lets replicas go on .* use schedule='pipedream'",
        ),
        (
            {"stages": (Stage(layers=18, replicas=7), Stage(layers=6, late_update=True))}
            | {"schedule": "pipedream", "num_microbatches": 21},
            r"stages\[1\]\.late_update=true waits for gradients of other replicas, but replicas=1",
        ),
        ({"pp": 3}, "has 2 entries, but pp=3"),
        ({"stage_layers": (12, 12)}, "leave stage_layers out"),
        (
            {"stages": (Stage(layers=18, replicas=6), Stage(layers=5, replicas=2))},
            "layers of stages sums to 23, but the model has 24",
        ),
        (
            {"stages": (Stage(layers=18, replicas=6), Stage(layers=6))},
            r"stages have 7 ranks \(replicas x tp=1\), but the cluster has 8",
        ),
        (
            {"stages": (Stage(layers=18, replicas=6, recompute_layers=19), Stage(layers=6))},
            r"stages\[0\]\.recompute_layers=19 of layers=18; allowed: 0 to 18",
        ),
        (
            {"stages": (Stage(layers=18, replicas=2, tp=5), Stage(layers=6, replicas=2))},
            "tp=5 does not divide num_attention_heads",
        ),
        (
            {"stages": (Stage(layers=18, tp=4), Stage(layers=6, replicas=2, tp=2)), "tp": 2}
            | {"sequence_parallel": True},
            r"stages have tp=\[4, 2\]: with sequence_parallel=true",
        ),
        (
            {"stages": (Stage(layers=18, tp=4), Stage(layers=6, replicas=2, tp=2))}
            | {"scatter_p2p": True},
            "use scatter_p2p=false, or one tp",
        ),
        (
            {"stages": (Stage(layers=18, replicas=2, warmup=0), Stage(layers=6, replicas=6))},
            r"stages\[0\]\.warmup=0 starves the stages behind it; use at least 3",
        ),
    ],
)
def test_what_stages_cannot_be(change: dict[str, object], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        simulate(on(8, gpt_job()), replace(UNEQUAL, **change))  # type: ignore[arg-type]


def test_what_needs_alike_stages_says_so() -> None:
    with pytest.raises(InputError, match="stages of their own is simulated by itself alone"):
        price_step(on(8, gpt_job()), UNEQUAL)
