"""What a cut shares out: the seconds of a plan's layers, and of ends that may be apart."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from parsim.arrays import Array
from parsim.cost.job import Job
from parsim.cost.step.chain import Cut
from parsim.cost.step.cuts.single_layers import layer_passes, without_host
from parsim.cost.step.stage_passes import weight_times
from parsim.cost.step.stages import layer_counts, stage_parameters
from parsim.plan import PlanTable

PARTS = 8
"""Parts of a layer that seconds are rounded to, so that plans that nearly agree have one cut."""

SHARES = 32
"""Parts that shares of forwards and of weights' gradients are rounded to, for the same reason."""


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
        forward, backward = layer_passes(job, _alone(table), cut)
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
    forward, backward = (float(each.sum()) for each in layer_passes(job, single, cut))
    weight = float(weight_times(job, without_host(job, single), counts).sum())
    ahead = round(forward / (forward + backward) * SHARES) / SHARES
    behind = round(weight / backward * SHARES) / SHARES * (1.0 - ahead)
    parameters = stage_parameters(job.model.updated, single, counts)[:, 0]
    whole = np.asarray(parameters / max(parameters.sum(), 1.0))
    return Shares(ahead, 1.0 - ahead - behind, behind), whole.tobytes()


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
