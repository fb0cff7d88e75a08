"""What the layers that a stage recomputes as a whole need while they go back.

    backward of a stage   layer 3   layer 2   layer 1              layer 0
                          kept      kept      all is made again    all is made again
                                              3 and 2 are gone     3, 2 and 1 are gone

Of each stage the first layers are recomputed and so go back last: what the others kept of that
micro-batch is free by then.
"""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array, Ints
from parsim.cost.job import Job
from parsim.cost.layer.composed import composed, composed_kept
from parsim.cost.layer.kept.operator_tensors import border_bytes
from parsim.cost.step.layer_table import LayerTable
from parsim.plan import PlanTable


def repeated_beyond(job: Job, table: PlanTable, layers: LayerTable) -> Array:
    """Bytes that such a layer makes again beyond what others of its stage kept, (B,), at least 0.

    max over kinds (whole - input) - (layers of a stage - recomputed ones) x least kept of a layer

    0 of plans that recompute no number of layers.

    Leaves out: that larger stages than the smallest have more other layers, whose bytes are gone.
    """
    software, kinds = job.software, job.model.kinds
    entering = np.stack([border_bytes(table, layer.inputs) for layer in kinds])
    made, kept = np.stack(layers.whole) - entering, np.stack(layers.kept)
    again = made.max(axis=0)
    if software.eager:
        again = again + np.max(np.stack([composed(layer, table, software) for layer in kinds]), 0)
        kept = kept + np.stack([composed_kept(layer, table, software) for layer in kinds])
    beyond = again - _others(job, table) * kept.min(axis=0)
    return np.where(table.recompute_layers > 0, np.maximum(beyond, 0.0), 0.0)


def _others(job: Job, table: PlanTable) -> Ints:
    """Layers of the smallest stage that has any beyond its recomputed ones, (B,)."""
    cut = table.common.stage_layers
    smallest = min(filter(None, cut)) if cut else job.model.num_layers // (table.pp * table.v)
    return np.asarray(np.maximum(smallest - table.recompute_layers, 0))
