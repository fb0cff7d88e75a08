"""Rounds whose messages share links: an end is known when it comes, for others may start meanwhile.

    worker 0   F  B  |push|  ...          alone on the server's link
    worker 1    F  B   |--push--|         beside worker 2: half the rate each
    worker 2    F  B   |--push--|

What travels starts when the clock is there and ends when its carrier says so; what is no link (a
server's memory) serves in order of arrival as ever, and the task is done with the later of both. An
average of two peers holds both until its bytes are there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import Protocol

from parsim.arrays import Array
from parsim.sim.rounds.compiled import CompiledRows, Turn, compile_rows
from parsim.sim.rounds.progress import Progress
from parsim.sim.rounds.rounds_end import RoundsEnd
from parsim.sim.rounds.run import RoundsRun
from parsim.strategy.program import StepProgram

Arrived = Callable[[float], None]
"""Called with the moment in which all bytes are there."""


class Carrier(Protocol):
    """Carries what travels, with a clock of its own."""

    @property
    def now(self) -> float:
        """The clock, seconds."""
        ...

    @property
    def next(self) -> float:
        """When something happens next; infinite where nothing is under way."""
        ...

    def step(self) -> None:
        """Let the next thing happen."""
        ...

    def wait(self, moment: float) -> None:
        """Advance the clock to a moment before which nothing happens."""
        ...

    def carries(self, task: str) -> bool:
        """Whether what travels in a task runs over links."""
        ...

    def carry(self, task: str, ends: tuple[int, ...], seconds: float, arrived: Arrived) -> None:
        """Start what takes so many seconds on idle links; `ends` are who sends, or the pair."""
        ...


def run_on_links(
    program: StepProgram,
    prices: Mapping[str, Array],
    carrier: Carrier,
    *,
    slow: Array | None = None,
    seed: int = 0,
    keep: bool = False,
) -> RoundsEnd:
    """Run a program as `run_rounds` does, its routes on a carrier in place of queues of links.

    Raises:
        ScheduleError: ranks wait for one another for ever.
    """
    rows = compile_rows(program, prices, linked=True)
    run = LinkedRun(Progress(program, rows, slow, keep=keep), seed, carrier)
    run.run()
    return run.result()


class LinkedRun(RoundsRun):
    """The state of a run on links: also who meets in what is about to start, and who averages."""

    def __init__(self, ranks: Progress, seed: int, carrier: Carrier) -> None:
        """Put every rank at the start of its row, at the carrier's moment 0."""
        super().__init__(ranks, seed)
        self.carrier = carrier
        self.met: dict[tuple[int, int], list[int]] = {}
        self.averaging: set[int] = set()
        self.waiting: list[tuple[int, Turn, int]] = []
        self.owner = _owners(ranks.program, ranks.rows)

    def _next(self) -> bool:
        """Take the next rank that comes, or let the carrier's next thing happen before."""
        comes = self.heap[0][0] if self.heap else inf
        if min(comes, self.carrier.next) == inf:
            return False
        if comes > self.carrier.next:
            self.carrier.step()
            return True
        self.carrier.wait(comes)
        return super()._next()

    def _travels(self, turn: Turn) -> bool:
        task = self.program.tasks[turn.task]
        return bool(task.routes) and self.carrier.carries(task.name)

    def _together(self, turn: Turn, ranks: list[int], start: float) -> None:
        """What all who meet send starts when the clock is there."""
        if not self._travels(turn):
            super()._together(turn, ranks, start)
            return
        self.met[turn.task, self.ranks.round[ranks[0]]] = ranks
        self._push(ranks[0], start)

    def _arrive(self, rank: int, ready: float) -> None:
        """A rank comes to what travels, or to what does not."""
        turn = self.ranks.turn(rank)
        together = self.met.pop((turn.task, self.ranks.round[rank]), None)
        if not self._travels(turn) or (turn.meets and together is None):
            super()._arrive(rank, ready)
        elif turn.peers:
            self._pair(rank, turn, self._drawn(turn))
        else:
            served = self.queues.serve(turn.queues, ready, ready)
            start, last = self.queues.serve_spans(turn.spans, ready, served)
            self._note_served(rank, turn, turn.queues)
            ranks = together or [rank]
            self._carry((ranks[0],), turn, lambda end: self._end(ranks, start, max(end, last)))

    def _carry(self, ends: tuple[int, ...], turn: Turn, arrived: Arrived) -> None:
        seconds = turn.seconds + (turn.queues[0][1] if turn.peers else 0.0)
        self.carrier.carry(self.program.tasks[turn.task].name, ends, seconds, arrived)

    def _end(self, ranks: list[int], start: float, end: float) -> None:
        """Ranks have done what travelled, and go on."""
        for rank in ranks:
            self.ranks.settle(rank, self.ranks.turn(rank), start, end)
        self.ranks.todo += reversed(ranks)

    def _pair(self, rank: int, turn: Turn, drawn: int) -> None:
        """Average with a peer once neither of the two is in another average."""
        mine, start = turn.queues[0][0], self.carrier.now
        if self.averaging & {mine, drawn}:
            self.waiting.append((rank, turn, drawn))
            return
        self.averaging |= {mine, drawn}

        def arrived(end: float) -> None:
            self.averaging -= {mine, drawn}
            for queue in (mine, drawn):
                self.queues.occupy(queue, end - start)
            self._end([rank], start, end)
            waiting, self.waiting = self.waiting, []
            for entry in waiting:
                self._pair(*entry)

        self._carry((rank, self.owner[drawn]), turn, arrived)


def _owners(program: StepProgram, rows: CompiledRows) -> dict[int, int]:
    """The rank whose average each drawn queue holds back."""
    return {
        rows.queues[queue.row(position)]: rank
        for task in program.tasks
        for queue in task.queues
        if queue.drawn
        for position, rank in enumerate(task.ranks)
    }
