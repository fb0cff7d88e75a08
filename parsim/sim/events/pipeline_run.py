"""A pipeline as discrete events (tier C): simpy processes for the ranks of equal replicas.

    compute of rank r   |/// 3F0 ///| tp |          |/// 3B0 ///| tp |
    shard of stage 3    |--- gather ---|            |--- gather, scatter ---|
    messages                           |-- ahead --|                  |-- back --|

On a wire that only waits an action takes its price. On links that all share it computes for its
time without exposed exchanges; then come those, of tensor and of context ranks and of experts.
Without contention every part takes what tier B gives it, so that the step takes what tier B says.

A stage's shards go beside its action. The action ends when its own work has, stretched by its
exchanges, and not before the shards and what follows the last of them: a layer's compute, or all
of it where nothing overlaps.

A slow device holds back its whole pipeline rank: all replicas wait for it at their exchanges.

Leaves out: where in an action its exchanges are (here behind its compute, as in the drawing).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

import numpy as np
import simpy

from parsim.schedule import Action, Kind
from parsim.sim.events.class_run import ClassRun, TrafficParts
from parsim.sim.events.fabric import Process, Wire
from parsim.sim.events.visits import COMPUTE, Visit, visits
from parsim.sim.traffic.step_traffic import Role
from parsim.timelines.kinds import SpanKind, Stream
from parsim.timelines.timeline import Span

_Drawn = tuple[int, str, str, float, float, int, int]
"""Fields of a span, which is made when somebody asks for it."""
_NAMES = [kind.name for kind in COMPUTE]
_SENDS = [SpanKind.SEND_F if kind == Kind.F else SpanKind.SEND_B for kind in COMPUTE]


class PipelineRun:
    """The pipeline of a class of replicas, from now on.

    `closed` come when a rank's last action is done, `clock` says when that was. `released` are the
    pieces of each stage's gradients that are ready, for those stages that `pieces` counts.
    """

    def __init__(
        self, wire: Wire, run: ClassRun, pieces: Mapping[int, int], number: int, circle: int
    ) -> None:
        """Prepare the class of that number, which shares parameters with that circle."""
        self.wire, self.env, self.run, self.pieces = wire, wire.env, run, pieces
        self.schedule, self.number, self.circle = run.schedule, number, circle
        self.lanes = number * run.schedule.pp
        stages, microbatches = self.schedule.num_stages, self.schedule.num_microbatches
        self.arrived = [-1.0] * (2 * stages * microbatches)
        self.waiting: dict[int, simpy.Event] = {}
        self.released = {stage: simpy.Store(self.env) for stage in pieces}
        self.closed = [self.env.event() for _ in self.schedule.ranks]
        self.clock = [0.0] * self.schedule.pp
        self.drawn: list[_Drawn] = []

    def start(self, blocking: bool) -> None:
        """Begin the pipeline phase; with `blocking` messages a sender waits for them."""
        self.blocking = blocking
        self.seconds, self.inside = self._lengths()
        for rank in range(self.schedule.pp):
            self.env.process(self._compute(rank))

    def note(
        self, rank: int, stream: str, kind: str, begin: float, stage: int = -1, mb: int = -1
    ) -> None:
        """Draw something that a pipeline rank began then and ends now."""
        self.drawn.append((self.lanes + rank, stream, kind, begin, self.env.now, stage, mb))

    @property
    def spans(self) -> list[Span]:
        """What each rank of the class did when."""
        return [Span(*values) for values in self.drawn]

    def send(self, name: str, stage: int, seconds: float) -> Process:
        """Traffic of this class's replicas; shards are those of all that share parameters."""
        column = self.circle if name == "shard" else self.number
        return self.wire.send(Role(name, stage, column), seconds)

    def _lengths(self) -> tuple[dict[Kind, list[float]], dict[Kind, list[float]]]:
        """Seconds of actions, and of the exchanges inside them, on devices as slow as they are."""
        parts, slow, ranks = self.run.parts, self.run.slow, self.schedule.stage_rank
        if parts is None:
            return dict(self.run.seconds), {}
        inside = {
            kind: np.minimum(parts.inside[kind], seconds).tolist()
            for kind, seconds in self.run.seconds.items()
        }
        stretched = {
            kind: [
                whole + (slow[rank] - 1.0) * (whole - part)
                for rank, whole, part in zip(ranks, seconds, inside[kind], strict=True)
            ]
            for kind, seconds in self.run.seconds.items()
        }
        return stretched, inside

    def _visits(self, rank: int) -> list[Visit]:
        """The rank's actions in order; the last backward of a stage that has pieces is marked."""
        return list(visits(self.schedule, rank, self.seconds, self.run.hop, set(self.pieces)))

    def _compute(self, rank: int) -> Process:
        """Walk the rank's actions: wait for the input, work, send."""
        env, arrived, waiting = self.env, self.arrived, self.waiting
        computing, sending, timeout = Stream.COMPUTE, Stream.SEND, env.timeout
        known, lane, draw = not self.wire.shared, self.lanes + rank, self.drawn.append
        aside, now = known and not self.blocking, env.now
        for action, needed, result, seconds, hop, ends_stage in self._visits(rank):
            if needed >= 0:
                if arrived[needed] < 0.0:
                    waiting[needed] = env.event()
                    yield waiting[needed]
                    now = env.now
                if arrived[needed] > now:
                    yield timeout(arrived[needed] - now)
                    now = env.now
            begin, (stage, kind, microbatch) = now, action
            if ends_stage:
                env.process(self._release(action))
            if known:
                yield timeout(seconds)
            else:
                yield from self._act(rank, action)
            now = env.now
            draw((lane, computing, _NAMES[kind], begin, now, stage, microbatch))
            if ends_stage:
                self.released[stage].put(1)
            if hop < 0.0:
                self._hand_over(result, now)
            elif aside:
                draw((lane, sending, _SENDS[kind], now, now + hop, stage, microbatch))
                self._hand_over(result, now + hop)
            else:
                yield from self._pass_on(rank, action, result, hop)
                now = env.now
        self.clock[rank] = now
        self.closed[rank].succeed()

    def _hand_over(self, result: int, arrives: float) -> None:
        """Give a result to its consumer, who has it from then on."""
        if result >= 0:
            self.arrived[result] = arrives
            if result in self.waiting:
                self.waiting.pop(result).succeed()

    def _pass_on(self, rank: int, action: Action, result: int, hop: float) -> Process | tuple[()]:
        """Send the result: what the compute stream does for it, or nothing where it goes beside."""
        message = self._message(rank, action, result, hop)
        if self.blocking:
            return message
        self.env.process(message)
        return ()

    def _message(self, rank: int, action: Action, result: int, hop: float) -> Process:
        stage, kind, microbatch = action
        begin = self.env.now
        if not self.wire.shared:
            yield self.env.timeout(hop)
        else:
            yield from self.send("ahead" if kind == Kind.F else "back", stage, hop)
        self.note(rank, Stream.SEND, _SENDS[kind], begin, stage, microbatch)
        self._hand_over(result, self.env.now)

    def _release(self, action: Action) -> Process:
        """A stage's last backward releases its pieces at an even pace; the last when it ends."""
        count = self.pieces[action.stage]
        for _ in range(count - 1):
            yield self.env.timeout(self.seconds[action.kind][action.stage] / count)
            self.released[action.stage].put(1)

    def _act(self, rank: int, action: Action) -> Process:
        """Compute, exchange, and wait for the shards, on links that all share."""
        stage, kind, _ = action
        parts = self.traffic
        whole, inside = self.seconds[kind][stage], self.inside[kind][stage]
        shard = min(float(parts.shard[kind][stage]), whole)
        begin, env = self.env.now, self.env
        shards = env.process(self._shards(rank, stage, shard)) if shard > 0.0 else None
        yield env.timeout(whole - inside)
        context = inside * float(parts.context[stage])
        routed = inside * float(parts.routed[stage])
        yield from self.send("tp", stage, inside - context - routed)
        yield from self.send("cp", stage, context)
        yield from self.send("ep", stage, routed)
        if shards is None:
            return
        stretched = env.now - begin - whole
        arrived = yield shards
        rest = min(whole - shard, whole * float(parts.layer[kind][stage]))
        until = max(begin + whole + max(stretched, 0.0), arrived + rest)
        if until > env.now:
            yield env.timeout(until - env.now)

    @property
    def traffic(self) -> TrafficParts:
        """What of an action is traffic."""
        if self.run.parts is None:
            raise RuntimeError("shared links need to know what of an action is traffic")
        return self.run.parts

    def _shards(self, rank: int, stage: int, seconds: float) -> Generator[simpy.Event, Any, float]:
        """Move a stage's shards; the result is when the last one is there."""
        begin = self.env.now
        yield from self.send("shard", stage, seconds)
        self.note(rank, Stream.DP, SpanKind.SHARD, begin, stage)
        return self.env.now
