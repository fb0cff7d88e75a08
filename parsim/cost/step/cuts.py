"""Every layer as a stage of its own, and cuts of a model into stages that balance seconds.

8 layers and a head worth 2.4 of them on 4 stages     even      2 2 2 2   slowest 4.4
                                                      balanced  3 3 2 0   slowest 3
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

import numpy as np

from parsim.arrays import Array
from parsim.cost.data.data_parallel import DataParallel
from parsim.cost.data.update import update_time
from parsim.cost.job import Job
from parsim.cost.step.balance import most_balanced
from parsim.cost.step.chain import Chain, Cut
from parsim.cost.step.layer_table import LayerTable, backward_times, forward_times, weight_times
from parsim.cost.step.plan_layers import layers_of
from parsim.cost.step.stages import layer_counts, sent_bytes, stage_parameters, stage_weights
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
    table, cut = PlanTable.of([plan]), (1,) * job.model.num_layers
    forward, backward = _passes(job, table, cut)
    counts = layer_counts(job.model, cut)
    return SingleLayers(
        forward=forward[:, 0],
        backward=backward[:, 0],
        parameters=np.asarray(stage_parameters(job.model, table, counts))[:, 0],
        sent=sent_bytes(job.model, table, cut)[:, 0],
    )


def _passes(job: Job, table: PlanTable, cut: Cut) -> tuple[Array, Array]:
    """(forward, backward) seconds of stages that hold a layer each or none, (S, B)."""
    layers, counts = _without_host(job, table), layer_counts(job.model, cut)
    forward, backward = (times(job, layers, counts) for times in (forward_times, backward_times))
    return forward.time, backward.time


def _without_host(job: Job, table: PlanTable) -> LayerTable:
    """The layers without the host's seconds of a micro-batch."""
    none = np.zeros(len(table))
    return replace(layers_of(job, table), pause=none, calls=none)


PARTS = 8
"""Parts of a layer that seconds are rounded to, so that plans that nearly agree have one cut."""

SHARES = 32
"""Parts that shares of forwards and of weights' gradients are rounded to, for the same reason."""

CUTS_KEPT = 1 << 15
"""Pipelines whose cuts are remembered: settings of a search ask for the same ones again."""

BACKWARD = 2.0
"""Backward over forward: two products for each of the forward's."""

Ranks = tuple[int, ...]
"""The rank of each stage, those of a second copy of the model behind the first's."""


class PlacedStages(NamedTuple):
    """Stages to cut a plan's layers into: how many a copy of the model has, and all their ranks.

    `weights` of stages are those of `short_weights`, or none.
    """

    stages: int
    ranks: Ranks
    weights: tuple[float, ...] = ()


def short_weights(plan: Plan) -> tuple[float, ...]:
    """How much each stage of 1F1B counts where micro-batches are no more than stages, else ().

    With x_s of the layers on stage s the first gradient is back on it after F + B of the whole
    chain; m - 1 backwards are left, and the forwards that are not in its warm-up of p - 1 - s:

        step >= F + B + x_s ((m - 1) B + max(0, m - p + s) F)

    Source: the schedule's order; on 2 to 4 stages it is met within 4 % (B = 2 F, no messages).
    """
    p, m = plan.pp, plan.num_microbatches
    if plan.schedule != "1f1b" or plan.actions is not None or not 1 < m <= p:
        return ()
    return tuple((m - 1) * BACKWARD + max(0, m - p + stage) for stage in range(p))


class Shares(NamedTuple):
    """How the seconds of a chain's layers are divided: forward, backward of inputs, of weights."""

    forward: float
    inner: float
    weight: float


THIRDS = Shares(1 / 3, 1 / 3, 1 / 3)
"""One product each, and two in a whole backward."""


class Items(NamedTuple):
    """What cuts of a plan share out: the `seconds` (N,) of its layers and of ends that are apart.

    `apart` says of embedding and head whether they may be stages by themselves; if not, they are
    part of the first and the last layer. `layers` are those that a cut counts. `seconds` are bytes
    of an array: many plans, also of other settings, have equal ones. `shares` divide them.
    `parameters` (N,) are the items' shares of all parameters, bytes of an array too.
    """

    seconds: bytes
    layers: int
    apart: tuple[bool, bool]
    shares: Shares = THIRDS
    parameters: bytes = b""

    @classmethod
    def of(cls, job: Job, table: PlanTable) -> tuple[list[Items], Array]:
        """Price the layers of one device's share of each plan, rounded to parts of a layer.

        Beside them stand the seconds of all of a plan's layers, (B,).
        """
        model = job.model
        apart = bool(model.before and model.behind), bool(model.behind)
        cut = (0,) * apart[0] + (1,) * model.num_layers + (0,) * apart[1]
        forward, backward = _passes(job, _alone(table), cut)
        each = (forward + backward).T
        unit = each[:, apart[0] : len(cut) - apart[1]].mean(axis=1, keepdims=True) / PARTS
        shared = _shares(job, table, cut)
        rounded = [seconds.tobytes() for seconds in np.rint(each / unit)]
        items = [cls(seconds, model.num_layers, apart, *shared) for seconds in rounded]
        return items, each.sum(axis=1)

    @property
    def number(self) -> int:
        """How many items there are, N."""
        return self.layers + sum(self.apart)

    def in_parts(self, parts: int) -> Items:
        """These items in such parts of a layer, fewer than `PARTS`."""
        seconds = np.rint(np.frombuffer(self.seconds) * parts / PARTS)
        return self._replace(seconds=seconds.tobytes())

    def of_items(self, cut: Cut) -> Cut:
        """Items of each stage, of its layers; an end that is apart is one."""
        return self._with_ends(cut, 1)

    def of_layers(self, cut: Cut) -> Cut:
        """Layers of each stage, of its items."""
        return self._with_ends(cut, -1)

    def _with_ends(self, cut: Cut, more: int) -> Cut:
        first, *inner, last = cut
        return (first + more * self.apart[0], *inner, last + more * self.apart[1])


def _shares(job: Job, table: PlanTable, cut: Cut) -> tuple[Shares, bytes]:
    """How layers' seconds are divided, in parts of `SHARES`, and all parameters, on one device.

    All plans of a job have those of one sample. Leaves out: that they hang a little on a plan's
    degrees; cuts would differ by it.
    """
    ones = np.ones(1, dtype=np.int64)
    first = replace(table.take(ones - 1), tp=ones, cp=ones, ep=ones, etp=ones, microbatch_size=ones)
    single = _alone(first)
    counts = layer_counts(job.model, cut)
    forward, backward = (float(each.sum()) for each in _passes(job, single, cut))
    weight = float(weight_times(job, _without_host(job, single), counts).sum())
    ahead = round(forward / (forward + backward) * SHARES) / SHARES
    behind = round(weight / backward * SHARES) / SHARES * (1.0 - ahead)
    parameters = stage_parameters(job.model.updated, single, counts)[:, 0]
    whole = np.asarray(parameters / max(parameters.sum(), 1.0))
    return Shares(ahead, 1.0 - ahead - behind, behind), whole.tobytes()


def update_seconds(job: Job, table: PlanTable) -> Array:
    """Seconds in which one device's share of all layers is updated, (B,).

    Leaves out: the host's, which each rank spends whatever it holds.
    """
    counts = layer_counts(job.model, (job.model.num_layers,))
    weights, data = stage_weights(job.model.updated, table, counts), DataParallel.of(job, table)
    nothing = update_time(data, np.zeros_like(weights.parameters))
    return np.asarray((update_time(data, *weights) - nothing)[0])


def balanced_cuts(seconds: bytes, placed: PlacedStages) -> tuple[Cut, ...]:
    """Find the cuts into items that make a pipeline's busiest rank fastest.

    First comes the cut that looks at a rank's stages together (`balance.py`), then the one that
    looks at each alone, if its largest stage is smaller or its stages are more alike: where few
    micro-batches pass between two chunks of a rank, they wait for stages. Last comes the one for
    few micro-batches under 1F1B. Embedding and head may be stages by themselves. Leaves out:
    messages, memory, what is computed again; whether a plan is faster with a cut, its step says.
    """
    cuts = _by_ranks(seconds, placed.stages, placed.ranks)
    if placed.weights:
        chain = Chain.on(np.frombuffer(seconds), placed.ranks, placed.stages)
        cuts = (*cuts, chain.balanced(placed.weights))
    return cuts


@lru_cache(maxsize=CUTS_KEPT)
def _by_ranks(seconds: bytes, stages: int, ranks: Ranks) -> tuple[Cut, ...]:
    """The cut that balances ranks, and that which balances stages where these are more alike."""
    chain = Chain.on(np.frombuffer(seconds), ranks, stages)
    together, alone = most_balanced(chain), chain.alone_balanced
    smoother = chain.unevenness(alone) < chain.unevenness(together)
    return (together, alone) if smoother else (together,)


def _alone(table: PlanTable) -> PlanTable:
    """Plans of one pipeline rank with as little beside it as there may be: replicas if experts are.

    All that layers take is then in their columns, and nothing is computed again.
    """
    ones, none = np.ones_like(table.tp), np.zeros_like(table.tp)
    whole = table.ep * table.etp == 1
    return replace(
        table,
        pp=ones,
        v=ones,
        dp_replicate=np.where(whole, 1, table.dp_replicate),
        dp_shard=np.where(whole, 1, table.dp_shard),
        num_microbatches=ones,
        zero_stage=none,
        recompute=none,
        recompute_layers=none,
        offload_layers=none,
        schedule=none,
        schedules=("1f1b",),
        settings=(replace(table.common, stage_layers=None, actions=None, schedule="1f1b"),),
    )


def cut_words(cut: Cut) -> str:
    """A cut in a few characters: 9-9-8-6, and 7-8x14-7 where neighbours are alike."""
    runs = [(size, len(list(alike))) for size, alike in groupby(cut)]
    return "-".join(
        f"{size}x{count}" if count > 2 else "-".join([str(size)] * count) for size, count in runs
    )
