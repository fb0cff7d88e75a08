"""Forward and backward of a stage whose parameters are sharded (FSDP, ZeRO-3), as programs.

    forward   compute |  w  | embed | layer 1 | layer 2 |w| ...          head
              dp      |root |  g1   |    g2   |    g3     | ...

    backward  compute |  w  | head | layer L |  layer L-1  |w| ...  embed |  w   |
              dp      |root |  gL  |   gL-1  |  rL  | gL-2   | ...  |  r1 | root |

FSDP gathers one layer ahead, and first the root's parameters (embedding and head). Gathers and
reduce-scatters cross the same links, so they share one stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from parsim.arrays import Array
from parsim.cost.streams import COMPUTE, StreamTask, run

KEPT = 3
"""Layers of a run of equal ones that are walked: first, middle and last. Where a layer starts, both
streams start together: it waits for the layer before and for its parameters, and behind these the
stream is free. So all layers in between take what the middle one takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Equal layers in a row: how many, and seconds of each one's kernels and collectives.

    `compute` are seconds of its kernels in one pass, `gather` of gathering its parameters,
    `scatter` of reducing its gradients to their owners.
    """

    count: int
    compute: Array
    gather: Array
    scatter: Array


@dataclass(slots=True, kw_only=True)
class _Program:
    """Tasks in issue order.

    `kernels` are the compute tasks; `middles` the places among these of layers that stand for more,
    and for how many.
    """

    tasks: list[StreamTask] = field(default_factory=list)
    kernels: list[int] = field(default_factory=list)
    middles: list[tuple[int, int]] = field(default_factory=list)

    def wire(self, seconds: Array, *after: int) -> int:
        self.tasks.append(StreamTask(stream="dp", seconds=seconds, after=after))
        return len(self.tasks) - 1

    def kernel(self, seconds: Array, *after: int) -> int:
        self.kernels.append(len(self.tasks))
        self.tasks.append(StreamTask(stream=COMPUTE, seconds=seconds, after=after))
        return len(self.tasks) - 1

    def seconds(self, speed: Array) -> Array:
        """Duration, with the layers that a middle one stands for."""
        ran = run(self.tasks, speed)
        duration = ran.duration
        for index, times in self.middles:
            begin, end = self.kernels[index], self.kernels[index + 1]
            duration = duration + times * (ran.start[end] - ran.start[begin])
        return duration


def _walked(layers: Sequence[Unit], to: _Program, kept: int) -> list[Unit]:
    """The layers of which a program consists, one after another; `to` notes what is left out."""
    walked: list[Unit] = []
    for unit in layers:
        if unit.count > kept:
            # the kernels of a program are the one before all layers, then the layers
            to.middles.append((len(walked) + 2, unit.count - kept))
        walked += [unit] * min(unit.count, kept)
    return walked


def forward_pass(
    first: Array,
    layers: Sequence[Unit],
    last: Array,
    root: Array,
    speed: Array,
    kept: int = KEPT,
) -> Array:
    """Seconds of a stage's forward with its gathers, (B,).

    `first` and `last` are the kernels of embedding and head (0 where the stage has none), `root`
    the gather of their parameters. A layer's gather may run beside the layer before it and not
    earlier: one set of gathered parameters waits.

    Source: PyTorch's FSDP with limit_all_gathers, and FSDP2's implicit prefetch.
    Leaves out: explicit prefetch further ahead, which changes only the ends of a pass; the order
    of layers of different kinds, which stand kind by kind.
    """
    program = _Program()
    program.kernel(first, program.wire(root))
    for unit in _walked(layers, program, kept):
        gathered = program.wire(unit.gather, *program.kernels[-2:-1])
        program.kernel(unit.compute, gathered)
    program.kernel(last)
    return program.seconds(speed)


def backward_pass(
    last: Array,
    layers: Sequence[Unit],
    first: Array,
    roots: tuple[Array, Array],
    speed: Array,
    kept: int = KEPT,
) -> Array:
    """Seconds of a stage's backward with its gathers and reduce-scatters, (B,).

    `layers` stand in forward's order; `roots` are gather and reduce-scatter of embedding and head.
    When a layer's backward begins, the gather of the next one is issued; when it has ended, its
    reduce-scatter. The pass ends with the last reduce-scatter.

    Source: PyTorch's FSDP with backward_prefetch = BACKWARD_PRE, its default, and FSDP2.
    Leaves out: gradients that are summed over micro-batches before they are reduced (no_sync).
    """
    program = _Program()
    coming = program.wire(roots[0])
    units = _walked(layers[::-1], program, kept)
    before = program.kernel(last, coming)
    for index, unit in enumerate(units):
        if index == 0:
            coming = program.wire(unit.gather)
        gathered = coming
        if index + 1 < len(units):
            coming = program.wire(units[index + 1].gather, before)
        before = program.kernel(unit.compute, gathered)
        program.wire(unit.scatter, before)
    program.wire(roots[1], program.kernel(first))
    return program.seconds(speed)
