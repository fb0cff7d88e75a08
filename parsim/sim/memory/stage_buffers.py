"""Messages and outputs that stages of torch.distributed.pipelining hold, beside activations.

    inputs      a buffer for each of m micro-batches, for all of the run: those in flight are where
                their activations are counted, the others are here
    gradients   of the stage's output, a buffer for each micro-batch too
    outputs     of the micro-batches in flight (`fwd_cache`), though they were sent
    logits      of all micro-batches, on the last stage (`output_chunks`), until the step is over

Source: PyTorch, torch/distributed/pipelining/stage.py: `_prepare_forward_infra` and
`_prepare_backward_infra` make a `_RecvInfo` for each micro-batch, `forward_one_chunk` keeps
outputs.
Leaves out: stages that hand tensors to another one of their rank, and the merged logits at the end
of a step, when activations are gone.
"""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array
from parsim.cost.job import Job
from parsim.cost.step.stages import sent_bytes
from parsim.cost.step.step import stage_cut
from parsim.plan import PlanTable
from parsim.schedule import Schedule
from parsim.sim.memory.buffers import logit_values
from parsim.sim.step.schedule_costs import on_ranks


def stage_buffers(job: Job, table: PlanTable, in_flight: Array, schedule: Schedule) -> Array:
    """Bytes on each rank, (p, B), with so many micro-batches `in_flight` on each stage, (S, B)."""
    if not (job.software.torch_stages and schedule.pp > 1):
        return np.zeros((schedule.pp, len(table)))
    sent = schedule.in_copies(sent_bytes(job.model, table, stage_cut(job, table)))
    ends = np.array([schedule.is_last(stage) for stage in range(schedule.num_stages)])
    onwards = np.where(ends[:, None], 0.0, sent)
    starts = np.array([schedule.is_first(stage) for stage in range(schedule.num_stages)])
    entering = np.where(starts[:, None], 0.0, np.roll(sent, 1, axis=0))
    count = table.num_microbatches
    each = np.maximum(count - in_flight, 0.0) * entering + (count + in_flight) * onwards
    logits = np.maximum(count - 1.0, 0.0) * logit_values(job, table) * table.precision.activation
    return on_ranks(each + ends[:, None] * logits, schedule)
