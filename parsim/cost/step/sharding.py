"""Seconds of ZeRO-3's collectives in one pass through a whole model that is one stage."""

from __future__ import annotations

from parsim.cost.data.data_parallel import DataParallel
from parsim.cost.job import Job
from parsim.cost.step.parameters import stage_parameters
from parsim.cost.step.sharded_stages import LayerWire
from parsim.cost.step.stages import layer_counts
from parsim.plan import PlanTable


def sharding_times(job: Job, table: PlanTable) -> list[float]:
    """Seconds of the gathers of one forward, and of the gathers and reduce-scatters of a backward.

    Of the table's one plan, as if the model were one stage; nothing of them hidden.
    """
    data, counts = DataParallel.of(job, table), layer_counts(job.model, (job.model.num_layers,))
    parameters = stage_parameters(job.model, table, counts)
    wire = LayerWire.of(data, counts, parameters)
    return [float(wire.modelled_forward[0, 0]), float(wire.modelled_backward[0, 0])]
