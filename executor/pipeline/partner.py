"""Activations of a pipeline rank that lie on its partner: sent beside an action, got back in time.

    rank r       F 3 | send 2 ............ |  F 4 | .. B 1 | get 2 | B 2
    rank p-1-r   a thread takes what comes and gives it back, in the order of r's actions

The tensors that a stage's layers save for backward stay where they are (`HostStore`), until the
schedule says that a micro-batch leaves (`Schedule.moves`): then their memory
is sent as it is, piece by piece, and let go when it is over there. Values come back with their
bits, so that gradients are those of 1F1B to the bit. The partner's thread waits for nothing that
its rank computes, so that no order of actions can hang. Threads wait for what is under way, so that
it is known when a micro-batch was over there or here again, and how long its action waited.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Thread
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from executor.devices.copies import Moment
from executor.pipeline.outbox import BESIDE
from executor.pipeline.partner_server import PartnerServer
from parsim.schedule import Action, Kind, Schedule
from parsim.schedule.actions import Move

Finish = Callable[[], None]
"""Waits for messages, and does what is to be done behind them."""


class Moved(NamedTuple):
    """A micro-batch's activations that left a stage, or came back, and what its rank waited.

    Seconds of the host's monotonic clock; `waited` is when the rank had nothing else to do, up to
    the moment when it went on.
    """

    stage: int
    microbatch: int
    out: bool
    start: float
    end: float
    waited: tuple[float, float]


class Lent:
    """A flat piece of memory: here, or for a while on the partner."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor: Tensor | None = tensor
        self.size, self.dtype = tensor.numel(), tensor.dtype


class PartnerCopier:
    """Notes what a micro-batch saves; nothing leaves before its schedule says so."""

    behind = 0

    def __init__(self) -> None:
        self.current: list[Lent] = []

    def leave(self, tensor: Tensor) -> tuple[Lent, Moment]:
        """Note a piece, which stays here for now."""
        piece = Lent(tensor)
        self.current.append(piece)
        return piece, None

    def bring(self, copied: Lent) -> tuple[Tensor, Moment]:
        """A piece that is here, or here again."""
        if copied.tensor is None:
            raise RuntimeError("a backward began before its activations were back")
        return copied.tensor, None

    def wait(self, moment: Moment) -> None:
        """Whoever sends and receives has waited already."""
        del moment


class Partner:
    """One rank's side of its pair: sends activations away and gets them back, or keeps another's.

    `moved` counts the bytes that left in all steps, `most_kept` the most bytes of the partner's
    that lay here at once: a thread's memory, which no profiler of this rank's sees. `moves` is what
    left and came back in the last step, in order.
    """

    def __init__(self, schedule: Schedule, rank: int, group: dist.ProcessGroup) -> None:
        self.copier = PartnerCopier()
        self.moved = self.most_kept = 0
        self.moves: list[Moved] = []
        self._group, self._other = group, 1 - dist.get_rank(group)
        every = schedule.moves
        self._moves = {action: move for action, move in every.items() if action.stage == rank}
        kept = schedule.ranks[schedule.pp - 1 - rank]
        self._served = [every[action] for action in kept if action in every]
        self._of: dict[int, list[Lent]] = {}

    @property
    def sends(self) -> bool:
        """Whether this rank's activations leave."""
        return bool(self._moves)

    @contextmanager
    def serving(self) -> Iterator[None]:
        """The block in which a step runs: what comes from the partner is kept and given back."""
        self.moves.clear()
        server = PartnerServer(self._served, self._group, self._other)
        server.start()
        yield  # where this rank fails, nobody waits for its thread
        server.join()
        self.most_kept = max(self.most_kept, server.most_kept)
        if server.error is not None:
            raise server.error

    @contextmanager
    def beside(self, action: Action) -> Iterator[None]:
        """The block in which an action of this rank runs, with what moves beside it."""
        move, pending = self._moves.get(action, Move()), list[Finish]()
        if action.kind is Kind.F:
            self.copier.current = self._of[action.microbatch] = []
        first = action.kind is Kind.B and action.microbatch == 0
        if move.loaded >= 0 and first:
            self._load(action.stage, move.loaded)()
        if move.evicted >= 0:
            pending.append(self._evict(action.stage, move.evicted))
        if move.loaded >= 0 and not first:
            pending.append(self._load(action.stage, move.loaded))
        yield
        self.copier.current = []
        for finish in pending:
            finish()
        if action.kind is Kind.B:
            del self._of[action.microbatch]

    def _evict(self, stage: int, microbatch: int) -> Finish:
        pieces, start = self._of[microbatch], time.perf_counter()
        flats = [_bytes(piece.tensor) for piece in pieces if piece.tensor is not None]
        sizes = torch.tensor([flat.numel() for flat in flats])
        self.moved += int(sizes.sum())
        messages = (torch.tensor([len(flats)]), sizes, *flats)
        works = [dist.isend(each, group=self._group, group_dst=self._other) for each in messages]
        done = _Waiter(works, messages)

        def finish() -> None:
            self._note(stage, microbatch, start, done, out=True)
            for piece in pieces:
                piece.tensor = None

        return finish

    def _load(self, stage: int, microbatch: int) -> Finish:
        pieces, start = self._of[microbatch], time.perf_counter()
        back = [torch.empty(piece.size, dtype=piece.dtype) for piece in pieces]
        views = tuple(map(_bytes, back))
        works = [dist.irecv(view, group=self._group, group_src=self._other) for view in views]
        done = _Waiter(works, views)

        def finish() -> None:
            self._note(stage, microbatch, start, done, out=False)
            for piece, tensor in zip(pieces, back, strict=True):
                piece.tensor = tensor

        return finish

    def _note(self, stage: int, microbatch: int, start: float, done: _Waiter, *, out: bool) -> None:
        """Wait until what is under way is there, and note when that was.

        What is waited for is not over before the waiting thread is awake.
        """
        before = time.perf_counter()
        end = done.result()
        after = time.perf_counter()
        end = after if end > before else end
        self.moves.append(Moved(stage, microbatch, out, start, end, (before, after)))


class _Waiter(Thread):
    """Waits for messages, which must live until then; `result` is when they were over.

    A daemon, so that a rank that fails ends though its partner never answers.
    """

    def __init__(self, works: Sequence[Any], messages: Sequence[Tensor]) -> None:
        super().__init__(name=BESIDE, daemon=True)
        self._works, self._messages = works, messages
        self._error: BaseException | None = None
        self._end = 0.0
        self.start()

    def run(self) -> None:
        try:
            for work in self._works:
                work.wait()
            self._end = time.perf_counter()
        except BaseException as error:  # `result` raises it
            self._error = error

    def result(self) -> float:
        """Seconds of the host's monotonic clock, when all messages are over."""
        self.join()
        if self._error is not None:
            raise self._error
        return self._end


def _bytes(flat: Tensor) -> Tensor:
    return flat.view(torch.uint8)
