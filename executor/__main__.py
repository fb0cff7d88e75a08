"""The command behind `python -m executor`: one rank of `parsim run`, or the check before it."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from executor.faults import HERE, end_with_parent, fatal, finish
from parsim.errors import ParsimError

if TYPE_CHECKING:
    from executor.data import Corpus
    from parsim.scenario import Scenario


def main() -> int:
    """Check (outside torchrun) or run (inside it) a scenario's plan; the exit code."""
    options = read_options()
    if "RANK" in os.environ:
        return as_rank(options)
    try:
        return _work(options)
    except ParsimError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code


def as_rank(options: argparse.Namespace) -> int:
    """One rank's part; a failure ends this process at once, with its report."""
    rank = int(os.environ["RANK"])
    end_with_parent()
    HERE.keep(options.out, rank)
    with fatal(options.out, rank):
        return _work(options)


def _work(options: argparse.Namespace) -> int:
    from executor import compat
    from executor.data import Corpus
    from executor.loss import check_trainable
    from executor.mesh import check_world, probe
    from executor.parallel.refused import (
        check_context,
        check_experts,
        check_parallel,
        check_split_backward,
    )
    from executor.parallel.tensor import check_splits
    from executor.runnable import check_buildable, check_plan_runnable
    from parsim.errors import PlanError
    from parsim.scenario import load_scenario
    from parsim.schedule import schedule_of

    compat.require_compatible()
    scenario = load_scenario(options.scenario, dict(pair.split("=", 1) for pair in options.set))
    report = probe(options.device, nodes=options.nnodes)
    plan = scenario.fixed_plan()
    check_buildable(scenario.spec)
    check_world(plan, report, oversubscribe=options.oversubscribe)
    if scenario.job.mixed:
        raise PlanError(
            f"a cluster of {scenario.job.cluster.words} cannot be run yet: measurement and "
            f"prediction are compared on nodes of one kind; use cluster.system and cluster.nodes"
        )
    check_parallel(plan)
    check_context(plan, scenario.spec, report.kind)
    check_experts(plan, scenario.job.model)
    check_split_backward(plan, schedule_of(plan), experts=scenario.spec.num_experts > 0)
    check_plan_runnable(plan, backend=report.backend)
    check_trainable(scenario.spec)
    check_splits(scenario.spec, plan.tp, sequence_parallel=plan.sequence_parallel)
    if "RANK" not in os.environ:
        corpus = Corpus.load(options.data, tokenizer=options.tokenizer)
        corpus.check(scenario.spec)
        _check_checkpoints(scenario, corpus, options)
        sys.stderr.write(f"{plan.label()} on {report}\n")
        return 0
    from executor.run import run

    run(scenario, report, options)
    return 0


def _check_checkpoints(scenario: Scenario, corpus: Corpus, options: argparse.Namespace) -> None:
    """Refuse to go on from what cannot be gone on from, before anything is started."""
    from executor.checkpoint_folder import start_from
    from executor.run import trained_here

    start_from(
        options.checkpoints or options.out / "checkpoints",
        trained_here(scenario, corpus, options.seed),
        resume=options.resume, restarted=False, every=options.checkpoint_every,
        last_step=options.warmup + options.steps,
    )  # fmt: skip


def read_options() -> argparse.Namespace:
    """The arguments of this process."""
    parser = argparse.ArgumentParser(prog="python -m executor", description=__doc__)
    parser.add_argument("scenario", type=Path)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("build/run"))
    parser.add_argument("--data", type=Path)
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--device")
    parser.add_argument("--nnodes", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--timeout", type=float, default=300.0)
    parser.add_argument("--verify", action="store_true")
    parser.add_argument("--oversubscribe", action="store_true")
    parser.add_argument("--checkpoint-every", type=int, default=0, metavar="N")
    parser.add_argument("--checkpoints", type=Path, metavar="DIR")
    parser.add_argument("--resume", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    finish(main())
