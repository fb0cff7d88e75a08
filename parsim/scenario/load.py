"""Read a scenario file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from parsim.arguments import PATH, check_kind
from parsim.scenario.record import Scenario


def load_scenario(path: str | Path, overrides: Mapping[str, object] = {}) -> Scenario:
    """Read and check a scenario file.

    Args:
        path: a YAML 1.2 (or JSON) file; paths inside it are relative to its folder.
        overrides: dotted keys to values, `{"plan.tp": 4}`, or to their YAML text as `--set` has it,
            `{"plan.tp": "4"}`; None and `null` take a key away.

    Raises:
        InputError: the path is none, or the overrides are no mapping.
        ScenarioError: the file is wrong; the message is one `file:line:column field message` line
            for each mistake, with `--set key=value` in the place of file:line:column where an
            override is at fault.
        PlanError: the plan is not legal for this model and cluster; the message is of that form.
    """
    from parsim.scenario.build import build_scenario
    from parsim.scenario.messages import validated
    from parsim.scenario.positions import read_tree

    check_kind("path", path, PATH, "the path of a scenario file")
    takes = "a mapping of dotted keys to values, e.g. {'plan.tp': 2}"
    check_kind("overrides", overrides, Mapping, takes)
    for name in overrides:
        check_kind("a key of overrides", name, str, "a dotted key such as 'plan.tp'")
    tree = read_tree(Path(path), overrides)
    return build_scenario(tree, validated(tree))


def stated_ranks(path: Path, overrides: Mapping[str, object] = {}) -> int:
    """Ranks on each node that the plan block of a file spells out, however many devices there are.

    0 where it has none, or they do not fill the nodes evenly. Its degrees are not checked.
    """
    from parsim.scenario.positions import read_tree

    data = read_tree(path, overrides).data
    plan, cluster = data.get("plan"), data.get("cluster")
    if not isinstance(plan, dict) or not isinstance(cluster, dict):
        return 0
    names = ("tp", "pp", "cp", "dp", "dp_replicate", "dp_shard")
    degrees = [plan[name] for name in names if name in plan] + [cluster.get("nodes", 1)]
    if not all(isinstance(degree, int) and degree > 0 for degree in degrees):
        return 0
    ranks, nodes = math.prod(degrees[:-1]), degrees[-1]
    return 0 if ranks % nodes else ranks // nodes
