"""Seconds of moving tokens to experts and back, and the groups of ranks that they move in."""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array
from parsim.cost.collective.collectives import collective_time
from parsim.cost.collective.group_bandwidth import Groups, groups
from parsim.cost.collective.message import Message
from parsim.cost.job import Job
from parsim.cost.layer.mixture.dispatch import dispatch_time
from parsim.cost.layer.mixture.experts import ExpertCoster
from parsim.model.operators import Experts
from parsim.plan import PlanTable

QUANTISED_VALUE = 1.0 + 4.0 / 128.0
"""Bytes of a dispatched value in 8 bit: an fp32 scale for each 128 of them."""


def expert_exchanges(experts: ExpertCoster) -> tuple[Array, Array]:
    """Seconds of one dispatch and of one combine, whatever hides them (`LayerCost.hidden`).

    One dispatcher's transfer over ep ranks (`dispatch.py`). With etp > 1
    what arrives is gathered over etp (scattered, on the way back). A stack may quantise what
    it dispatches, a byte a value and 4 for the scale of 128; outputs come back in 16 bit.

    Source: `dispatch.py`; closed forms in `cost/collective/collectives.py`;
    8-bit dispatch: DeepSeek-V3 (arXiv:2412.19437), section 3.3.3.
    Leaves out: that busy ranks receive more. On B200 a recipe of Megatron-Bridge
    (qwen3_30b_a3b, MXFP8, micro-batch 4) says that HybridEP is 29 % of kernel time: transfers
    and permutations are 31 % here.
    """
    back = _exchange(experts, experts.table.precision.activation)
    small = experts.job.software.quantized_dispatch and experts.how is not None
    return (_exchange(experts, QUANTISED_VALUE) if small else back), back


def _exchange(experts: ExpertCoster, value: float) -> Array:
    """Seconds of moving all of a micro-batch's tokens, of values of so many bytes, once."""
    system, op = experts.job.system, experts.op
    seconds = dispatch_time(
        system,
        experts.job.software.expert_dispatcher,
        tokens=experts.tokens,
        row=op.width * value,
        routing=experts.routing,
        copies=routed_copies(experts.job, experts.table, op, experts.tokens, value),
    )
    # with etp > 1 what has arrived is gathered over the ranks that share an expert
    _, inner = expert_groups(experts.job, experts.table)
    return seconds + collective_time(system, "all_gather", experts.rows * op.width * value, inner)


def routed_copies(
    job: Job, table: PlanTable, op: Experts, tokens: Array, value: float | None = None
) -> Message:
    """A copy of each of a rank's tokens for each of its experts, over expert-parallel ranks.

    `value` is the bytes of one of a token's values, None those of the plan's precision.
    """
    row = op.width * (table.precision.activation if value is None else value)
    where, _ = expert_groups(job, table)
    return Message(kind="all_to_all", axis="ep", size=tokens * op.top_k * row, where=where)


def expert_groups(job: Job, table: PlanTable) -> tuple[Groups, Groups]:
    """(expert-parallel, expert-tensor) groups: neighbours inside a pipeline stage, etp innermost.

    Source: Megatron-Core's order of ranks, tp-ep-dp-pp with the expert degrees in place of tp, cp.
    """
    neighbours, world = np.ones_like(table.ep), table.world_size
    return (
        groups(job.system, size=table.ep, stride=table.etp, world=world),
        groups(job.system, size=table.etp, stride=neighbours, world=world),
    )
