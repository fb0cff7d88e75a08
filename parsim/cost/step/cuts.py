"""Every layer as a stage of its own, and cuts of a model into stages that balance seconds.

8 layers and a head worth 2.4 of them on 4 stages     even      2 2 2 2   slowest 4.4
balanced  3 2 2 1   slowest 3.4
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from parsim.arrays import Array
from parsim.cost.job import Job
from parsim.cost.step.layer_table import LayerTable, backward_times, forward_times
from parsim.cost.step.stages import even_cut, layer_counts, sent_bytes, stage_parameters
from parsim.plan import Plan, PlanTable


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleLayers:
    """Prices of L layers, (L,): what precedes the first counts to it, the head to the last.

    `forward` and `backward` are seconds of a micro-batch, `parameters` those of one rank, `sent`
    bytes of a micro-batch that go on to the next layer (the last sends none).
    """

    forward: Array
    backward: Array
    parameters: Array
    sent: Array

    @property
    def seconds(self) -> Array:
        """Forward and backward together, (L,)."""
        return self.forward + self.backward


def single_layers(job: Job, plan: Plan) -> SingleLayers:
    """Price each layer alone, under a plan's degrees, micro-batch, precision and recomputation.

    Leaves out: what a stack does between micro-batches, which a stage has once, not once a layer.
    """
    quiet = replace(job, software=replace(job.software, microbatch_overhead=0.0))
    table = PlanTable.of([plan])
    cut = (1,) * job.model.num_layers
    counts, layers = layer_counts(job.model, cut), LayerTable.of(quiet, table)
    return SingleLayers(
        forward=forward_times(quiet, layers, counts).time[:, 0],
        backward=backward_times(quiet, layers, counts).time[:, 0],
        parameters=np.asarray(stage_parameters(job.model, table, counts))[:, 0],
        sent=sent_bytes(job.model, table, cut)[:, 0],
    )


Cut = tuple[int, ...]
"""Layers of each stage."""

SAMPLES = 16
"""Samples of the micro-batch that layers are compared by: enough that launches do not count."""


def balanced_cuts(job: Job, precision: str, stage_counts: Iterable[int]) -> dict[int, Cut]:
    """Find the cut whose slowest stage is fastest, where it is not the even one.

    Args:
        job: model, device, software.
        precision: what layers compute in; they are compared on one device, whole, whatever else a
            plan says.
        stage_counts: numbers of stages, pp x v.

    Of several such cuts it is that whose stages differ least. Each stage has a layer at least.
    Leaves out: messages, memory, chunks of a rank; whether a plan is faster with it, its step says.
    """
    count = job.model.num_layers
    wanted = sorted({number for number in stage_counts if 1 < number <= count})
    if not wanted:
        return {}
    priced = single_layers(job, Plan(microbatch_size=SAMPLES, precision=precision))
    cuts = {number: most_balanced(priced, number) for number in wanted}
    return {number: cut for number, cut in cuts.items() if cut != even_cut(count, number)}


def most_balanced(layers: SingleLayers, stages: int) -> Cut:
    """The cut with the least sum of squares of those whose slowest stage is the fastest."""
    total = np.concatenate([[0.0], np.cumsum(layers.seconds)])
    seconds = total[None, :] - total[:, None]  # of layers first up to end
    first, end = np.indices(seconds.shape)
    seconds = np.where(first < end, seconds, np.inf)
    least = _over_stages(seconds, stages, np.maximum)[0]
    allowed = np.where(seconds <= least * (1.0 + 1e-9), seconds**2, np.inf)
    cuts = _over_stages(allowed, stages, np.add)[1]
    ends = [len(layers.seconds)]
    for cut in reversed(cuts):
        ends.append(int(cut[ends[-1]]))
    return tuple(int(size) for size in np.diff(ends[::-1]))


def _over_stages(each: Array, stages: int, join: np.ufunc) -> tuple[float, list[Array]]:
    """The least that joined costs of consecutive stages can be, and where each stage begins."""
    best = np.full(len(each), np.inf)
    best[0] = 0.0
    cuts = []
    for _ in range(stages):
        joined = join(best[:, None], each)
        cuts.append(joined.argmin(axis=0))
        best = joined.min(axis=0)
    return float(best[-1]), cuts


def cut_words(cut: Cut) -> str:
    """A cut in a few characters: 9-9-8-6, and 7-8x14-7 where neighbours are alike."""
    runs = [(size, len(list(alike))) for size, alike in groupby(cut)]
    return "-".join(
        f"{size}x{count}" if count > 2 else "-".join([str(size)] * count) for size, count in runs
    )
