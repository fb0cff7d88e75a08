"""A plan's pipeline as PyTorch's list of actions, which torch.distributed.pipelining reads."""

from __future__ import annotations

from parsim.plan import Plan
from parsim.scenario import Scenario
from parsim.schedule import schedule_of


def schedule_csv(scenario: Scenario, plan: Plan) -> str:
    """One row of actions a pipeline rank."""
    return schedule_of(plan).to_csv()
