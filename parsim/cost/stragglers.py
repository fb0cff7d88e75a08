"""What a step takes longer because all of its devices wait for the slowest of them."""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array, Ints
from parsim.cost.job import Job
from parsim.cost.order_statistics import expected_maximum, last_of_node, later_than_of_node


def straggler_growth(job: Job, *, world: Ints, teams: Ints, dp: Ints, compute: str) -> Array:
    """Growth of the step with devices beyond 8, and with replicas, (B,).

        sigma (E[max of n] - E[max of 8]) + spread E[max of dp] + rank_spread E[max of teams]
                                                                     of standard normals
    n ranks wait for the slowest; fitted constants of kernels hold what 8 wait. sigma is the
    system's, `spread` the stack's between data-parallel replicas of such a model. A calibration
    times kernels on ranks that do not wait for each other: there the system's `rank_spread` is what
    the `teams` (at most 8) wait, each the tensor and context ranks of one replica's stage, which
    meet in every layer and were timed together.

    Source: order statistics; sigma fitted to public multi-node runs (reports/fit.md). Equal GPUs
    of one cluster differ by 1.5 to 4 % (arXiv:2208.11035). A logarithm, as delays with an
    exponential tail would have it, grows too slowly to 128 and too fast beyond 512 devices.
    """
    spread = job.software.spread_of_replicas(compute, images=job.model.tokens == 1)
    waited = spread * expected_maximum(dp) if spread else 0.0
    if job.system.rank_spread:
        waited = waited + job.system.rank_spread * last_of_node(teams)
    return np.asarray(job.system.straggler_spread * later_than_of_node(world) + waited)
