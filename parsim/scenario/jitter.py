"""The jitter block: how ranks and steps differ, for `parsim simulate --jitter-steps`."""

from __future__ import annotations

from parsim.cost.jitter import Jitter
from parsim.plan import Plan
from parsim.scenario.positions import Tree
from parsim.scenario.schema import ScenarioFile


def build_jitter(tree: Tree, file: ScenarioFile, plan: Plan | None) -> Jitter:
    """The block as a record; what it leaves out has a default with a source.

    Raises:
        ScenarioError: a slow rank is no number, or none of the plan's ranks.
    """
    given = file.jitter.given()
    stated = frozenset(given)
    slow = given.pop("slow_ranks", {})
    ranks = tuple(sorted((_number(tree, name), factor) for name, factor in slow.items()))
    jitter = Jitter(**given, slow_ranks=ranks, stated=stated)
    if plan is not None:
        with tree.located("jitter"):
            jitter.check(plan.world_size)
    return jitter


def _number(tree: Tree, name: str) -> int:
    if not (name.isascii() and name.isdigit() and name == str(int(name))):
        raise tree.error(
            ("jitter", "slow_ranks", name),
            "is no rank; write its number and how much slower it is, e.g. 'slow_ranks: {17: 1.2}'",
        )
    return int(name)
