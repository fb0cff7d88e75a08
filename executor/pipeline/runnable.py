"""Which schedules may be run, and which kinds of data parallelism go with them.

Refused are schedules that are wrong or hang, and the combinations in which torch trains with
wrong gradients and says nothing. Needs no torch, so a plan can be judged anywhere.
"""

from __future__ import annotations

from typing import Literal, get_args

from parsim.errors import PlanError, ScheduleError
from parsim.plan import Plan
from parsim.plan.rules.executor.training import freed
from parsim.schedule import Kind, Schedule, schedule_of
from parsim.schedule.check import check_schedule
from parsim.schedule.lowering import lower

DpKind = Literal["none", "reduce_grad", "ddp", "fully_shard", "replicate"]
"""How gradients meet: not at all, by the executor's own all-reduce at REDUCE_GRAD, or by torch's
DistributedDataParallel, FSDP2's `fully_shard`, or `replicate` on top of FSDP2."""

ON_FSDP = ("fully_shard", "replicate")
"""The kinds whose parameters the runtime gathers at UNSHARD and reduces at REDUCE_GRAD."""

_ZERO_STAGES: dict[DpKind, tuple[int, ...]] = {
    "none": (0,),
    "reduce_grad": (0, 1),
    "ddp": (0, 1),
    "fully_shard": (2, 3),
    "replicate": (0, 1),
}


def check_runnable(
    schedule: Schedule, *, zero_stage: int = 0, dp_kind: DpKind = "none", backend: str = "gloo"
) -> None:
    """Refuse what would hang, fail or train wrongly, before any process is started.

    zero_stage 3 stands for `fully_shard` with reshard_after_forward=True, 2 for False. With the
    backend nccl, a lowered schedule must also survive sends that wait for their receive, because
    both directions between two ranks share one queue there.

    Raises:
        PlanError: this data parallelism does not go with this schedule.
        ScheduleError: actions are missing, double, out of order, or sent and received in
            different orders.
        DeadlockError: ranks would wait for each other forever; `cycle` names them.
    """
    _check_kind(zero_stage, dp_kind)
    _check_split_backward(schedule, zero_stage, dp_kind)
    _check_moves(schedule, zero_stage, backend)
    check_schedule(schedule)
    if schedule.is_compute_only:
        return
    _check_lowered(schedule, dp_kind)
    if backend == "nccl":
        check_schedule(schedule, sends="rendezvous")


def check_plan_runnable(plan: Plan, *, backend: str) -> None:
    """Refuse a plan's schedule and data parallelism, while there is no process group yet.

    Raises:
        PlanError: see `check_runnable`, as for the others.
        ScheduleError: also where a schedule of the user's own does not fit the plan.
    """
    if plan.pp > 1:
        kind: DpKind = "reduce_grad" if plan.dp * plan.cp > 1 else "none"
        if plan.zero_stage >= 2:
            kind = "fully_shard"
        check_runnable(schedule_of(plan), zero_stage=plan.zero_stage, dp_kind=kind, backend=backend)


def as_run(schedule: Schedule, dp_kind: DpKind) -> Schedule:
    """The schedule as it is run: a compute-only one lowered for its data parallelism.

    Raises:
        ScheduleError: the schedule is incomplete or out of order.
        DeadlockError: its order lets some ranks wait for each other forever.
    """
    if not schedule.is_compute_only:
        return schedule
    reduce_grad = dp_kind == "reduce_grad" or dp_kind in ON_FSDP
    lowered = lower(schedule, unshard=dp_kind in ON_FSDP, reduce_grad=reduce_grad)
    check_schedule(lowered, sends="rendezvous")
    return lowered


def _check_kind(zero_stage: int, dp_kind: DpKind) -> None:
    if dp_kind not in _ZERO_STAGES:
        raise PlanError(f"dp_kind={dp_kind!r} is unknown; allowed: {', '.join(get_args(DpKind))}")
    allowed = _ZERO_STAGES[dp_kind]
    if zero_stage not in allowed:
        fitting = [kind for kind, stages in _ZERO_STAGES.items() if zero_stage in stages]
        raise PlanError(
            f"zero_stage={zero_stage} cannot be run with dp_kind={dp_kind}; allowed: "
            f"{', '.join(map(str, allowed))}"
            + (f"; zero_stage={zero_stage} runs with {', '.join(fitting)}" if fitting else "")
        )


def _check_split_backward(schedule: Schedule, zero_stage: int, dp_kind: DpKind) -> None:
    """Refuse the hybrids measured to give wrong gradients, or none, with I and W actions."""
    split = next((a for row in schedule.ranks for a in row if a.kind in (Kind.I, Kind.W)), None)
    if split is None:
        return
    where = f"{schedule.name} splits the backward (it has {split})"
    if dp_kind == "ddp":
        raise PlanError(
            f"{where}, and dp_kind=ddp would then leave gradients unreduced without a message: "
            "torch writes the weight gradients itself, so that DistributedDataParallel's hooks "
            "never run; allowed with I and W: none, reduce_grad, replicate, fully_shard with "
            "zero_stage=2"
        )
    message = freed(Plan(zero_stage=zero_stage), schedule.name, str(split))
    if message:
        raise PlanError(message)


def _check_moves(schedule: Schedule, zero_stage: int, backend: str) -> None:
    """Refuse activations on other ranks where a thread cannot take them, or they are parameters."""
    if schedule.limit is None:
        return
    where = f"schedule {schedule.name} keeps activations of some ranks on others"
    if backend != "gloo":
        raise PlanError(f"{where}, which runs on the CPU alone so far; use --device cpu, or 1f1b")
    if zero_stage >= 2:
        raise PlanError(f"{where}, which zero_stage={zero_stage} would free; use 0 or 1, or 1f1b")


def _check_lowered(schedule: Schedule, dp_kind: DpKind) -> None:
    """A schedule with its communication given must hold what its data parallelism needs."""
    present = {(a.stage, a.kind) for row in schedule.ranks for a in row}
    needed = [Kind.REDUCE_GRAD] if dp_kind == "reduce_grad" else []
    if dp_kind in ON_FSDP:
        needed = [Kind.UNSHARD, Kind.REDUCE_GRAD]
    for kind in needed:
        for stage in range(schedule.num_stages):
            if (stage, kind) not in present:
                raise ScheduleError(
                    f"{schedule.name}: stage {stage} lacks {kind.name}, which dp_kind={dp_kind} "
                    f"needs; add {stage}{kind.name}, or give the compute actions only and let "
                    "the communication be added"
                )
    crossing = len(set(schedule.stage_rank)) > 1
    if crossing and not schedule.has_messages:
        extra = next(a for row in schedule.ranks for a in row if not a.kind.is_compute)
        raise ScheduleError(
            f"{schedule.name}: has {extra} but no SEND and RECV; give all of the "
            "communication, or the compute actions only"
        )
