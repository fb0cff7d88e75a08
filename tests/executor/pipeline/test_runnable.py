"""What may not be run, and how the refusal is worded."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from executor.pipeline.runnable import DpKind, as_run, check_runnable
from parsim.errors import DeadlockError, PlanError, ScheduleError
from parsim.schedule import Kind, Schedule, build_schedule
from parsim.schedule.lowering import lower
from tests.executor.random_schedules import random_schedule

FULL = build_schedule("interleaved_1f1b", pp=2, num_microbatches=4, v=2)
SPLIT = Schedule.from_csv("0F0,0F1,0I0,0I1,0W0,0W1\n1F0,1I0,1F1,1I1,1W0,1W1\n", name="zb")
STAGES = {"none": 0, "reduce_grad": 0, "ddp": 0, "fully_shard": 2, "replicate": 0}


@pytest.mark.parametrize("dp_kind", get_args(DpKind))
def test_full_backward_runs_with_every_kind(dp_kind: DpKind) -> None:
    check_runnable(FULL, dp_kind=dp_kind, zero_stage=STAGES[dp_kind])


@pytest.mark.parametrize("dp_kind", sorted(set(get_args(DpKind)) - {"ddp"}))
def test_split_backward_runs_with_every_kind_but_ddp(dp_kind: DpKind) -> None:
    check_runnable(SPLIT, dp_kind=dp_kind, zero_stage=STAGES[dp_kind])


def test_split_backward_with_ddp_is_refused_with_the_reason() -> None:
    with pytest.raises(PlanError, match=r"has 0I0.*dp_kind=ddp.*unreduced without a message"):
        check_runnable(SPLIT, dp_kind="ddp")


def test_split_backward_with_resharding_is_refused_with_the_reason() -> None:
    check_runnable(FULL, dp_kind="fully_shard", zero_stage=3)
    with pytest.raises(PlanError, match=r"reshard_after_forward=True.*wrong or no gradients"):
        check_runnable(SPLIT, dp_kind="fully_shard", zero_stage=3)


@pytest.mark.parametrize(
    ("dp_kind", "zero_stage", "fitting"),
    [
        ("ddp", 2, "allowed: 0, 1; zero_stage=2 runs with fully_shard"),
        ("none", 1, "allowed: 0; zero_stage=1 runs with reduce_grad, ddp, replicate"),
        ("fully_shard", 0, "allowed: 2, 3; zero_stage=0 runs with none, reduce_grad, ddp"),
        ("ddp", 7, "allowed: 0, 1"),
    ],
)
def test_misfit_of_zero_stage_names_what_fits(
    dp_kind: DpKind, zero_stage: int, fitting: str
) -> None:
    with pytest.raises(PlanError, match=re.escape(fitting)):
        check_runnable(FULL, dp_kind=dp_kind, zero_stage=zero_stage)


def test_unknown_kind_names_the_known_ones() -> None:
    with pytest.raises(PlanError, match=r"'fsdp'.*none, reduce_grad, ddp"):
        check_runnable(FULL, dp_kind="fsdp")  # type: ignore[arg-type]


def test_deadlock_is_refused_with_its_cycle() -> None:
    text = "0F0,0F1,0B1,0B0\n1F0,1B0,1F1,1B1\n"
    check_runnable(Schedule.from_csv(text))
    stuck = Schedule.from_csv("0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n")
    with pytest.raises(DeadlockError) as error:
        check_runnable(stuck)
    assert error.value.cycle == (
        "rank 0 waits at 0B0 for rank 1 to run 1B0",
        "rank 1 waits at 1F1 for rank 0 to run 0F1",
    )


def test_swapped_sends_are_refused() -> None:
    text = lower(build_schedule("gpipe", pp=2, num_microbatches=2)).to_csv()
    check_runnable(Schedule.from_csv(text))
    swapped = text.replace("0F0,0SEND_F0,0F1,0SEND_F1", "0F0,0F1,0SEND_F1,0SEND_F0")
    assert swapped != text
    with pytest.raises(ScheduleError, match="matched by order"):
        check_runnable(Schedule.from_csv(swapped))


def test_queue_shared_by_both_directions_is_refused_on_nccl() -> None:
    crossing = Schedule.from_csv(
        "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
        "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n"
    )
    check_runnable(crossing, backend="gloo")
    with pytest.raises(DeadlockError, match="rendezvous"):
        check_runnable(crossing, backend="nccl")


def test_lowered_schedule_must_reduce() -> None:
    lowered = lower(FULL)
    check_runnable(lowered)
    with pytest.raises(ScheduleError, match=r"stage 0 lacks REDUCE_GRAD.*add 0REDUCE_GRAD"):
        check_runnable(lowered, dp_kind="reduce_grad")
    check_runnable(lower(FULL, reduce_grad=True), dp_kind="reduce_grad")


def test_lowered_schedule_must_unshard() -> None:
    with pytest.raises(ScheduleError, match="stage 0 lacks UNSHARD"):
        check_runnable(lower(FULL, reduce_grad=True), dp_kind="fully_shard", zero_stage=2)


def test_half_lowered_schedule_is_refused() -> None:
    text = "0F0,0B0,0REDUCE_GRAD\n1F0,1B0,1REDUCE_GRAD\n"
    with pytest.raises(ScheduleError, match="has 0REDUCE_GRAD but no SEND and RECV"):
        check_runnable(Schedule.from_csv(text))


@pytest.mark.parametrize("dp_kind", get_args(DpKind))
def test_communication_fits_the_kind(dp_kind: DpKind) -> None:
    run = as_run(FULL, dp_kind)
    check_runnable(run, dp_kind=dp_kind, zero_stage=STAGES[dp_kind], backend="nccl")
    kinds = {action.kind for row in run.ranks for action in row}
    assert (Kind.UNSHARD in kinds) == (dp_kind in ("fully_shard", "replicate"))
    assert as_run(run, dp_kind) is run


@pytest.mark.parametrize("seed", range(20))
def test_random_schedules_are_legal(seed: int) -> None:
    schedule = random_schedule(seed, pp=3)
    check_runnable(schedule)
    check_runnable(as_run(schedule, "reduce_grad"), dp_kind="reduce_grad")
