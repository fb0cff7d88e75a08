"""Is a schedule complete, on the right ranks, in order, and sure to finish? A user's own, too."""

from __future__ import annotations

from functools import lru_cache
from itertools import zip_longest
from typing import Literal

from parsim.errors import DeadlockError, ScheduleError
from parsim.schedule.actions import Action, Kind, require_positive
from parsim.schedule.complete import check_complete
from parsim.schedule.deadlock import waiting_cycle
from parsim.schedule.messages import mate
from parsim.schedule.schedule import Schedule

SENDS = ("buffered", "rendezvous")


def check_schedule(
    schedule: Schedule, *, sends: Literal["buffered", "rendezvous"] = "buffered"
) -> None:
    """Prove that a schedule, compute-only or lowered, can be run and computes what it should.

    Every stage and micro-batch has one F and one B (or I and W), on the stage's rank, F before
    B, I before W. If there are messages at all, each result that crosses ranks has one SEND and
    one RECV, and per ordered pair of ranks both come in the same order, because p2p is matched
    by order. No rank waits forever: with rendezvous, a SEND blocks its rank until the matching
    RECV is at the head of the other (a schedule without messages is then taken with each RECV
    right before its consumer and each SEND right after its producer).

    Raises:
        ScheduleError: an action is missing, double, misplaced or out of order.
        DeadlockError: some ranks wait for each other forever; `cycle` names them.
    """
    if sends not in SENDS:
        raise ScheduleError(f"sends={sends!r} is unknown; allowed: {', '.join(SENDS)}")
    _check_placement(schedule)
    check_complete(schedule)
    _check_reduce_grad(schedule)
    _check_sharding(schedule)
    _check_message_order(schedule)
    cycle = waiting_cycle(schedule, rendezvous=sends == "rendezvous")
    if not cycle:
        return
    message = f"{schedule.name}: deadlock with {sends} sends: {'; '.join(map(str, cycle))}"
    message += schedule.cited(*(wait.action for wait in cycle))
    if sends == "rendezvous":
        message += "; use buffered sends, or lower() so that each RECV is posted with its SEND"
    raise DeadlockError(message, tuple(map(str, cycle)))


def _check_placement(schedule: Schedule) -> None:
    """Every stage on a rank, every action on its stage's rank, every number in range."""
    m = schedule.num_microbatches
    require_positive(pp=schedule.pp, num_microbatches=m)
    rank_of = dict(enumerate(schedule.stage_rank))
    allowed = [schedule.microbatches_of(stage) for stage in range(schedule.num_stages)]
    idle = set(range(schedule.pp)) - set(rank_of.values())
    if idle:
        raise ScheduleError(f"{schedule.name}: rank {min(idle)} holds no stage")
    for rank, row in enumerate(schedule.ranks):
        for stage, kind, microbatch in row:
            if rank_of.get(stage) != rank:
                raise ScheduleError(_misplaced(schedule, Action(stage, kind, microbatch), rank))
            if kind < Kind.UNSHARD and microbatch not in allowed[stage]:
                action = Action(stage, kind, microbatch)
                raise ScheduleError(
                    f"{schedule.where(rank, row.index(action))}: rank {rank} runs {action}, but "
                    f"num_microbatches={m}; allowed microbatches: "
                    f"{allowed[stage][0]}..{allowed[stage][-1]}"
                )


def _misplaced(schedule: Schedule, action: Action, rank: int) -> str:
    at = schedule.ranks[rank].index(action)
    where = f"{schedule.where(rank, at)}: rank {rank} runs {action}"
    if 0 <= action.stage < schedule.num_stages:
        return f"{where}, but stage {action.stage} is on rank {schedule.stage_rank[action.stage]}"
    return f"{where}, but there is no such stage; allowed: 0..{schedule.num_stages - 1}"


def _check_reduce_grad(schedule: Schedule) -> None:
    """REDUCE_GRAD on every stage or on none, once, after the stage's last B or W."""
    left = {s: len(schedule.microbatches_of(s)) for s in range(schedule.num_stages)}
    reduced: set[int] = set()
    for rank, row in enumerate(schedule.ranks):
        for index, (stage, kind, _) in enumerate(row):
            if kind == Kind.B or kind == Kind.W:
                left[stage] -= 1
            elif kind == Kind.REDUCE_GRAD:
                where = f"{schedule.where(rank, index)}: rank {rank} runs {stage}REDUCE_GRAD"
                if left[stage]:
                    raise ScheduleError(
                        f"{where} before the last backward of stage {stage}: {left[stage]} to come"
                    )
                if stage in reduced:
                    raise ScheduleError(f"{where} twice; a stage has it once")
                reduced.add(stage)
    missing = set(left) - reduced
    if reduced and missing:
        raise ScheduleError(
            f"{schedule.where(schedule.stage_rank[min(missing)])}: stage {min(missing)} lacks "
            f"REDUCE_GRAD, which stage "
            f"{min(reduced)} has; allowed: on every stage, or on none"
        )


def _check_sharding(schedule: Schedule) -> None:
    """A stage that is ever unsharded computes only between its UNSHARD and its RESHARD."""
    for rank, row in enumerate(schedule.ranks):
        whole: set[int] = set()
        managed = {a.stage for a in row if a.kind >= Kind.UNSHARD and a.kind < Kind.REDUCE_GRAD}
        if not managed:
            continue
        for index, action in enumerate(row):
            stage, kind = action.stage, action.kind
            if kind == Kind.UNSHARD and stage in whole:
                problem = "is unsharded already"
            elif kind == Kind.RESHARD and stage not in whole:
                problem = "is not unsharded"
            elif kind <= Kind.W and stage in managed and stage not in whole:
                problem = "is sharded; put its UNSHARD before"
            else:
                whole ^= {stage} if kind in (Kind.UNSHARD, Kind.RESHARD) else set()
                continue
            raise ScheduleError(
                f"{schedule.where(rank, index)}: rank {rank} runs {action} while stage {stage} "
                f"{problem}"
            )


def _check_message_order(schedule: Schedule) -> None:
    """Per ordered pair of ranks, sends and receives in the same order (p2p knows no names)."""
    rank_of = schedule.stage_rank
    sent: dict[tuple[int, int], list[Action]] = {}
    got: dict[tuple[int, int], list[Action]] = {}
    for rank, row in enumerate(schedule.ranks):
        for action in row:
            if not Kind.W < action.kind < Kind.UNSHARD:
                continue
            other = rank_of[mate(action).stage]
            if action.kind == Kind.SEND_F or action.kind == Kind.SEND_B:
                sent.setdefault((rank, other), []).append(action)
            else:
                got.setdefault((other, rank), []).append(action)
    for (source, target), sends in sent.items():
        for number, (send, recv) in enumerate(zip_longest(sends, got.get((source, target), []))):
            if send is None or recv is None or mate(send) != recv:
                raise ScheduleError(
                    f"{schedule.name}: message {number} from rank {source} to rank {target} is "
                    f"sent as {send} and received as {recv}; messages between two ranks are "
                    "matched by order, so both must be in the same order"
                    + schedule.cited(*(a for a in (send, recv) if a is not None))
                )


@lru_cache(maxsize=16)
def parse_user_schedule(name: str, text: str) -> Schedule:
    """Read a schedule and prove that it is complete, in order and free of deadlock.

    A plan carries the text (`Plan.actions`), and everything that needs the schedule asks here, or
    `build_schedule`, which asks here: the reader of scenarios, the simulators and the executor see
    one object.

    The placement and the number of micro-batches are those of the actions. SEND, RECV, UNSHARD,
    RESHARD and REDUCE_GRAD stay where they are written.

    Raises:
        ScheduleError: something cannot be read, is missing, double, misplaced or out of order;
            the message starts with `name:line, cell`, where line r + 1 is that of rank r.
        DeadlockError: some ranks wait for each other forever; `cycle` names them.
    """
    schedule = Schedule.from_csv(text, name=name)
    check_schedule(schedule)
    return schedule


def schedule_of_shape(name: str, text: str, *, pp: int, num_microbatches: int, v: int) -> Schedule:
    """Read a schedule, and refuse one that is for other sizes than the plan's.

    Stages may be on any rank, also more of them on one rank than on another; but a plan cuts the
    model into pp x v stages, so their number must be that.

    Raises:
        ScheduleError: naming both numbers, or as `parse_user_schedule`.
    """
    schedule = parse_user_schedule(name, text)
    if schedule.pp != pp:
        raise ScheduleError(f"{name}: has {schedule.pp} rows, one for each rank, but pp={pp}")
    if schedule.num_stages != pp * v:
        raise ScheduleError(
            f"{name}: has {schedule.num_stages} stages, but pp={pp} x v={v} = {pp * v}"
        )
    if schedule.num_microbatches != num_microbatches:
        raise ScheduleError(
            f"{name}: has {schedule.num_microbatches} microbatches, but "
            f"num_microbatches={num_microbatches}"
        )
    return schedule
