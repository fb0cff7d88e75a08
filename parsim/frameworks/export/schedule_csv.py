"""A plan's pipeline as PyTorch's list of actions, which torch.distributed.pipelining reads."""

from __future__ import annotations

from parsim.frameworks.export.rules import check_rules
from parsim.plan import Plan
from parsim.scenario import Scenario
from parsim.schedule import schedule_of


def schedule_csv(scenario: Scenario, plan: Plan) -> str:
    """One row of actions a pipeline rank.

    Raises:
        PlanError: the schedule has what PyTorch's lists have no word for.
    """
    schedule = schedule_of(plan)
    moved = f"schedule {schedule.name}; PyTorch has no actions that move activations between ranks"
    check_rules("csv", plan, [(schedule.limit is not None, moved)])
    return schedule.to_csv()
