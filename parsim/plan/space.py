"""A space of plans to search: allowed values per axis and what all plans share."""

from __future__ import annotations

from dataclasses import dataclass, field

from parsim.plan.record import Plan, Recompute


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSpace:
    """Values that a search may try; None means every legal value, of schedules those of the stack.

    The data-parallel degree follows from the others and the cluster's size, the number of
    micro-batches from the global batch. `common` gives the fields that are not searched
    (precision, bucket size, overlap switches, rank order). Where it has a schedule of the user's
    own (`actions`), all plans have that, with its pp, v and num_microbatches. `memory_margin` is
    the share of the device's memory, beside context and allocator's reserve, that a plan must leave
    free to fit; None: what its predicted peak may be wrong by.
    """

    global_batch_size: int
    tp: tuple[int, ...] | None = None
    pp: tuple[int, ...] | None = None
    cp: tuple[int, ...] | None = None
    ep: tuple[int, ...] | None = None
    microbatch_size: tuple[int, ...] | None = None
    v: tuple[int, ...] | None = None
    schedule: tuple[str, ...] | None = None
    zero_stage: tuple[int, ...] = (0, 1, 2, 3)
    recompute: tuple[Recompute, ...] = (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL)
    sequence_parallel: tuple[bool, ...] = (False, True)
    memory_margin: float | None = None
    common: Plan = field(default_factory=Plan)
