"""Where every rank is in its row of tasks, when its streams are free, and who waits for whom."""

from __future__ import annotations

from parsim.arrays import Array
from parsim.errors import ScheduleError
from parsim.sim.rounds.compiled import CompiledRows, Turn
from parsim.sim.rounds.waiting import Behind, Completions, gates
from parsim.strategy.program import StepProgram

_NOT_ENDED = -1.0

Awaited = tuple[str, int, int]
"""What a rank waits for: a task in a round, all ranks behind a gate, or a round of another rank."""


class Progress:
    """The ranks of a run: each at a task of a round, free from a moment on, or parked.

    `todo` are ranks that may go on, the next one last; `ended` is when each rank ended each round.
    """

    def __init__(
        self, program: StepProgram, rows: CompiledRows, slow: Array | None, *, keep: bool
    ) -> None:
        """Put every rank at the start of its row; `keep` the times of all tasks."""
        ranks = range(program.ranks)
        self.program, self.rows, self.keep = program, rows, keep
        self.slow: list[list[float]] | None = None if slow is None else slow.tolist()
        self.position, self.round = [0 for _ in ranks], [0 for _ in ranks]
        self.free = [[0.0] * max(streams, 1) for streams in rows.streams]
        self.ended = [[_NOT_ENDED] * program.ranks for _ in range(program.rounds)]
        self.todo = list(reversed(ranks))
        self.whole = [rank for rank in ranks if rows.turns[rank]]
        self.done = Completions()
        self.gates = {n: Behind.of(task, program.rounds) for n, task in gates(program)}
        self.parked: dict[Awaited, list[int]] = {}
        self.notes: list[tuple[float, int, int, int, int]] = []
        self.times: dict[tuple[int, int, int], tuple[float, float]] = {}

    def turn(self, rank: int) -> Turn:
        """The task that a rank is at."""
        return self.rows.turns[rank][self.position[rank]]

    def next_turn(self, rank: int) -> Turn | None:
        """The task that a rank does next, in this round or a later one; None: it has done all."""
        turns, position = self.rows.turns[rank], self.position
        while (number := self.round[rank]) < self.program.rounds:
            if position[rank] == len(turns):
                self._finish(rank)
                continue
            turn = turns[position[rank]]
            if turn.always or number in self.program.tasks[turn.task].when:
                return turn
            position[rank] += 1
        return None

    def seconds(self, rank: int, turn: Turn) -> float:
        """How long a rank takes for a task in the round that it is in."""
        if self.slow is None or not turn.on_device:
            return turn.seconds
        return turn.seconds * self.slow[self.round[rank]][rank]

    def take_chain(self, rank: int, turn: Turn, end: float) -> None:
        """Do a turn and those that follow it at once."""
        slow = self.slow[self.round[rank]][rank] if self.slow and turn.on_device else 1.0
        for seconds in turn.chain:
            end += seconds * slow
        self.free[rank][turn.stream] = end
        self.position[rank] += len(turn.chain)

    def settle(self, rank: int, turn: Turn, start: float, end: float) -> None:
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

    def ready(self, rank: int, turn: Turn) -> float | None:
        """When a rank is ready for a task; None: it waits for others and is parked."""
        free = self.free[rank]
        ready = max(free) if turn.waits_for_rank else free[turn.stream]
        if not (turn.after or turn.gated):
            return ready
        behind = self._behind_tasks(rank, turn, ready) if turn.after else ready
        if behind is None or not turn.gated:
            return behind
        return self._through_gate(rank, turn, behind)

    def _behind_tasks(self, rank: int, turn: Turn, ready: float) -> float | None:
        """When the tasks of other rows that a task waits for are done; None: one is not."""
        number = self.round[rank]
        for other in turn.after:
            if number not in self.program.tasks[other].when:
                continue
            if (other, number) not in self.done.at:
                self._park(("task", other, number), rank)
                return None
            ready = max(ready, self.done.at[other, number])
        return ready

    def _through_gate(self, rank: int, turn: Turn, ready: float) -> float | None:
        """When a rank may pass a gate: others have finished an earlier round."""
        gate = self.program.tasks[turn.task].gate
        if gate is None or self.round[rank] <= gate.lag:
            return ready
        target = self.round[rank] - 1 - gate.lag
        if not turn.behind:
            return self._behind_all(rank, turn.task, target, ready)
        for other in turn.behind:
            if self.round[other] <= target:
                self._park(("round", target, other), rank)
                return None
            ready = max(ready, self.ended[target][other])
        return ready

    def _behind_all(self, rank: int, task: int, target: int, ready: float) -> float | None:
        """When all ranks of a task have finished a round; None: some have not."""
        gate = self.gates[task]
        if gate.passed[target] < len(gate.ranks):
            self._park(("gate", task, target), rank)
            return None
        return max(ready, gate.latest[target])

    def _park(self, awaited: Awaited, rank: int) -> None:
        self.parked.setdefault(awaited, []).append(rank)

    def _wake(self, awaited: Awaited) -> None:
        self.todo += reversed(self.parked.pop(awaited, ()))

    def _finish(self, rank: int) -> None:
        """End a round, and begin the next."""
        number = self.round[rank]
        self.round[rank], self.position[rank] = number + 1, 0
        self._note_end(rank, number, max(self.free[rank]))

    def skip_to(self, rank: int, last: int, end: float) -> None:
        """End the rounds before one of a rank that the others have left behind."""
        for number in range(self.round[rank], last):
            self._note_end(rank, number, end)
        self.round[rank] = last

    def _note_end(self, rank: int, number: int, end: float) -> None:
        """Note a round's end, and wake those who wait for it at gates."""
        self.ended[number][rank] = end
        if self.parked:
            self._wake(("round", number, rank))
        for task, gate in self.gates.items():
            if rank in gate.ranks and gate.note(number, end):
                self._wake(("gate", task, number))

    def check_done(self) -> None:
        """All ranks have done all their rounds.

        Raises:
            ScheduleError: ranks wait for one another for ever.
        """
        stuck = [rank for rank in self.whole if self.round[rank] < self.program.rounds]
        if stuck:
            names = [self.program.tasks[self.turn(rank).task].name for rank in stuck[:3]]
            raise ScheduleError(f"step program: ranks wait for one another at {', '.join(names)}")
