"""Rounds as discrete events: ranks go at their own pace and wait for one another only as said.

    rank 0   PULL  F  B  PUSH .. UPDATE  PULL  F  B  PUSH  UPDATE ...
    rank 1   PULL   F   B   PUSH UPDATE   PULL   F   B   PUSH ...  a queue serves who comes first

A rank is taken as far along its row as its times are known, then the next: it stops at a queue,
which serves in order of arrival, at a gate, at a meeting, or where it waits for a task of another
row. Only queues and quorums go through the event heap, in order of time, so that a million rounds
take seconds.

That a rank's times are found ahead of the clock changes nothing: on a rank, a later task never
reaches a queue before an earlier one. Programs whose times do not depend on who comes first have
the times of the recurrence (`sim/recurrence/walk.py`), which is a test.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import heappop, heappush

import numpy as np

from parsim.arrays import Array
from parsim.sim.rounds.compiled import Turn, compile_rows
from parsim.sim.rounds.passages import Passed
from parsim.sim.rounds.progress import Progress
from parsim.sim.rounds.rounds_end import RoundsEnd, Service, WeightUses
from parsim.sim.rounds.waiting import Meetings, Queues
from parsim.strategy.program import StepProgram


def run_rounds(
    program: StepProgram,
    prices: Mapping[str, Array],
    *,
    slow: Array | None = None,
    seed: int = 0,
    keep: bool = False,
) -> RoundsEnd:
    """Run a program without pipelines as events.

    Args:
        program: what every rank does in a round.
        prices: seconds by name, (rows, 1).
        slow: how many times as long kernels take in each round on each rank, (rounds, ranks).
        seed: of the peers that are drawn.
        keep: also keep the times of every task.

    Raises:
        ScheduleError: ranks wait for one another for ever.
    """
    run = RoundsRun(Progress(program, compile_rows(program, prices), slow, keep=keep), seed)
    run.run()
    return run.result()


class RoundsRun:
    """A run under way: who comes to queues and meetings next, and what happens there."""

    def __init__(self, ranks: Progress, seed: int) -> None:
        """Nobody has come to a queue or a meeting yet."""
        self.ranks, self.program = ranks, ranks.program
        self.random = np.random.default_rng(seed)
        self.queues = Queues(len(ranks.rows.queues), ranks.rows.spans)
        self.meetings = Meetings()
        self.heap: list[tuple[float, int]] = []
        self.served: list[tuple[int, int, int, float, float]] = []

    def run(self) -> None:
        """Take ranks on until all have done all their rounds.

        Raises:
            ScheduleError: ranks wait for one another for ever.
        """
        todo = self.ranks.todo
        while True:
            while todo:
                self._advance(todo.pop())
            if not self._next():
                break
        self.ranks.check_done()

    def _next(self) -> bool:
        """Take the next rank that comes to a queue or a meeting; False: nobody does."""
        if not self.heap:
            return False
        ready, rank = heappop(self.heap)  # of those who come together the first rank
        self._arrive(rank, ready)
        return True

    def _advance(self, rank: int) -> None:
        """Take a rank along its row until it must wait for others."""
        ranks = self.ranks
        while (turn := ranks.next_turn(rank)) is not None:
            ready = ranks.ready(rank, turn)
            if ready is None:
                return
            if turn.queued or self._travels(turn) or turn.meets:
                self._come(rank, turn, ready)
                return
            if turn.chain and not ranks.keep:
                ranks.take_chain(rank, turn, ready)
            else:
                ranks.settle(rank, turn, ready, ready + ranks.seconds(rank, turn))

    def _travels(self, turn: Turn) -> bool:
        """Whether a task's end is known when it comes only: it shares links with others."""
        return False

    def _come(self, rank: int, turn: Turn, ready: float) -> None:
        """Come to a queue, or to a meeting: in order of time where a quorum is enough."""
        if turn.meets and not self.program.tasks[turn.task].quorum:
            self._join(rank, turn, ready)
        else:
            self._push(rank, ready)

    def _push(self, rank: int, ready: float) -> None:
        heappush(self.heap, (ready, rank))

    def _arrive(self, rank: int, ready: float) -> None:
        """A rank comes to a queue, or to a meeting that needs a quorum."""
        ranks = self.ranks
        turn = ranks.rows.turns[rank][ranks.position[rank]]
        if not turn.queued:
            self._join(rank, turn, ready)
            return
        queues, alone = turn.queues, ready + ranks.seconds(rank, turn)
        if turn.peers:
            queues = (*queues, (self._drawn(turn), queues[0][1]))
        start, end = self.queues.serve(queues, ready, alone) if queues else (ready, alone)
        if turn.spans:
            start, end = self.queues.serve_spans(turn.spans, ready, (start, end))
        self._note_served(rank, turn, queues)
        ranks.settle(rank, turn, start, end)
        self._advance(rank)

    def _note_served(self, rank: int, turn: Turn, queues: Passed) -> None:
        """Keep what the queues of a turn served, where times are kept."""
        if self.ranks.keep:
            for queue, (start, end) in self.queues.last_served(queues, turn.spans):
                self.served.append((queue, turn.task, rank, start, end))

    def _drawn(self, turn: Turn) -> int:
        """The queue of a peer."""
        return turn.peers[int(self.random.integers(len(turn.peers)))]

    def _join(self, rank: int, turn: Turn, ready: float) -> None:
        """Start the task with all who meet in it, when enough of them have come."""
        task, number = self.program.tasks[turn.task], self.ranks.round[rank]
        if self.meetings.is_closed(turn.task, number):
            self._catch_up(rank, turn, ready)
            return
        meeting = self.meetings.join((turn.task, number), rank, ready)
        if len(meeting.come) < (task.quorum or len(task.ranks)):
            return
        if task.quorum:
            self.meetings.close(turn.task, number)
        self._together(turn, sorted(meeting.come), meeting.latest)

    def _together(self, turn: Turn, ranks: list[int], start: float) -> None:
        """All who meet do a task from then on."""
        for rank in ranks:
            begun = self.ranks.turn(rank)
            self.ranks.settle(rank, begun, start, start + self.ranks.seconds(rank, begun))
        self.ranks.todo += reversed(ranks)

    def _catch_up(self, rank: int, turn: Turn, ready: float) -> None:
        """Drop what comes after its round was closed; its rank goes on behind the last closed."""
        ranks = self.ranks
        last = self.meetings.drop(turn.task, ranks.round[rank])
        ranks.skip_to(rank, last, ready)
        ranks.settle(rank, turn, ready, ready + ranks.seconds(rank, turn))
        ranks.todo.append(rank)

    def result(self) -> RoundsEnd:
        """The record of the run."""
        busy = self.queues.busy.tolist()
        return RoundsEnd(
            finished=np.array(self.ranks.ended)[:, self.ranks.whole],
            busy={name: busy[number] for name, number in self.ranks.rows.queues.items()},
            versions=self._weight_uses(),
            times=self.ranks.times,
            dropped=self.meetings.dropped,
            skipped=self.meetings.skipped,
            services=tuple(self._services()),
        )

    def _services(self) -> Iterator[Service]:
        """What queues served, under the name of each for which one stood in."""
        names: dict[int, list[str]] = {}
        for name, number in self.ranks.rows.queues.items():
            names.setdefault(number, []).append(name)
        for queue, task, rank, start, end in self.served:
            yield from (Service(name, task, rank, start, end) for name in names[queue])

    def _weight_uses(self) -> WeightUses:
        """Who read and wrote the weights, in order of time."""
        notes = sorted(self.ranks.notes)
        columns = np.array(notes, dtype=np.float64).reshape(-1, 5).T
        whole = columns[2:].astype(np.int64)
        return WeightUses(time=columns[0], rank=whole[0], round=whole[1], wrote=whole[2])
