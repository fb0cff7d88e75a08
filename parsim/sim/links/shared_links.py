"""Links that the processes of a simulation share: one sends, and waits until its bytes are there.

The kinds of traffic are known from the start (each pipeline rank's groups, each border between
stages), so that rates depend only on how many of each kind are under way, and a set that comes
again, as it does in every micro-batch, is solved once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import isinf

import numpy as np
import simpy

from parsim.arrays import Array, Index, sorted_values
from parsim.sim.links.fair_share import TIGHT, Flows, fair_rates, link_loads

FULL = 0.95
"""Share of its rate from which a link counts as full: a collective alone leaves some
percent of the link that holds it back, as its time has a part that grows as the root of S."""

DUE = 1e-12
"""Share of the time to the next end within which flows end together."""


@dataclass(slots=True)
class _Sending:
    """Bytes of one kind that are under way, and the event that their end is."""

    kind: int
    left: float
    done: simpy.Event


@dataclass(slots=True)
class _Shared:
    """Rates by kind, what the links do meanwhile, and seconds that are not yet accounted for.

    `rates` are bytes/s of a flow, by its kind, `loads` (L,) those of each link. `busy`, `full` and
    `limiting` are the links that are in use, nearly full and quite full. `lasted` are the seconds.
    """

    rates: dict[int, float]
    loads: Array
    busy: Index
    full: Index
    limiting: Index
    lasted: float = 0.0


class SharedLinks:
    """Links and, once settled, their account, (L,): `load` is bytes, the others are seconds.

    `busy` are those in which a link carried anything, `saturated` those from `FULL` of its rate on,
    `limiting` those at all of it, where it holds back what would be faster without it.
    """

    def __init__(
        self,
        env: simpy.Environment,
        kinds: Flows,
        groups: Sequence[int],
        watch: Callable[[float, Array], None] | None = None,
    ) -> None:
        """Links for traffic of some kinds.

        Args:
            env: the simulation.
            kinds: one flow for each kind of traffic.
            groups: class of each link, 0, 1, ...; `class_busy` and `class_saturated` say how long
                any link of a class was.
            watch: called with time and loads when they change.
        """
        self.env, self.kinds, self.watch = env, kinds, watch
        count = len(kinds.capacity)
        self.busy, self.saturated, self.limiting, self.load = np.zeros((4, count))
        self._groups = np.asarray(groups, dtype=np.int64)
        classes = int(self._groups.max(initial=-1)) + 1
        self.class_busy, self.class_saturated = np.zeros(classes), np.zeros(classes)
        self._sending: list[_Sending] = []
        self._known: dict[tuple[tuple[int, int], ...], _Shared] = {}
        self._shared = self._share(())
        self._last, self._version, self._asked = 0.0, 0, False

    @property
    def solves(self) -> int:
        """How many different sets of traffic were solved."""
        return len(self._known)

    def send(self, kind: int, size: float) -> simpy.Event:
        """Start to send so many bytes for each unit of usage; the event comes when they are there.

        Latency is the caller's.
        """
        self._advance()
        sending = _Sending(kind, size, self.env.event())
        self._sending.append(sending)
        self._ask()
        return sending.done

    def left(self, kind: int) -> float:
        """Bytes (of usage 1) that are still to be sent of a kind."""
        self._advance()
        return sum(max(sending.left, 0.0) for sending in self._sending if sending.kind == kind)

    def settle(self) -> None:
        """Account for all that was carried until now."""
        self._advance()
        for shared in self._known.values():
            if shared.lasted > 0.0:
                self._account(shared, shared.lasted)
            shared.lasted = 0.0

    def _account(self, shared: _Shared, seconds: float) -> None:
        self.busy[shared.busy] += seconds
        self.saturated[shared.full] += seconds
        self.limiting[shared.limiting] += seconds
        self.load += shared.loads * seconds
        self.class_busy[sorted_values(self._groups[shared.busy])] += seconds
        self.class_saturated[sorted_values(self._groups[shared.full])] += seconds

    def _ask(self) -> None:
        """Share anew when all that happens at this moment has happened."""
        if not self._asked:
            self._asked = True
            moment = self.env.timeout(0.0)
            moment.callbacks.append(lambda _: self._solve())

    def _advance(self) -> None:
        """Let the time since the last change pass."""
        passed = self.env.now - self._last
        if passed <= 0.0:
            return
        self._last = self.env.now
        shared = self._shared
        for sending in self._sending:
            sending.left -= shared.rates.get(sending.kind, 0.0) * passed
        shared.lasted += passed

    def _solve(self) -> None:
        """Find the rates of what is under way now, and wait for the next end."""
        self._asked = False
        self._advance()
        self._version += 1
        counts = Counter(sending.kind for sending in self._sending)
        self._shared = self._share(tuple(sorted(counts.items())))
        if self.watch is not None:
            self.watch(self.env.now, self._shared.loads)
        if not self._sending:
            return
        rates = self._shared.rates
        needed = [max(sending.left, 0.0) / rates[sending.kind] for sending in self._sending]
        least = min(needed)
        if isinf(least):  # what is under way has no end
            return
        due = [
            sending
            for sending, seconds in zip(self._sending, needed, strict=True)
            if seconds <= least * (1.0 + DUE)
        ]
        version = self._version
        end = self.env.timeout(least)
        end.callbacks.append(lambda _: self._finish(due, version))

    def _finish(self, due: list[_Sending], version: int) -> None:
        """The flows that were to end next have ended, unless something changed before."""
        if version != self._version:
            return
        self._advance()
        ended = {id(sending) for sending in due}
        self._sending = [sending for sending in self._sending if id(sending) not in ended]
        for sending in due:
            sending.done.succeed()
        self._ask()

    def _share(self, counts: tuple[tuple[int, int], ...]) -> _Shared:
        """Fair rates of so many flows of each kind."""
        shared = self._known.get(counts)
        if shared is None:
            number = np.array([times for _, times in counts], dtype=np.float64)
            part = self.kinds.take(np.array([kind for kind, _ in counts], dtype=np.int64))
            part = replace(part, multiplicity=part.multiplicity * number)
            rates = fair_rates(part)
            loads = link_loads(part, rates)
            shared = _Shared(
                dict(zip((kind for kind, _ in counts), rates.tolist(), strict=True)),
                loads,
                np.flatnonzero(loads > 0.0),
                np.flatnonzero(loads >= part.capacity * FULL),
                np.flatnonzero(loads >= part.capacity * (1.0 - TIGHT)),
            )
            self._known[counts] = shared
        return shared
