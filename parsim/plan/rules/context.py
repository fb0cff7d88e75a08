"""Rules of context parallelism: the attention it needs, and what it must divide."""

from __future__ import annotations

from math import gcd, lcm

from parsim.cluster.hardware import Cluster
from parsim.model.model import Model
from parsim.plan.context import CpCommType
from parsim.plan.divisors import divisors, listed
from parsim.plan.record import Plan
from parsim.plan.rules.tensor import tensor_splits


def context_rules(plan: Plan, model: Model, cluster: Cluster) -> str | None:
    """What context parallelism cuts: two pieces a rank of a causal sequence, from either end."""
    if plan.cp == 1:
        return None
    attention = model.attention
    if attention is None or not attention.fused:
        what = "no attention" if attention is None else "unfused attention"
        return (
            f"cp={plan.cp}: context parallelism needs fused attention, whose blocks can be merged, "
            f"but {model.name} has {what}; use cp=1"
        )
    pieces = plan.cp * lcm(2 if attention.causal else 1, plan.tp if plan.sequence_parallel else 1)
    if model.tokens % pieces:
        return (
            f"cp={plan.cp} cuts seq_len={model.tokens} into {pieces} equal pieces, which it "
            f"cannot be cut into; use a seq_len that is a multiple of {pieces}, or a smaller cp"
        )
    return _heads_shared_out(plan, model) if plan.cp_comm_type is CpCommType.A2A else None


def _heads_shared_out(plan: Plan, model: Model) -> str | None:
    """All-to-alls give each context rank as many heads, of keys and values too."""
    heads = {name: size for name, size in tensor_splits(model).items() if name.endswith("heads")}
    for name, size in heads.items():
        if size % (plan.tp * plan.cp):
            each = max(gcd(*heads.values()) // plan.tp, 1)
            return (
                f"cp_comm_type=a2a gives each rank the same number of heads, but tp={plan.tp} x "
                f"cp={plan.cp} does not divide {name}={size}; allowed cp: "
                f"{listed(divisors(each))}, or cp_comm_type p2p or all_gather"
            )
    return None
