"""Where the weight gradients go: a fixed order of F and I on each rank, W put into its gaps.

    order   0F0 0F1 0F2 ... ... 0I0 0F3 ... 0I1     given
    rows    0F0 0F1 0F2 ... ... 0I0 0W0 0F3 0I1     W0 fits before 0F3's input is there, or has to
                                                    end for 0F3 to stay under the limit

A W needs its I alone and nothing waits for it, so that it can fill any later gap; until then it
holds the micro-batch's activations. Source: the heuristics of arXiv 2401.10241, section 3.1.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from parsim.errors import ScheduleError
from parsim.schedule.actions import Action, Kind

Rows = tuple[tuple[Action, ...], ...]
Policy = Literal["eager", "even", "patient"]

POLICIES: tuple[Policy, ...] = ("eager", "even", "patient")
"""A gap shorter than a W: take it always; where the rank would wait longer than the worst one has
waited by then, and so would become the worst; never."""


@dataclass(frozen=True, slots=True)
class ActionTimes:
    """Seconds, or any unit, of a stage's F, I and W, and of a message between ranks.

    In the order in which a plan has them. `kept` is the share of a micro-batch's activations that
    W needs, which stay when I has run.
    """

    forward: float = 1.0
    backward_input: float = 1.0
    backward_weight: float = 1.0
    message: float = 0.0
    kept: float = 1.0

    @property
    def backward(self) -> float:
        """I and W together."""
        return self.backward_input + self.backward_weight


EQUAL = ActionTimes()
"""The ratio 1:1:1 without messages, which the papers draw: a schedule's name knows no seconds."""

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """Complete rows, the longest time between a rank's first start and last end, and the whole."""

    rows: Rows
    span: float
    makespan: float


@dataclass(slots=True)
class _Rank:
    """Where a rank is: its row so far, its clock, and what it holds of the limit."""

    todo: deque[Action]
    row: list[Action] = field(default_factory=list)
    weights: deque[Action] = field(default_factory=deque)
    clock: float = 0.0
    first: float = 0.0
    idle: float = 0.0
    kept: float = 0.0


def fill(
    order: Rows,
    stage_rank: Sequence[int],
    times: ActionTimes | Sequence[ActionTimes],
    *,
    limit: int | Sequence[int],
    policy: Policy = "eager",
) -> Filled:
    """Run F and I in their order and put each W where it costs least.

    Args:
        order: F and I of each rank.
        stage_rank: the rank that holds each stage.
        times: of all stages alike, or of each; the message and what W keeps are the first one's.
        limit: chunks of micro-batches in flight on every rank, or on each, which hold 1 from F to I
            and `kept` from I to W; an F waits for as many W as make room for it.
        policy: what happens in a gap shorter than a W.

    Raises:
        ScheduleError: the order needs more than the limit, or deadlocks.
    """
    stages = [times] * len(stage_rank) if isinstance(times, ActionTimes) else list(times)
    limits = [limit] * len(order) if isinstance(limit, int) else list(limit)
    return _Filling(order, stage_rank, stages, limits, policy).run()


def best_fill(order: Rows, stage_rank: Sequence[int], times: ActionTimes, *, limit: int) -> Filled:
    """The policy with the shortest span of a rank, then the earliest end.

    Raises:
        ScheduleError: see `fill`.
    """
    fills = (fill(order, stage_rank, times, limit=limit, policy=policy) for policy in POLICIES)
    return min(fills, key=lambda filled: (filled.span, filled.makespan))


class _Filling:
    def __init__(
        self,
        order: Rows,
        stage_rank: Sequence[int],
        times: Sequence[ActionTimes],
        limits: Sequence[int],
        policy: Policy,
    ) -> None:
        self.ranks = [_Rank(deque(row)) for row in order]
        self.stage_rank, self.times = stage_rank, times[0]
        self.limits, self.policy = limits, policy
        self.seconds = [(t.forward, 0.0, t.backward_input, t.backward_weight) for t in times]
        self.end: dict[Action, float] = {}
        self.waiting: dict[Action, int] = {}
        self.worst = 0.0

    def run(self) -> Filled:
        """Take the rank that is free first along its row, until all rows are done."""
        ready = [(0.0, number) for number in range(len(self.ranks))]
        while ready:
            _, number = heapq.heappop(ready)
            rank = self.ranks[number]
            action = self._next(number, rank)
            if action is None:
                continue
            self._do(rank, action)
            woken = self.waiting.pop(action, None)
            if woken is not None:
                heapq.heappush(ready, (self.ranks[woken].clock, woken))
            if rank.todo or rank.weights:
                heapq.heappush(ready, (rank.clock, number))
        if any(rank.todo for rank in self.ranks):
            raise ScheduleError("the order of F and I lets some ranks wait for each other forever")
        return Filled(
            rows=tuple(tuple(rank.row) for rank in self.ranks),
            span=max(rank.clock - rank.first for rank in self.ranks),
            makespan=max(rank.clock for rank in self.ranks),
        )

    def _next(self, number: int, rank: _Rank) -> Action | None:
        """What the rank runs now; None where it has to wait for an input that nobody has made."""
        if not rank.todo:
            return rank.weights[0]
        action = rank.todo[0]
        if action.kind == Kind.F and rank.kept + 1.0 > self.limits[number] + _ROUNDING:
            if not rank.weights:
                raise ScheduleError(
                    f"{action} needs more than {self.limits[number]} chunks in flight"
                )
            return rank.weights[0]
        arrival = self._arrival(action)
        if arrival is None:
            if rank.weights:
                return rank.weights[0]
            self.waiting[_source(action, len(self.stage_rank))] = number
            return None
        gap = arrival - rank.clock
        return rank.weights[0] if rank.weights and self._takes(gap, rank) else action

    def _takes(self, gap: float, rank: _Rank) -> bool:
        if gap <= 0.0:
            return False
        length = self.seconds[rank.weights[0].stage][Kind.W]
        if gap >= length or self.policy == "eager":
            return True
        return self.policy == "even" and rank.idle + gap > self.worst

    def _arrival(self, action: Action) -> float | None:
        """When the input is there; None where its maker has not run yet."""
        if action.kind == Kind.F and action.stage == 0:
            return 0.0
        source = _source(action, len(self.stage_rank))
        end = self.end.get(source)
        if end is None:
            return None
        same = self.stage_rank[source.stage] == self.stage_rank[action.stage]
        return end if same else end + self.times.message

    def _do(self, rank: _Rank, action: Action) -> None:
        """Do an action: move the rank's clock, and count what it keeps and idles."""
        start = rank.clock
        if action.kind == Kind.W:
            rank.weights.popleft()
            rank.kept -= self.times.kept
        else:
            rank.todo.popleft()
            start = max(start, self._arrival(action) or 0.0)
        if not rank.row:
            rank.first = start
        else:
            rank.idle += start - rank.clock
            self.worst = max(self.worst, rank.idle)
        if action.kind == Kind.F:
            rank.kept += 1.0
        elif action.kind == Kind.I:
            rank.kept -= 1.0 - self.times.kept
            rank.weights.append(Action(action.stage, Kind.W, action.microbatch))
        rank.row.append(action)
        rank.clock = self.end[action] = start + self.seconds[action.stage][action.kind]


def _source(action: Action, stages: int) -> Action:
    """The action whose result an F (not of stage 0) or an I needs."""
    stage, kind, mb = action
    if kind == Kind.F:
        return Action(stage - 1, Kind.F, mb)
    if stage == stages - 1:
        return Action(stage, Kind.F, mb)
    return Action(stage + 1, Kind.I, mb)
