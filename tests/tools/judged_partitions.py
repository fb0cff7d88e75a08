"""Judges PipeDream's 32 reference partitions by runs of their step programs, as a page.

python -m tests.tools.judged_partitions reports/partitions.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from math import isfinite
from pathlib import Path

from parsim.errors import NoFeasiblePlan
from parsim.partition.judge import ROUNDS
from parsim.partition.levels import Level, Options
from parsim.partition.simulated import ImprovedPartition, improved
from tests.parsim.partition.test_rows import ROWS, states

HEAD = f"""# Partitions judged by runs

`python -m tests.tools.judged_partitions reports/partitions.md` wrote this page.

Every reference case of PipeDream's optimizer (its profiles, msr-fiddle/pipedream 7db6a1c), judged
by a run of {ROUNDS} micro-batches a device of the partition's step program: messages and reductions
on the level of links that they cross, fill, drain, old weights. `PipeDream` is the optimum of its
cost model, `parsim` what `parsim partition --mode parsim` finds, both in ms a micro-batch of that
run. Where PipeDream's model leaves messages out (transfers 0), it is judged with them all the same.

| row | profile | devices | GB/s | transfers | memory | PipeDream, ms | parsim, ms | gain | plan |
|---|---|---|---|---|---|---|---|---|---|
"""


def judged(row: dict[str, str]) -> ImprovedPartition | None:
    """What the search finds; None where no partition that it ran fits the memory."""
    pairs = zip(row["units"].split(), row["bandwidth_gb_per_s"].split(), strict=True)
    options = Options(
        transfers=row["transfers"] == "1",
        straight=row["straight"] == "1",
        memory=float(row["memory_bytes"]) if row["memory_bytes"] else None,
    )
    levels = [Level(int(units), 1e9 * float(rate)) for units, rate in pairs]
    try:
        return improved(states(row["profile"]), levels, options)
    except NoFeasiblePlan:
        return None


def lines() -> Iterator[str]:
    """The rows of the table, and what they say together."""
    better = fitting = 0
    for row in ROWS:
        case = [row[name] for name in ("row", "profile", "units", "bandwidth_gb_per_s")]
        case += [row["transfers"], row["memory_bytes"]]
        result = judged(row)
        if result is None:
            yield _line([*case, "", "", "", "none fits with gradients and all versions"])
            continue
        fitting += 1
        better += result.gain > 1.001
        theirs = f"{1e3 * result.of_pipedream:.3f}" if isfinite(result.of_pipedream) else "no fit"
        plan = "-".join(str(stage.replicas) for stage in result.stages)
        yield _line([*case, theirs, f"{1e3 * result.seconds:.3f}", f"{result.gain:.3f}", plan])
    yield f"\n{fitting} of {len(ROWS)} rows fit; on {better} parsim's is faster, on none slower."


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(HEAD + "\n".join(lines()) + "\n", encoding="utf-8")
