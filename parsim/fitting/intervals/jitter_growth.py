"""Which spread makes steps grow with the number of devices as measured runs do.

`python -m parsim.fitting.intervals.jitter_growth` prints the tables of
reports/decisions/0007-jitter.md.

The catalog's `straggler_spread` is the spread of ranks whose slowest the whole step waits for. Here
the growth is simulated: the mean step over the step without jitter, relative to the same ratio on 8
devices, fitted by a line through zero in E[max of n] - E[max of 8], whose slope is such a spread.
It is done for replicas added to one plan and for the plans of a published weak scaling, and then
for each source of jitter the spread is sought that gives the catalog's.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from parsim.cluster.reader import load_catalog
from parsim.cost.jitter import Jitter
from parsim.cost.job import Job
from parsim.cost.order_statistics import later_than_of_node
from parsim.fitting.constants.families import families
from parsim.fitting.constants.source_cases import load_source
from parsim.plan import Plan
from parsim.report.markdown import markdown_table
from parsim.sim.lateness.monte_carlo import ranks_of
from parsim.sim.lateness.pipelines import priced_plan
from parsim.sim.lateness.study import Study
from parsim.validation.step.case import Case

TABLE = "megatron_sc21_table1_weak_scaling"
DEVICES = (8, 32, 128, 512, 3072)
SPREADS = {
    "speed_spread": (0.005, 0.015, 0.03, 0.05, 0.08, 0.12),
    "noise": (0.01, 0.03, 0.06, 0.12, 0.2),
}
SYSTEMS = ("dgx-a100", "dgx-h100")
"""Systems whose straggler_spread is fitted to steps."""
STEPS = 50


@dataclass(frozen=True, slots=True)
class Point:
    """One plan on so many devices."""

    devices: int
    job: Job
    plan: Plan

    def slowdown(self, jitter: Jitter) -> float:
        """Mean step over the step without jitter."""
        study = _study(self.job, self.plan, ranked=jitter)
        still = study.times(STILL, first=1)[0]
        return float(study.times(jitter).mean() / still)


STILL = Jitter(speed_spread=0.0, noise=0.0, hiccups=0.0)


def _study(job: Job, plan: Plan, ranked: Jitter) -> Study:
    pipelines = priced_plan(job, plan).pipelines
    return Study(pipelines=pipelines, ranks=ranks_of(plan, ranked), steps=STEPS, seed=0)


@cache
def published() -> tuple[Case, ...]:
    """The rows of the weak scaling."""
    sources = (source for family in families() for source in family.sources)
    return load_source(next(source for source in sources if source.table == TABLE)).cases


def replicas() -> tuple[Point, ...]:
    """The smallest published model on tp 8, ever more replicas of it."""
    job = published()[0].job
    plan = Plan(tp=8, microbatch_size=4, num_microbatches=32)
    return tuple(Point(n, _sized(job, n // 8), replace(plan, dp_replicate=n // 8)) for n in DEVICES)


def weak_scaling() -> tuple[Point, ...]:
    """The published plans, 32 to 3,072 devices: tensor, then pipeline, then data parallel."""
    return tuple(Point(case.plan.world_size, case.job, case.plan) for case in published())


def _sized(job: Job, nodes: int) -> Job:
    return replace(job, cluster=replace(job.cluster, num_nodes=nodes))


def growth(points: Sequence[Point], on_eight: Point, jitter: Jitter) -> float:
    """Share of a step added per standard deviation of lateness beyond that of 8 devices."""
    base = on_eight.slowdown(jitter)
    beyond = [point for point in points if point.devices > 8]
    late = later_than_of_node([point.devices for point in beyond])
    added = np.array([point.slowdown(jitter) / base - 1.0 for point in beyond])
    return float((late @ added) / (late @ late))


def needed(spreads: Sequence[float], growths: Sequence[float], target: float) -> str:
    """The spread at which the growth is reached, between two simulated ones."""
    if target > max(growths):
        return f"above {100 * spreads[-1]:g} %"
    return f"{100 * float(np.interp(target, [0.0, *growths], [0.0, *spreads])):.1f} %"


def errors() -> Mapping[str, tuple[float, float, float]]:
    """Mean |error|, largest |error| and bias of the published rows, by what stands for waiting."""
    by_name: dict[str, list[float]] = {"nothing": [], "catalog": [], "jitter": []}
    for case in published():
        measured = case.run.step_time or float("nan")
        study = _study(case.job, case.plan, Jitter())
        still = float(study.times(STILL, first=1)[0])
        catalog = still * (1.0 + float(study.pipelines.costs.straggler[0]))
        late = float(study.times(Jitter()).mean())
        for name, step in zip(by_name, (still, catalog, late), strict=True):
            by_name[name].append(step / measured - 1.0)
    return {
        name: (float(np.mean(np.abs(of))), float(np.max(np.abs(of))), float(np.mean(of)))
        for name, of in by_name.items()
    }


def tables() -> Iterator[str]:
    """Markdown: growth by spread, the spread needed, errors on the published rows."""
    families = {"replicas added": replicas(), "published plans": weak_scaling()}
    reached: dict[tuple[str, str], list[float]] = {}
    rows = list(_growth_rows(families, reached))
    as_spreads = [f"{name}, as a spread" for name in families]
    yield from markdown_table(("source alone, standard deviation", "8 devices", *as_spreads), rows)
    yield ""
    yield from _needed_table(reached)
    yield ""
    yield from markdown_table(
        "what stands for waiting | mean error | largest | bias",
        (
            (name, f"{100 * size:.1f} %", f"{100 * most:.1f} %", f"{100 * bias:+.1f} %")
            for name, (size, most, bias) in errors().items()
        ),
    )


def _growth_rows(
    families: Mapping[str, Sequence[Point]], reached: dict[tuple[str, str], list[float]]
) -> Iterator[tuple[str, ...]]:
    """Growth of 8 devices and of each family by spread; what each one `reached` is noted."""
    eight = families["replicas added"][0]
    for source, spreads in SPREADS.items():
        for spread in spreads:
            jitter = replace(STILL, **{source: spread})  # type: ignore[arg-type]
            cells = [f"+{100 * (eight.slowdown(jitter) - 1):.2f} %"]
            for name, points in families.items():
                grown = growth(points, eight, jitter)
                reached.setdefault((source, name), []).append(grown)
                cells.append(f"{100 * grown:.2f} %")
            yield (f"{source} {100 * spread:g} %", *cells)


def _needed_table(reached: Mapping[tuple[str, str], Sequence[float]]) -> Iterator[str]:
    heads = [f"{source}, {name}" for source, name in reached]
    rows = []
    for system in map(load_catalog().system, SYSTEMS):
        target = system.straggler_spread
        cells = [
            needed(SPREADS[source], growths, target) for (source, _), growths in reached.items()
        ]
        rows.append((f"{100 * target:.2g} % ({system.id})", *cells))
    yield from markdown_table(("straggler_spread", *heads), rows)


if __name__ == "__main__":
    sys.stdout.write("\n".join(tables()) + "\n")
