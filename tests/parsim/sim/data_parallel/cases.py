"""Plans of replicas for tests: GPT-2 small on eight V100 a node, and its strategies."""

from __future__ import annotations

from functools import cache

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.software import software
from parsim.model.reader import load_model_catalog
from parsim.model.transformer import build_transformer
from parsim.plan import Plan
from parsim.plan.strategies import DDP, Strategy
from parsim.sim import Prediction, simulate
from parsim.sim.data_parallel.families.priced import Priced
from parsim.sim.data_parallel.priced_strategy import PricedStrategy
from parsim.sim.data_parallel.workers import Workers
from parsim.sim.recurrence.evaluate import evaluate


@cache
def job(nodes: int = 2, system: str = "dgx-1v") -> Job:
    """GPT-2 small on so many nodes."""
    model = build_transformer(load_model_catalog()["gpt2"])
    cluster = Cluster(system=load_catalog().system(system), num_nodes=nodes)
    return Job(model=model, cluster=cluster, software=software("generic"))


def plan(strategy: Strategy = DDP, workers: int = 16, **values: object) -> Plan:
    """One replica a device."""
    return Plan(dp_replicate=workers, precision="fp16", strategy=strategy, **values)  # type: ignore[arg-type]


def predicted(strategy: Strategy = DDP, nodes: int = 2, **values: object) -> Prediction:
    """What is predicted of a strategy."""
    return simulate(job(nodes), plan(strategy, 8 * nodes, **values))


def priced(strategy: Strategy, nodes: int = 2, **values: object) -> Priced:
    """The program of a strategy with its prices."""
    return priced_strategy(strategy, nodes, **values).priced


def priced_strategy(strategy: Strategy, nodes: int = 2, **values: object) -> PricedStrategy:
    """A strategy with its workers and its prices."""
    evaluation = evaluate(job(nodes), plan(DDP, 8 * nodes, **values))
    return PricedStrategy.of(evaluation, plan(strategy, 8 * nodes, **values))


def workers(strategy: Strategy, nodes: int = 2, **values: object) -> Workers:
    """The workers of a plan."""
    chosen = plan(strategy, 8 * nodes, **values)
    return Workers.of(evaluate(job(nodes), plan(DDP, 8 * nodes, **values)), chosen)
