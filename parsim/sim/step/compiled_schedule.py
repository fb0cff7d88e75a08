"""A schedule as arrays in an order in which a recurrence can walk it, cached by its shape.

Every action has two predecessors: the action before it on its rank, and the action that made its
input. An action's level is the length of the longest chain before it, so all actions of one level
are on different ranks and can be evaluated together. Seconds do not enter here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from parsim.arrays import Index
from parsim.errors import DeadlockError
from parsim.schedule import Kind, Schedule, Times, build_schedule
from parsim.schedule.check import check_schedule

KINDS = 4
"""F, B, I and W have a duration class per stage: class = KINDS x stage + kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledSchedule:
    """Actions in level order; arrays of length A (actions), `bounds` splits them into levels.

    `rank` and `duration_class` say whose clock an action moves and by which duration. `before` and
    `source` are 1 + the position of the action before it on the rank and of the one that produced
    its input, 0 where there is none. `position[i]` is where the schedule's i-th action is,
    `final[r]` 1 + the position of a rank's last action, `last_backward[s]` the position of the
    action that completes stage s's gradients. `repeats` is how often the arrays are run back to
    back (see `compile_repeated`).
    """

    schedule: Schedule
    rank: Index
    duration_class: Index
    before: Index
    source: Index
    bounds: Index
    position: Index
    final: Index
    last_backward: Index
    repeats: int = 1

    @property
    def num_actions(self) -> int:
        """How many actions there are, A."""
        return len(self.rank)


def compile_schedule(schedule: Schedule) -> CompiledSchedule:
    """Compile a schedule.

    Raises:
        DeadlockError: the order on the ranks contradicts the flow of data.
    """
    key, inputs, rank, kinds, row_start = _flatten(schedule)
    level = _levels(key, inputs, row_start)
    if level is None:
        check_schedule(schedule)  # names the cycle
        raise DeadlockError(f"schedule {schedule.name} cannot finish")
    order = np.argsort(level, kind="stable")
    position = _places(order)
    sorted_level, after_each = level[order], np.concatenate([[0], position + 1])
    return CompiledSchedule(
        schedule=schedule,
        rank=rank[order],
        duration_class=kinds[order],
        before=_before(after_each, row_start)[order],
        source=_sources(key, inputs, position)[order],
        bounds=np.flatnonzero(np.diff(sorted_level, prepend=-1, append=sorted_level[-1] + 1)),
        position=position,
        final=np.where(np.diff(row_start) > 0, after_each[row_start[1:]], 0),
        last_backward=_last_backward(kinds, schedule.num_stages, position),
    )


def _places(order: Index) -> Index:
    """The inverse of an order: where each entry comes to stand."""
    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.arange(len(order))
    return position


def _before(after_each: Index, row_start: Index) -> Index:
    """One more than the position of the action before each one on its rank; 0: there is none."""
    starts, before = row_start[:-1], after_each[:-1].copy()
    before[starts[starts < len(before)]] = 0
    return before


def _sources(key: Index, inputs: Index, position: Index) -> Index:
    """One more than the position of the action that makes each one's input; 0: it needs none."""
    by_key = np.full(int(key.max()) + 2, -1, dtype=np.int64)
    by_key[key] = position
    return np.where(inputs >= 0, by_key[inputs] + 1, 0)


def _flatten(schedule: Schedule) -> tuple[Index, Index, Index, Index, Index]:
    """Keys of all actions and of their inputs, rank, class, and where each rank's row starts."""
    m, depth, last = schedule.num_microbatches, schedule.depth, schedule.num_stages - 1
    lengths = [len(row) for row in schedule.ranks]
    flat = schedule.table()
    stage, kind, microbatch = flat[:, 0], flat[:, 1], flat[:, 2]
    key = (stage * m + microbatch) * KINDS + kind
    inputs = np.full(len(flat), -1, dtype=np.int64)
    forward = (kind == Kind.F) & (stage % depth > 0)
    inputs[forward] = key[forward] - m * KINDS
    weight = kind == Kind.W  # needs its I alone, which the rank's own order puts before it
    top = (kind != Kind.F) & ~weight & (stage % depth == depth - 1)
    inputs[top] = key[top] - kind[top] + Kind.F
    below = (kind != Kind.F) & ~weight & ~top
    present = np.zeros((last + 2) * m * KINDS, dtype=bool)
    present[key] = True
    full = (stage + 1) * m * KINDS + microbatch * KINDS + Kind.B
    sources = np.where(present[np.minimum(full, len(present) - 1)], full, full - Kind.B + Kind.I)
    inputs[below] = sources[below]
    rank = np.repeat(np.arange(len(lengths)), lengths)
    start = np.concatenate([[0], np.cumsum(lengths)])
    return key, inputs, rank, stage * KINDS + kind, start


def _levels(key: Index, inputs: Index, row_start: Index) -> Index | None:
    """Longest chain before each action; None where some action can never run.

    Each rank runs until an input is missing; whoever makes that input wakes it.
    """
    keys, needs = key.tolist(), inputs.tolist()
    done: dict[int, int] = {-1: -1}
    waiting: dict[int, int] = {}
    level = [0] * len(keys)
    at, ends = row_start[:-1].tolist(), row_start[1:].tolist()
    clocks = [-1] * len(ends)
    ready = list(range(len(ends)))[::-1]
    while ready:
        rank = ready.pop()
        position, clock = at[rank], clocks[rank]
        for position in range(at[rank], ends[rank] + 1):
            if position == ends[rank]:
                break
            needed = done.get(needs[position])
            if needed is None:
                waiting[needs[position]] = rank
                break
            clock = (clock if clock > needed else needed) + 1
            produced = keys[position]
            level[position] = done[produced] = clock
            if produced in waiting:
                ready.append(waiting.pop(produced))
        at[rank], clocks[rank] = position, clock
    return np.array(level) if at == ends else None


def _last_backward(kinds: Index, stages: int, position: Index) -> Index:
    """Position of each stage's last B or W; rows are in order, so the highest number is last."""
    final = np.flatnonzero(np.isin(kinds % KINDS, (Kind.B, Kind.W)))
    last = np.zeros(stages, dtype=np.int64)
    np.maximum.at(last, kinds[final] // KINDS, final)
    return position[last]


def compile_repeated(schedule: Schedule) -> CompiledSchedule:
    """Compile for finish times alone: naive model parallelism repeats one micro-batch m times.

    It is known by its name, which a user's schedule cannot have (plan/rules/schedule.py).
    """
    if schedule.name != "naive":
        return compile_schedule(schedule)
    once = build_schedule("naive", pp=schedule.pp, num_microbatches=1)
    return replace(compile_schedule(once), schedule=schedule, repeats=schedule.num_microbatches)


@lru_cache(maxsize=64)
def compiled_schedule(
    name: str,
    pp: int,
    num_microbatches: int,
    v: int,
    actions: str | None = None,
    times: Times | None = None,
) -> CompiledSchedule:
    """A named schedule, or a user's, compiled; cached by its shape."""
    return compile_schedule(
        build_schedule(
            name, pp=pp, num_microbatches=num_microbatches, v=v, actions=actions, times=times
        )
    )
