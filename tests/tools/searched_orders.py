"""Orders that are searched for against all named ones, on 270 random pipelines.

    python -m tests.tools.searched_orders reports/orders.md

A pipeline has 2 to 8 ranks, 4 to 32 micro-batches, F, I and W of 0.6 to 1.6, 0.6 to 1.6 and 0.4 to
1.4 (in every fifth all stages alike), a message of 0, 0.1 or 0.3, and room for pp, pp + 1 or 2 pp
micro-batches on every rank. Named schedules are those of one stage a rank that fit in there. Seeds
0 to 249, so 200 uneven pipelines, and 20 more of the largest size; what is counted does not depend
on the machine, seconds are of this one's processor.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean

import numpy as np

from parsim.schedule import Kind, Schedule, build_schedule
from parsim.schedule.check import check_schedule
from parsim.schedule.inflight import inflight_counts
from parsim.schedule.orders.search import Searched, search_order
from parsim.schedule.orders.work import Work
from parsim.sim.recurrence.maxplus import ClassTimes, run
from parsim.sim.step.compiled_schedule import compile_schedule

CASES = 250
LARGEST, LARGE_CASES = (8, 32), 20
"""Ranks and micro-batches of the largest pipelines, and how many more of them are drawn."""
UNEVEN, EQUAL = "uneven stages", "equal stages"
LARGE = f"uneven stages, {LARGEST[0]} ranks, {LARGEST[1]} micro-batches"
ROUNDING = 1e-9
WHOLE = ("1f1b", "eager_1f1b", "gpipe")
NAMED = (*WHOLE, "zb_h1", "zb_h2", "zb_1p", "zb_2p", "zb_auto")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One pipeline with backwards of one kind: the best named schedule and what was found."""

    seed: int
    group: str
    work: Work
    named: float
    name: str
    searched: Searched
    seconds: float

    @property
    def optimal(self) -> bool:
        """Whether the named schedule is optimal, by the bound or by the search's proof."""
        return self.named <= self.searched.bound * (1.0 + ROUNDING)

    @property
    def shorter(self) -> bool:
        """Whether the order that was found is strictly shorter."""
        return self.searched.makespan < self.named * (1.0 - ROUNDING)


def pipeline(seed: int) -> Work:
    """The pipeline of a seed, with backwards in two."""
    rng = random.Random(seed)
    p, m = LARGEST if seed >= CASES else (rng.randint(2, 8), rng.randint(4, 32))

    def lengths(least: float) -> tuple[float, ...]:
        if group_of(seed) == EQUAL:
            return (rng.uniform(least, least + 1.0),) * p
        return tuple(rng.uniform(least, least + 1.0) for _ in range(p))

    forward, backward, weight = lengths(0.6), lengths(0.6), lengths(0.4)
    limits = (rng.choice((p, p + 1, 2 * p)),) * p
    return Work(
        stage_rank=range(p),
        num_microbatches=m,
        forward=forward,
        backward=backward,
        weight=weight,
        limits=limits,
        message=rng.choice((0.0, 0.1, 0.3)),
    )


def group_of(seed: int) -> str:
    """Which row of the page counts a seed's pipeline."""
    if seed >= CASES:
        return LARGE
    return EQUAL if seed % 5 == 4 else UNEVEN


def whole(work: Work) -> Work:
    """This pipeline with backwards in one."""
    both = zip(work.backward, work.weight, strict=True)
    return replace(work, backward=tuple(i + w for i, w in both), weight=())


def length_of(schedule: Schedule, work: Work) -> float:
    """When a schedule's last action ends, by the simulator's recurrence."""
    forward, backward = (np.array(row)[:, None] for row in (work.forward, work.backward))
    weight = np.array(work.weight or [0.0] * len(work.forward))[:, None]
    seconds = {Kind.F: forward, Kind.B: backward + weight, Kind.I: backward, Kind.W: weight}
    hops = np.full((len(work.forward) - 1, 1), work.message)
    times = ClassTimes.on(schedule, seconds, hops)
    return float(run(compile_schedule(schedule), times, keep=False).clock.max())


def judged(seed: int, work: Work, names: Sequence[str]) -> Case:
    """Search an order and hold it against the named schedules that fit."""
    p, m = len(work.forward), work.num_microbatches
    named = {name: build_schedule(name, pp=p, num_microbatches=m) for name in names}
    times = {name: length_of(s, work) for name, s in named.items() if _fits(s, work)}
    begin = time.process_time()
    searched = search_order(work)
    seconds = time.process_time() - begin
    schedule = Schedule.from_ranks(searched.rows, name="searched")
    check_schedule(schedule)
    if not _fits(schedule, work):
        raise RuntimeError(f"seed {seed}: the order holds more than its limits")
    if abs(length_of(schedule, work) / searched.makespan - 1.0) > ROUNDING:
        raise RuntimeError(f"seed {seed}: the order takes another time than was said")
    name = min(times, key=times.__getitem__)
    return Case(
        seed=seed,
        group=group_of(seed),
        work=work,
        named=times[name],
        name=name,
        searched=searched,
        seconds=seconds,
    )


def _fits(schedule: Schedule, work: Work) -> bool:
    counts = (max(map(sum, counts)) for counts in inflight_counts(schedule))
    return all(count <= limit for count, limit in zip(counts, work.limits, strict=True))


def page(halves: Sequence[Case], wholes: Sequence[Case], shared: Sequence[Case]) -> str:
    """The report as Markdown."""
    groups = [
        (f"{group}, backwards {how}", [case for case in cases if case.group == group])
        for how, cases in (("in two", halves), ("whole", wholes))
        for group in (UNEVEN, EQUAL, LARGE)
    ]
    groups.append((f"{shared[0].group}, backwards whole", list(shared)))
    lines = [
        "# Orders found by machine",
        "",
        "`python -m tests.tools.searched_orders reports/orders.md` wrote this page: the search",
        "behind `schedule: auto` on 270 random pipelines (2 to 8 ranks, 4 to 32 micro-batches,",
        "room for pp, pp + 1 or 2 pp micro-batches a rank; the tool's head says all), against the",
        "named schedules of one stage a rank that fit. A gap is what an order is longer than the",
        "lower bound, or than the proven optimum; a named one without a gap cannot be beaten.",
        f"{len(shared)} more have stages with replicas of their own (`replicated_orders.py`), and",
        "1F1B alone has a name there. `schedule: auto` takes a named one where it is shorter.",
        "",
        "| pipelines | cases | strictly shorter than all named | named optimal | neither | longer |"
        " proven | within 1 % | mean gap | named: mean gap | seconds, most |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
        *(_row(words, cases) for words, cases in groups),
        "",
        "Named optimal: the best named schedule meets the bound or the proof, so that nothing can",
        "be shorter. Proven: the order found is optimal. Within 1 %: of the bound.",
        "",
        "## Neither shorter nor known to be impossible",
        "",
        "| seed | backwards | pp | m | room | best named | gap |",
        "|---|---|---|---|---|---|---|",
        *(_open(case) for case in (*halves, *wholes) if not case.shorter and not case.optimal),
    ]
    return "\n".join(lines) + "\n"


def _row(words: str, cases: Sequence[Case]) -> str:
    gaps = [case.searched.makespan / case.searched.bound - 1.0 for case in cases]
    named = [case.named / case.searched.bound - 1.0 for case in cases]
    optimal = sum(case.optimal for case in cases)
    shorter = sum(case.shorter for case in cases)
    longer = sum(case.searched.makespan > case.named * (1.0 + ROUNDING) for case in cases)
    cells = [
        words,
        len(cases),
        shorter,
        optimal,
        len(cases) - shorter - optimal,
        longer,
        sum(case.searched.proven for case in cases),
        sum(gap <= 0.01 for gap in gaps),
        f"{100 * mean(gaps):.2f} %",
        f"{100 * mean(named):.2f} %",
        f"{max(case.seconds for case in cases):.1f}",
    ]
    return f"| {' | '.join(map(str, cells))} |"


def _open(case: Case) -> str:
    work, how = case.work, "in two" if case.work.weight else "whole"
    gap = 100.0 * (case.named / case.searched.bound - 1.0)
    cells = (case.seed, how, len(work.forward), work.num_microbatches, work.limits[0], case.name)
    return f"| {' | '.join(map(str, cells))} | {gap:.2f} % |"


def main() -> None:
    """Judge all pipelines and write the page."""
    seeds = range(CASES + LARGE_CASES)
    halves = [judged(seed, pipeline(seed), NAMED) for seed in seeds]
    wholes = [judged(seed, whole(pipeline(seed)), WHOLE) for seed in seeds]
    from tests.tools import replicated_orders as replicated  # which takes `Case` from here

    shared = [replicated.judged(seed) for seed in range(replicated.CASES)]
    Path(sys.argv[1]).write_text(page(halves, wholes, shared))


if __name__ == "__main__":
    main()
