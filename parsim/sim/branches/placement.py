"""Chooses which device each parallel path of a model goes to, and in which order they run.

    start    all on device 0
    sweep    of each fork, the best of all ways to share its branches out to the devices;
             then of each branch alone, the best device; until nothing gains

A way is as good as the seconds of a micro-batch's forward and backward with its messages, by the
same rules as the strategy's program has. What is found is the best of each fork while the others
stay, not the best of all. No placement takes less than `bound`: the work shared out evenly, or the
longest way without messages.

Paths run in the order of how long the way from them to the end is (the longest first), as list
schedulers have it: what hangs on nothing waits until the device has nothing more urgent.

Source: list scheduling by upward rank, HEFT (Topcuoglu, Hariri and Wu, TPDS 13(3), 2002).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from parsim.model.paths import FIRST, Branching, Path
from parsim.plan.strategies import BranchParallel
from parsim.sim.branches.path_prices import PathPrices

MOST_WAYS = 256
"""Ways to share out a fork's branches that are all tried: eight branches on two devices."""
MOST_SWEEPS = 6
"""Sweeps; the second or third one gains nothing in the networks of the catalog."""
MOST_PATHS_TRIED = 200_000
"""Paths timed over all tries, a second or two: of a larger model fewer sweeps are made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The device of each path and their order; seconds of the passes, and what none can beat."""

    paths: tuple[Path, ...]
    devices: tuple[int, ...]
    order: tuple[int, ...]
    seconds: float
    bound: float
    stated: bool

    def nodes(self, device: int) -> frozenset[str]:
        """The operations on a device."""
        pairs = zip(self.paths, self.devices, strict=True)
        return frozenset(name for path, here in pairs if here == device for name in path.nodes)

    def note(self, branching: Branching) -> str:
        """How the branches were placed, and how far that may be from the best."""
        apart = [
            f"{path.name}: {device}"
            for path, parent, device in zip(
                self.paths, branching.parents, self.devices, strict=True
            )
            if device != (0 if parent == FIRST else self.devices[parent])
        ]
        how = "as stated" if self.stated else "the best found, fork by fork"
        beyond = 100 * (self.seconds / self.bound - 1.0)
        moved = ", ".join(apart[:6]) + (f" and {len(apart) - 6} more" if len(apart) > 6 else "")
        return (
            f"branches on devices ({how}): {moved or 'all on device 0'}; no placement takes less "
            f"than the work shared out evenly or the longest way, and this one takes {beyond:.0f} "
            f"% more than that"
        )


def placed(branching: Branching, prices: PathPrices, strategy: BranchParallel) -> Placement:
    """Put the paths of a model on devices, as a plan says or as fast as is found."""
    search = _Search(branching, prices, strategy.devices)
    if strategy.branches is not None:
        given = {branching.numbered(name): device for name, device in strategy.branches}
    else:
        given = search.run()
    devices = branching.devices(given)
    return Placement(
        paths=branching.paths,
        devices=devices,
        order=search.order,
        seconds=search.seconds(devices),
        bound=search.bound,
        stated=strategy.branches is not None,
    )


class _Search:
    """Tries placements; keeps the best."""

    def __init__(self, branching: Branching, prices: PathPrices, devices: int) -> None:
        self.branching, self.devices = branching, devices
        self.takes = [path.takes for path in branching.paths]
        self.asks = [path.asks for path in branching.paths]
        self.forward, self.backward = prices.forward.tolist(), prices.backward.tolist()
        self.message = prices.message.tolist()
        self.left = MOST_PATHS_TRIED
        ahead = self._longest(self.forward)
        back = self._longest(self.backward)
        both = [to_end + to_start for to_end, to_start in zip(ahead, back, strict=True)]
        self.order = tuple(sorted(range(len(both)), key=lambda number: (-both[number], number)))
        self.turn = {number: turn for turn, number in enumerate(self.order)} | {FIRST: FIRST}
        work = sum(self.forward) + sum(self.backward)
        self.bound = max(work / devices, max(ahead) + max(back))

    def _longest(self, seconds: Sequence[float]) -> list[float]:
        """The longest way from each path to the end, itself included."""
        longest = list(seconds)
        for number in reversed(range(len(longest))):
            for source in self.takes[number]:
                if source != FIRST:
                    longest[source] = max(longest[source], seconds[source] + longest[number])
        return longest

    def run(self) -> dict[int, int]:
        """The best that sweeps find, as devices of branches."""
        best: dict[int, int] = {}
        least = self.seconds(self.branching.devices(best))
        groups = list(self._groups())
        for _ in range(MOST_SWEEPS):
            before = least
            for group in groups:
                for way in product(range(self.devices), repeat=len(group)):
                    tried = {**best, **dict(zip(group, way, strict=True))}
                    seconds = self.seconds(self.branching.devices(tried))
                    if seconds < least * (1.0 - 1e-9):
                        best, least = tried, seconds
            if least == before or self.left < 0:
                break
        return best

    def _groups(self) -> Iterator[tuple[int, ...]]:
        """The branches of each fork together, where they are few, then each branch alone."""
        forks: dict[int, list[int]] = {}
        for number in self.branching.branches:
            forks.setdefault(self.branching.parents[number], []).append(number)
        for children in forks.values():
            if len(children) > 1 and self.devices ** len(children) <= MOST_WAYS:
                yield tuple(children)
        yield from ((number,) for number in self.branching.branches)

    def seconds(self, devices: Sequence[int]) -> float:
        """Seconds of one micro-batch's forward and backward."""
        self.left -= 2 * len(devices)
        free, sending = [0.0] * self.devices, [0.0] * self.devices
        self._forward(devices, free, sending)
        return self._backward(devices, free, sending)

    def _forward(self, devices: Sequence[int], free: list[float], sending: list[float]) -> None:
        """Paths in their order, each behind what it reads and what was before it on its device."""
        targets = self._targets(devices)
        arrived: dict[tuple[int, int], float] = {}
        for number in self.order:
            here = devices[number]
            times = (arrived.get((source, here), 0.0) for source in self.takes[number])
            free[here] = max(free[here], *times) + self.forward[number]
            for target in targets.get(number, ()):
                sending[here] = max(sending[here], free[here]) + self.message[number]
                arrived[number, target] = sending[here]

    def _backward(self, devices: Sequence[int], free: list[float], sending: list[float]) -> float:
        """Run backwards in the opposite order: a gradient leaves with its first reader's."""
        first = self._first_readers(devices)
        arrived: dict[int, float] = {}
        for number in reversed(self.order):
            here = devices[number]
            free[here] = max(free[here], arrived.get(number, 0.0)) + self.backward[number]
            for source in first.get(number, ()):
                sending[here] = max(sending[here], free[here]) + self.message[source]
                arrived[source] = max(arrived.get(source, 0.0), sending[here])
        return max(*free, *sending)

    def _targets(self, devices: Sequence[int]) -> Mapping[int, list[int]]:
        """The other devices that read each path, in the order in which they do."""
        targets: dict[int, list[int]] = {}
        for number in self.order:
            for source in self.takes[number]:
                if source != FIRST and devices[source] != devices[number]:
                    known = targets.setdefault(source, [])
                    if devices[number] not in known:
                        known.append(devices[number])
        return targets

    def _first_readers(self, devices: Sequence[int]) -> Mapping[int, list[int]]:
        """The paths of other devices whose gradient leaves behind each path's backward."""
        seen: set[tuple[int, int]] = set()
        first: dict[int, list[int]] = {}
        for number in self.order:
            for source in sorted(self.takes[number], key=self.turn.__getitem__):
                apart = source != FIRST and devices[source] != devices[number]
                if apart and (source, devices[number]) not in seen:
                    seen.add((source, devices[number]))
                    if self.asks[source]:
                        first.setdefault(number, []).append(source)
        return first
