"""Changes of a tensor's layout ("boxing"): the collective of each on one axis, and its bytes.

    from    to     forward            its gradient goes
    S       B      all-gather         P to S   reduce-scatter
    P       B      all-reduce         P to B   all-reduce
    P       S      reduce-scatter     S to B   all-gather
    S(i)    S(j)   all-to-all         S(j) to S(i)
    B       S      free: a slice      S to P   free: zeros around it
    B, S    P      free               B to B, S

A change on several axes is a chain of changes of one axis each. Where two axes cut one dimension,
the inner one's parts lie within the outer one's, so an outer axis may change only while no inner
one cuts the same dimension; of all chains the cheapest is taken.

Source: OneFlow (arXiv:2110.15032), table 2; Megatron-LM's f and g are two rows of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Literal

from parsim.layout.mesh import B, NdSbp, Sbp

Collective = Literal["all_gather", "all_reduce", "reduce_scatter", "all_to_all"]

MOST_CHAINS = 4_096
"""Layouts that a chain may be looked for among: those of five axes."""


@dataclass(frozen=True, slots=True)
class Step:
    """One axis of a tensor changes from `source` to `target`."""

    axis: int
    source: Sbp
    target: Sbp

    @property
    def collective(self) -> Collective | None:
        """What the devices of the axis do together; None: each does its part alone."""
        return collective_of(self.source, self.target)

    @property
    def backward(self) -> Step:
        """How the gradient changes."""
        return Step(self.axis, self.target.dual, self.source.dual)


def collective_of(source: Sbp, target: Sbp) -> Collective | None:
    """The collective that changes a tensor on one axis; None where nothing is sent."""
    if source in (target, B) or target.kind == "P":
        return None
    if source.kind == "P":
        return "all_reduce" if target == B else "reduce_scatter"
    return "all_gather" if target == B else "all_to_all"


def collective_bytes(step: Step, whole: float, before: float, after: float) -> float:
    """S of a step's collective, as nccl-tests counts it.

    Args:
        step: which.
        whole: bytes of the tensor.
        before: the share of them that a device has before the step.
        after: that it has behind it.
    """
    kind = step.collective
    if kind is None:
        return 0.0
    return whole * (after if kind == "all_gather" else before)


def share(signature: NdSbp, sizes: tuple[int, ...]) -> float:
    """The share of a tensor's values that a device has."""
    fraction = 1.0
    for part, n in zip(signature, sizes, strict=True):
        fraction /= n if part.splits else 1
    return fraction


Price = Callable[[Step, float, float], float]
"""Seconds of a step, from the shares of the tensor that a device has before and behind it."""


def chain(source: NdSbp, target: NdSbp, sizes: tuple[int, ...], price: Price) -> tuple[Step, ...]:
    """The cheapest steps from one layout to another; of equally cheap ones the fewest."""
    if source == target:
        return ()
    heap: list[tuple[float, int, int, NdSbp, tuple[Step, ...]]] = [(0.0, 0, 0, source, ())]
    done: set[NdSbp] = set()
    number = 0
    while heap and len(done) < MOST_CHAINS:
        cost, length, _, here, steps = heappop(heap)
        if here == target:
            return steps
        if here in done:
            continue
        done.add(here)
        for step, there in _neighbours(here, source, target):
            number += 1
            seconds = price(step, share(here, sizes), share(there, sizes))
            heappush(heap, (cost + seconds, length + 1, number, there, (*steps, step)))
    raise RuntimeError(f"no chain of steps from {source} to {target}")


def _neighbours(here: NdSbp, source: NdSbp, target: NdSbp) -> Iterator[tuple[Step, NdSbp]]:
    """Every layout that differs on one axis, between what the axis had and what it is to have."""
    for axis, part in enumerate(here):
        inner = here[axis + 1 :]
        if part.splits and part in inner:
            continue
        options = {source[axis], target[axis], B, *(s for s in (*source, *target) if s.splits)}
        for option in sorted(options - {part}):
            if option.kind == "P" and option != target[axis]:
                continue
            if option.splits and option in inner:
                continue
            yield Step(axis, part, option), (*here[:axis], option, *inner)
