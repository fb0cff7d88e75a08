"""Rules of expert parallelism: which ranks may share the experts of a layer."""

from __future__ import annotations

from parsim.cluster.hardware import Cluster
from parsim.model.model import Model
from parsim.plan.divisors import divisors, listed
from parsim.plan.record import Plan


def expert_rules(plan: Plan, model: Model, cluster: Cluster) -> str | None:
    """Where a layer's experts go, and which tokens a rank has for them."""
    experts = model.experts
    if experts is None:
        for name in ("ep", "etp"):
            if getattr(plan, name) > 1:
                return f"{name}={getattr(plan, name)}: {model.name} has no experts; use {name}=1"
        return None
    if cluster.groups:
        return (
            f"{model.name} has experts, which are not priced on nodes of several kinds; use "
            f"cluster.system and cluster.nodes, or a dense model"
        )
    if experts.count % plan.ep:
        return (
            f"ep={plan.ep} does not divide num_experts={experts.count}; "
            f"allowed: {listed(divisors(experts.count))}"
        )
    if experts.ffn_hidden_size % plan.etp:
        return (
            f"etp={plan.etp} does not divide expert_ffn_hidden_size={experts.ffn_hidden_size}; "
            f"allowed: {listed(divisors(experts.ffn_hidden_size, 64))}"
        )
    return _expert_ranks(plan)


def _expert_ranks(plan: Plan) -> str | None:
    """Experts are divided over neighbouring ranks of a stage, inside what shares its parameters."""
    if plan.tp > 1 and not plan.sequence_parallel:
        return (
            f"tp={plan.tp} without sequence parallelism: each rank would route all tokens to the "
            f"same experts; use sequence_parallel=true or tp=1"
        )
    data = plan.dp_shard if plan.zero_stage else plan.dp
    name = "dp_shard" if plan.zero_stage else "dp"
    ranks = data * plan.cp * plan.tp
    if ranks % (plan.ep * plan.etp):
        return (
            f"ep={plan.ep} x etp={plan.etp} = {plan.ep * plan.etp} does not divide {name}={data} x "
            f"cp={plan.cp} x tp={plan.tp} = {ranks}; allowed: {listed(divisors(ranks))}"
        )
    order = [axis for axis in plan.rank_order if plan.degree(axis) > 1]
    if plan.ep * plan.etp > 1 and "pp" in order[1:]:
        return (
            f"rank_order={'-'.join(plan.rank_order)}: ep={plan.ep} x etp={plan.etp} needs a "
            f"stage's ranks side by side; put pp first"
        )
    return None
