"""What changes in layers that are recomputed as a whole where a plan says how many of a stage are.

    stage    | layer 0   layer 1   layer 2   layer 3 |      recompute_layers: 2
    keeps    | input     input     all       all     |
    repeats  | all       all       nothing   nothing |

The layers behind the first `recompute_layers` do what the plan's `recompute` says. With as many as
the stage has it is full recomputation, layer by layer.

Source: Megatron-Core, `--recompute-method block`: "recompute the input activations of only a set
number of individual Transformer layers per pipeline stage and do the rest without recomputing".
"""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array
from parsim.cost.layer.composed import composed_kept
from parsim.cost.layer.kept.operator_tensors import border_bytes
from parsim.cost.layer.passes import Pass
from parsim.cost.software import Software
from parsim.model.layer import Layer
from parsim.plan import PlanTable


def recomputes_layers(table: PlanTable) -> bool:
    """Whether any of the plans recomputes a number of each stage's layers."""
    return bool((table.recompute_layers != 0).any())


def repeated_more(forward: Pass, repeated: Pass, table: PlanTable) -> Pass:
    """What repeating a whole layer takes beyond what plans repeat of the others, (B,)."""
    if not recomputes_layers(table):
        return Pass.zero(len(table))
    more = forward.plus(repeated, -1.0)
    return Pass(
        kernels=np.maximum(more.kernels, 0.0),
        exposed=np.maximum(more.exposed, 0.0),
        launches=np.maximum(more.launches, 0.0),
    )


def dropped_bytes(software: Software, layer: Layer, kept: Array, table: PlanTable) -> Array:
    """Bytes that a layer keeps less where it keeps its input alone, (B,).

    `kept` (B,) is what the others keep, beside what eager PyTorch composes.
    """
    if not recomputes_layers(table):
        return np.zeros(len(table))
    composed = composed_kept(layer, table, software) if software.eager else 0.0
    return np.asarray(kept + composed - border_bytes(table, layer.inputs))
