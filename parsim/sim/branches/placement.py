"""Which device each path of a model goes to, in which order, by seconds and bytes of paths.

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

Seconds and bytes of a model's paths, from those of a whole model on one device.

    seconds of a path = its share of all paths' seconds, of those that one device takes for them all

so that a model whose paths are all on one device takes, and holds, what one device does.

Leaves out: that kernels of paths on one device might run at once there (one stream runs them all).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from parsim.arrays import Array
from parsim.cost.collective.collectives import p2p_time
from parsim.cost.layer.kept.activations import kept_bytes, kept_policy
from parsim.cost.layer.kept.operator_tensors import border_bytes
from parsim.cost.layer.layers import LayerCoster
from parsim.cost.layer.passes import LayerCost
from parsim.cost.step.layer_table import raced
from parsim.model.layer import Layer
from parsim.model.operators import Loss
from parsim.model.paths import FIRST, Branching, Path
from parsim.plan.strategies import BranchParallel
from parsim.sim.recurrence.evaluate import Evaluation


@dataclass(frozen=True, slots=True, kw_only=True)
class PathPrices:
    """Seconds of a micro-batch's passes on each path, bytes of its output and of what it keeps.

    `forward` and `backward` are the seconds, `leaves` the bytes of the output, `kept` those that
    stay for backward, `parameters` the number of them. `logits` are the values of a sample that its
    losses choose among, `message` the seconds of its output to another device: of its node, where a
    group of devices fits one.
    """

    forward: Array
    backward: Array
    leaves: Array
    kept: Array
    parameters: Array
    logits: Array
    message: Array

    @classmethod
    def of(cls, evaluation: Evaluation, paths: tuple[Path, ...], devices: int) -> PathPrices:
        """Price the paths of a plan of whole models, each of which so many devices will hold."""
        step = evaluation.step
        job, table, layers = step.job, step.pricing.table, step.pricing.layers(0)
        coster, policy = LayerCoster(job, table), kept_policy(job.software)
        known: dict[Layer, LayerCost] = {}
        for path in paths:
            if path.layer not in known:
                known[path.layer] = _cost(coster, path.layer)
        costs = [known[path.layer] for path in paths]
        seconds = [
            [float(raced(job, layers, part)[0]) for part in (cost.forward, cost.backward)]
            for cost in costs
        ]
        ahead, back = np.array(seconds).reshape(-1, 2).T
        kept = np.array([float(kept_bytes(path.layer, table, policy)[0]) for path in paths])
        leaves = np.array([float(border_bytes(table, path.leaves)[0]) for path in paths])
        wide = devices > job.system.devices_per_node
        return cls(
            forward=ahead * (float(step.costs.forward[0, 0]) / ahead.sum()),
            backward=back * (float(step.costs.backward[0, 0]) / back.sum()),
            leaves=leaves,
            kept=kept,
            parameters=np.array([float(path.layer.parameters) for path in paths]),
            logits=np.array([_logits(path.layer) for path in paths]),
            message=p2p_time(job.system, leaves, crosses=wide, sharing=1.0),
        )


def _cost(coster: LayerCoster, layer: Layer) -> LayerCost:
    return coster.cost(layer) if layer.operators else LayerCost.zero(len(coster.table))


def _logits(layer: Layer) -> float:
    """Values of a sample among which the losses of a layer choose."""
    return float(sum(op.tokens * op.vocab_size for op in layer.operators if isinstance(op, Loss)))


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
