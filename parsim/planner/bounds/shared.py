"""Seconds that no step can be shorter than, wherever its ranks lie: of nodes of several kinds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from parsim.arrays import Array
from parsim.cluster.hardware import Cluster
from parsim.cost.order_statistics import later_than_of_node
from parsim.cost.step.layer_table import LayerTable
from parsim.model.model import Model
from parsim.plan import PlanTable

ROUNDING = 1e-9
"""Share by which a bound may exceed a step by rounding alone."""


def growth(cluster: Cluster) -> float:
    """What every step grows by with its devices, less what rounding may take from a bound."""
    spread = max(system.straggler_spread for system in cluster.systems)
    late = float(later_than_of_node(np.array(cluster.num_devices)))
    return (1.0 + spread * late) * (1.0 - ROUNDING)


def shared_bound(
    tables: Sequence[LayerTable], table: PlanTable, model: Model, devices: Sequence[int]
) -> Array:
    """Seconds that no placement of a plan can be shorter than, (B,).

    M x sum over kinds j of layers (L_j u_j) x tp cp / sum over groups k (N_k s_k),  s_k = max_j
    u_j / l_kj

    M micro-batches in all, L_j layers of l_kj seconds forward and backward on group k's N_k
    devices, u_j those on group 0. A rank is busy for at least (its layers' u) / s_k of its slowest
    kind, and is so for no longer than the step; the sum over all ranks of both sides is the bound,
    whatever the cut and the batches are. Embedding and head are left out.
    """
    each = np.array(
        [
            [
                kind.forward.seconds + kind.backward.plus(again).seconds
                for kind, again in zip(priced.kinds, priced.recomputed, strict=True)
            ]
            for priced in tables
        ]
    )
    layers = np.array([model.blocks.count(kind) for kind in model.kinds], dtype=np.float64)
    work = np.einsum("k,kb->b", layers, each[0])
    speed = (each[0] / each).max(axis=1)
    power = np.array(devices, dtype=np.float64) @ speed
    microbatches = table.num_microbatches * table.dp
    return np.asarray(microbatches * work * table.tp * table.cp / power)
