"""What a stack exchanges between ranks, and what it runs beside."""

from __future__ import annotations

from dataclasses import dataclass

from parsim.plan.names import CpCommType


@dataclass(frozen=True, kw_only=True)
class ExchangeHabits:
    """What a stack exchanges between ranks, and what it runs beside."""

    # Share of data-parallel collectives that are issued beside compute; what they take from it is
    # the hardware's (`cost/layer/interference.py`).
    overlap: float
    # Whether gradients are reduced beside backward where the plan does not say.
    overlap_grad_reduce: bool
    # Whether parameters are gathered beside forward where the plan does not say.
    overlap_param_gather: bool
    # Whether stages send and receive beside compute where the plan does not say.
    overlap_p2p: bool
    # Whether each tensor rank sends its share of a border where the plan does not say.
    scatter_p2p: bool
    # Whether products are cut into chunks beside which the collectives of tensor parallelism run
    # (`cost/layer/tensor_exchanges.py`).
    tp_overlap: bool
    # Whether copy engines carry those chunks from rank to rank, in 16 bit where they are gathered.
    tp_rings: bool
    # Share of the collectives of tensor parallelism in backward that are issued beside a whole
    # product.
    tp_overlap_backward: float
    # Whether logits are gathered, so that every tensor rank has the loss of all words.
    whole_logits: bool
    # How context-parallel ranks exchange keys and values where the plan does not say
    # (`plan/names.py`).
    cp_comm_type: CpCommType
    # Whether each context-parallel rank gets one piece from either end of a causal sequence.
    context_balanced: bool
