"""What gloo does on the links: a ring, without NCCL's latencies.

Its calls cost the system's call overhead alone, unless a curve was measured.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from parsim.cluster.hardware import System
from parsim.cost.placed import Groups, inter_bandwidth

Array = NDArray[np.float64]

GLOO = "gloo"


def gloo_bandwidth(system: System, kind: str, where: Groups) -> Array:
    """Bandwidth of S, bytes/s, of each group: min(link, interfaces) / share.

    share of n ranks:
      all-reduce      2 (n - 1) / n     ring
      reduce-scatter  2 (n - 1) / n     torch all-reduces a copy and keeps its part
      reduce          2 (n - 1) / n     ring reduce-scatter, then all parts to the root
      broadcast       ceil(log2 n)      binomial tree: the root sends S so many times
      others          (n - 1) / n

    Source: gloo/reduce.cc and gloo/broadcast.cc; reduce_scatter_tensor_coalesced in torch's
    ProcessGroupGloo.cpp; the measured figures of the system `cpu`.
    Leaves out: copies between flat and separate tensors (all-gather), other algorithms for small
    messages.
    """
    link = system.intra.bandwidth * system.intra.efficiency
    out = np.where(where.nodes > 1, inter_bandwidth(system, where), np.inf)
    ranks = np.maximum(where.size, 2.0)
    if kind == "broadcast":
        share = np.ceil(np.log2(ranks))
    else:
        twice = kind in ("all_reduce", "reduce", "reduce_scatter")
        share = (2.0 if twice else 1.0) * (ranks - 1.0) / ranks
    return np.asarray(np.minimum(link, out) / share)
