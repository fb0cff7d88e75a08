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

from collections.abc import Mapping
from heapq import heappop, heappush

import numpy as np

from parsim.arrays import Array
from parsim.errors import ScheduleError
from parsim.sim.rounds.compiled import CompiledRows, Turn, compile_rows
from parsim.sim.rounds.rounds_end import RoundsEnd, WeightUses
from parsim.sim.rounds.waiting import Behind, Completions, Gathering, Queues, gates
from parsim.strategy.program import StepProgram

_FREE = -1.0


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
    run = RoundsRun(program, compile_rows(program, prices), slow, seed, keep)
    run.run()
    return run.result()


class RoundsRun:
    """The state of a run: where each rank is in its row, and when its streams are free."""

    def __init__(
        self,
        program: StepProgram,
        rows: CompiledRows,
        slow: Array | None,
        seed: int,
        keep: bool,
    ) -> None:
        """Put every rank at the start of its row."""
        ranks = range(program.ranks)
        self.program, self.rows, self.keep = program, rows, keep
        self.slow: list[list[float]] | None = None if slow is None else slow.tolist()
        self.random = np.random.default_rng(seed)
        self.position, self.round = [0 for _ in ranks], [0 for _ in ranks]
        self.free = [[0.0] * max(streams, 1) for streams in rows.streams]
        self.ended = [[_FREE] * program.ranks for _ in range(program.rounds)]
        self.heap: list[tuple[float, int]] = []
        self.todo = list(reversed(ranks))
        self.queues, self.done = Queues(len(rows.queues), rows.spans), Completions()
        self.meetings: dict[tuple[int, int], Gathering] = {}
        self.parked: dict[tuple[str, int, int], list[int]] = {}
        self.behind = {n: Behind.of(task, program.rounds) for n, task in gates(program)}
        self.notes: list[tuple[float, int, int, int, int]] = []
        self.times: dict[tuple[int, int, int], tuple[float, float]] = {}
        self.closed: dict[int, int] = {}
        self.dropped, self.skipped = 0, 0
        self.whole = [rank for rank in ranks if rows.turns[rank]]

    def run(self) -> None:
        """Take ranks on until all have done all their rounds.

        Raises:
            ScheduleError: ranks wait for one another for ever.
        """
        while True:
            while self.todo:
                self._advance(self.todo.pop())
            if not self._next():
                break
        stuck = [rank for rank in self.whole if self.round[rank] < self.program.rounds]
        if stuck:
            names = [self.program.tasks[self._turn(rank).task].name for rank in stuck[:3]]
            raise ScheduleError(f"step program: ranks wait for one another at {', '.join(names)}")

    def _next(self) -> bool:
        """Take the next rank that comes to a queue or a meeting; False: nobody does."""
        if not self.heap:
            return False
        ready, rank = heappop(self.heap)  # of those who come together the first rank
        self._arrive(rank, ready)
        return True

    def _turn(self, rank: int) -> Turn:
        return self.rows.turns[rank][self.position[rank]]

    def _advance(self, rank: int) -> None:
        """Take a rank along its row until it must wait for others."""
        turns, position = self.rows.turns[rank], self.position
        while self.round[rank] < self.program.rounds:
            if position[rank] == len(turns):
                self._finish(rank)
                continue
            turn = turns[position[rank]]
            if not (turn.always or self.round[rank] in self.program.tasks[turn.task].when):
                position[rank] += 1
                continue
            ready = self._ready(rank, turn)
            if ready is None:
                return
            if turn.queued or self._travels(turn) or turn.meets:
                self._come(rank, turn, ready)
                return
            if turn.chain and not self.keep:
                self._take_chain(rank, turn, ready)
            else:
                self._settle(rank, turn, ready, ready + self._seconds(rank, turn))

    def _take_chain(self, rank: int, turn: Turn, end: float) -> None:
        """Do a turn and those that follow it at once."""
        slow = self.slow[self.round[rank]][rank] if self.slow and turn.on_device else 1.0
        for seconds in turn.chain:
            end += seconds * slow
        self.free[rank][turn.stream] = end
        self.position[rank] += len(turn.chain)

    def _ready(self, rank: int, turn: Turn) -> float | None:
        """When a rank is ready for a task; None: it waits for others and is parked."""
        free = self.free[rank]
        ready = max(free) if turn.waits_for_rank else free[turn.stream]
        if not (turn.after or turn.gated):
            return ready
        number = self.round[rank]
        for other in turn.after:
            if number not in self.program.tasks[other].when:
                continue
            if (other, number) not in self.done.at:
                self._park(("task", other, number), rank)
                return None
            ready = max(ready, self.done.at[other, number])
        gate = self.program.tasks[turn.task].gate
        if gate is None or number <= gate.lag:
            return ready
        return self._through_gate(rank, turn, number - 1 - gate.lag, ready)

    def _through_gate(self, rank: int, turn: Turn, target: int, ready: float) -> float | None:
        """When a rank may pass a gate: others have finished the target round."""
        if not turn.behind:
            gate = self.behind[turn.task]
            if gate.passed[target] < len(gate.ranks):
                self._park(("gate", turn.task, target), rank)
                return None
            return max(ready, gate.latest[target])
        for other in turn.behind:
            if self.round[other] <= target:
                self._park(("round", target, other), rank)
                return None
            ready = max(ready, self.ended[target][other])
        return ready

    def _park(self, awaited: tuple[str, int, int], rank: int) -> None:
        self.parked.setdefault(awaited, []).append(rank)

    def _wake(self, awaited: tuple[str, int, int]) -> None:
        self.todo += reversed(self.parked.pop(awaited, ()))

    def _travels(self, turn: Turn) -> bool:
        """Whether a task's end is known when it comes only: it shares links with others."""
        return False

    def _push(self, rank: int, ready: float) -> None:
        heappush(self.heap, (ready, rank))

    def _seconds(self, rank: int, turn: Turn) -> float:
        if self.slow is None or not turn.on_device:
            return turn.seconds
        return turn.seconds * self.slow[self.round[rank]][rank]

    def _arrive(self, rank: int, ready: float) -> None:
        """A rank comes to a queue, or to a meeting that needs a quorum."""
        turn = self.rows.turns[rank][self.position[rank]]
        if not turn.queued:
            self._join(rank, turn, ready)
            return
        queues, alone = turn.queues, ready + self._seconds(rank, turn)
        if turn.peers:
            queues = (*queues, (self._drawn(turn), queues[0][1]))
        start, end = self.queues.serve(queues, ready, alone) if queues else (ready, alone)
        if turn.spans:
            start, end = self.queues.serve_spans(turn.spans, ready, (start, end))
        self._settle(rank, turn, start, end)
        self._advance(rank)

    def _drawn(self, turn: Turn) -> int:
        """The queue of a peer."""
        return turn.peers[int(self.random.integers(len(turn.peers)))]

    def _settle(self, rank: int, turn: Turn, start: float, end: float) -> None:
        """Note that a rank has done a task, and wake those who wait for it."""
        self.free[rank][turn.stream] = end
        self.position[rank] += 1
        task, number = turn.task, self.round[rank]
        if turn.uses_weights:
            writes = self.program.tasks[task].writes
            moment = end if writes else start
            self.notes.append((moment, len(self.notes), rank, number, int(writes)))
        if self.keep:
            self.times[task, rank, number] = (start, end)
        if turn.awaited and self.done.note((task, number), end, turn.awaited):
            self._wake(("task", task, number))

    def _come(self, rank: int, turn: Turn, ready: float) -> None:
        """Come to a queue, or to a meeting: in order of time where a quorum is enough."""
        if turn.meets and not self.program.tasks[turn.task].quorum:
            self._join(rank, turn, ready)
        else:
            self._push(rank, ready)

    def _join(self, rank: int, turn: Turn, ready: float) -> None:
        """Start the task with all who meet in it, when enough of them have come."""
        task, number = self.program.tasks[turn.task], self.round[rank]
        if number < self.closed.get(turn.task, 0):
            self._catch_up(rank, turn, ready)
            return
        meeting = self.meetings.setdefault((turn.task, number), Gathering())
        meeting.come.append(rank)
        meeting.latest = max(meeting.latest, ready)
        if len(meeting.come) < (task.quorum or len(task.ranks)):
            return
        if task.quorum:
            self.closed[turn.task] = number + 1
        self._together(turn, sorted(meeting.come), meeting.latest)

    def _together(self, turn: Turn, ranks: list[int], start: float) -> None:
        """All who meet do a task from then on."""
        for rank in ranks:
            begun = self._turn(rank)
            self._settle(rank, begun, start, start + self._seconds(rank, begun))
        self.todo += reversed(ranks)

    def _catch_up(self, rank: int, turn: Turn, ready: float) -> None:
        """Drop what comes after its round was closed; its rank goes on behind the last closed."""
        first, last = self.round[rank], self.closed[turn.task] - 1
        self.dropped += 1
        self.skipped += last - first
        for number in range(first, last):
            self._note_end(rank, number, ready)
        self.round[rank] = last
        self._settle(rank, turn, ready, ready + self._seconds(rank, turn))
        self.todo.append(rank)

    def _finish(self, rank: int) -> None:
        """End a round, and begin the next."""
        number = self.round[rank]
        self.round[rank], self.position[rank] = number + 1, 0
        self._note_end(rank, number, max(self.free[rank]))

    def _note_end(self, rank: int, number: int, end: float) -> None:
        """Note a round's end, and wake those who wait for it at gates."""
        self.ended[number][rank] = end
        if self.parked:
            self._wake(("round", number, rank))
        for task, gate in self.behind.items():
            if rank in gate.ranks and gate.note(number, end):
                self._wake(("gate", task, number))

    def result(self) -> RoundsEnd:
        """The record of the run."""
        notes = sorted(self.notes)
        busy = self.queues.busy.tolist()
        columns = np.array(notes, dtype=np.float64).reshape(-1, 5).T
        whole = columns[2:].astype(np.int64)
        return RoundsEnd(
            finished=np.array(self.ended)[:, self.whole],
            busy={name: busy[number] for name, number in self.rows.queues.items()},
            versions=WeightUses(time=columns[0], rank=whole[0], round=whole[1], wrote=whole[2]),
            times=self.times,
            dropped=self.dropped,
            skipped=self.skipped,
        )
