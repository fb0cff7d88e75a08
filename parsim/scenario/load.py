"""Read a scenario file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from parsim.scenario.record import Scenario


def load_scenario(path: str | Path, overrides: Mapping[str, object] = {}) -> Scenario:
    """Read and check a scenario file.

    Args:
        path: a YAML 1.2 (or JSON) file; paths inside it are relative to its folder.
        overrides: dotted keys to values, `{"plan.tp": 4}`, or to their YAML text as `--set` has it,
            `{"plan.tp": "4"}`; None and `null` take a key away.

    Raises:
        ScenarioError: the file is wrong; the message is one `file:line:column field message` line
            for each mistake, with `--set key=value` in the place of file:line:column where an
            override is at fault.
        PlanError: the plan is not legal for this model and cluster; the message is of that form.
    """
    from parsim.scenario.build import build_scenario
    from parsim.scenario.messages import validated
    from parsim.scenario.positions import read_tree

    tree = read_tree(Path(path), overrides)
    return build_scenario(tree, validated(tree))
