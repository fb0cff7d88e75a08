"""The command behind `python -m executor`: one rank of `parsim run`, or the check before it.

Torch is loaded only once a rank can say why it failed (see `executor.faults.reports`).
"""

from __future__ import annotations

import os
from pathlib import Path

from executor.faults.messages import say
from executor.faults.parent import command
from executor.faults.reports import HERE, fatal
from parsim.launch.options import RunOptions, read_words


def main() -> int:
    """Check (outside torchrun) or run (inside it) a scenario's plan; the exit code."""
    return command(lambda: (as_rank if "RANK" in os.environ else _work)(*read_words()))


def as_rank(scenario: Path, options: RunOptions) -> int:
    """One rank's part; a failure ends this process at once, with its report."""
    rank = int(os.environ["RANK"])
    HERE.keep(options.out, rank)
    with fatal(options.out, rank):
        return _work(scenario, options)


def _work(path: Path, options: RunOptions) -> int:
    """Check the run and the machine, then train as a rank, or say what would run."""
    from executor.devices.machine import probe, use_deterministic
    from executor.run.checks import check_files, check_plan
    from executor.run.run import run
    from executor.run.stage_tasks.run import run_pipeline
    from executor.run.strategy_run import run_strategy
    from executor.torch_internals.self_test import require_compatible
    from parsim.scenario import load_scenario

    require_compatible()
    scenario = load_scenario(path, dict(pair.split("=", 1) for pair in options.overrides))
    if options.deterministic:
        use_deterministic()
    report = probe(options.device, nodes=options.nodes.count)
    check_plan(scenario, report, options)
    if "RANK" in os.environ:
        plan = scenario.fixed_plan()
        runner = run_strategy if plan.strategy.own_program else run
        (run_pipeline if plan.runs_as_tasks else runner)(scenario, report, options)
    else:
        check_files(scenario, options)
        say(f"{scenario.fixed_plan().label()} on {report}")
    return 0
