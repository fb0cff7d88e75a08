r"""Where a graph of layers can be cut: its states, each the layers that a first part has.

    a - b - d        states: {a} {a b} {a c} {a b c} {a b c d}
     \ c /           cut behind {a b}: stage 1 has a and b, and sends what a and b give to others

A chain of n layers has n states. A state before another is contained in it and reached from it by
adding layers. Source: PipeDream's antichains (SOSP 2019, section 3.1, and its optimizer).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from parsim.arrays import Array, Flags
from parsim.errors import InputError
from parsim.partition.layer_graph import LayerGraph

MOST_STATES = 4000
"""More would take minutes: graphs with many parallel branches have exponentially many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class States:
    """n states, the smallest first; arrays are (n,), `before` (n, n).

    `seconds`, `activations` and `parameters` are those of all layers of a state, `output` the bytes
    that go on from its last layers. `before[j, k]` says whether state k lies before state j,
    `inside[j, l]` whether state j has layer l.
    """

    seconds: Array
    activations: Array
    parameters: Array
    output: Array
    before: Flags
    inside: Flags

    def __len__(self) -> int:
        """How many states there are, n."""
        return len(self.seconds)

    def layers_between(self, first: int, end: int) -> list[int]:
        """The layers of states `first` up to but without `end`, in an order of computation."""
        new = self.inside[end - 1].copy()
        if first:
            new &= ~self.inside[first - 1]
        numbers = np.flatnonzero(new)
        order = np.argsort(self.inside.argmax(axis=0)[numbers], kind="stable")
        return [int(number) for number in numbers[order]]


def states_of(graph: LayerGraph) -> States:
    """All states of a graph.

    Raises:
        InputError: there are more than `MOST_STATES`.
    """
    behind, past = _neighbours(graph)
    steps = _reachable(behind, past, _first(past))
    masks = sorted(steps, key=lambda mask: (mask.bit_count(), mask))
    number = {mask: i for i, mask in enumerate(masks)}
    ancestors = [0] * len(masks)
    for i, mask in enumerate(masks):
        for later in steps[mask]:
            ancestors[number[later]] |= ancestors[i] | 1 << i
    inside = _rows(masks, len(graph.layers))
    last = _rows([_sending(mask, past, behind) for mask in masks], len(graph.layers))
    activations = np.array([layer.activations for layer in graph.layers])
    return States(
        seconds=inside @ np.array([layer.seconds for layer in graph.layers]),
        activations=inside @ activations,
        parameters=inside @ np.array([layer.parameters for layer in graph.layers]),
        output=last @ activations,
        before=_rows(ancestors, len(masks)) > 0,
        inside=inside > 0,
    )


def _neighbours(graph: LayerGraph) -> tuple[list[list[int]], list[int]]:
    """The layers behind each layer, and a mask of all that come before it, itself among them."""
    count = len(graph.layers)
    behind: list[list[int]] = [[] for _ in range(count)]
    waits = [0] * count
    for first, second in graph.edges:
        behind[first].append(second)
        waits[second] += 1
    past = [1 << i for i in range(count)]
    ready = [i for i in range(count) if not waits[i]]
    while ready:
        layer = ready.pop()
        for follower in behind[layer]:
            past[follower] |= past[layer]
            waits[follower] -= 1
            if not waits[follower]:
                ready.append(follower)
    return behind, past


def _first(past: list[int]) -> int:
    """The state of the first layer in the file that waits for none."""
    return next(mask for number, mask in enumerate(past) if mask == 1 << number)


def _reachable(behind: list[list[int]], past: list[int], first: int) -> dict[int, set[int]]:
    """From each state the states that one more layer, with all before it, makes of it."""
    steps: dict[int, set[int]] = {}
    states = [first]
    while states:
        mask = states.pop()
        if mask in steps:
            continue
        if len(steps) >= MOST_STATES:
            raise InputError(
                f"the graph has more than {MOST_STATES} places to cut; join layers of parallel "
                f"branches into one"
            )
        layers = (i for i in range(len(behind)) if mask >> i & 1)
        more = {mask | past[f] for i in layers for f in behind[i] if not mask >> f & 1}
        steps[mask] = more
        states.extend(more)
    return steps


def _sending(mask: int, past: list[int], behind: list[list[int]]) -> int:
    """The layers of a state whose output goes on.

    Its last layers, and those before one of them whose output another path takes, also where that
    path ends in the state (as PipeDream's optimizer counts).
    """
    members = [i for i in range(len(past)) if mask >> i & 1]
    inner = 0
    for i in members:
        inner |= past[i] & ~(1 << i)
    sending = mask & ~inner
    for last in members:
        if sending >> last & 1 and not inner >> last & 1:
            for i in members:
                if past[last] >> i & 1 and any(not past[last] >> f & 1 for f in behind[i]):
                    sending |= 1 << i
    return sending


def _rows(masks: list[int], count: int) -> Array:
    """Masks as rows of zeros and ones, (masks, count)."""
    size = -(-count // 8)
    packed = b"".join(mask.to_bytes(size, "little") for mask in masks)
    table = np.frombuffer(packed, dtype=np.uint8).reshape(len(masks), size)
    return np.unpackbits(table, axis=1, bitorder="little")[:, :count].astype(np.float64)
