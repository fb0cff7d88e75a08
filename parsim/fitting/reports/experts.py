"""Writes reports/experts.md: where vendors' tuned plans stand in a search of the same jobs.

    python -m parsim.fitting.reports.experts REPORT [TABLE.csv ...]

Without tables: those of `VENDORS`. No number on the page is typed.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from parsim.fitting.experts.judge import AGREES, VERDICTS, JudgedPlan, judge
from parsim.fitting.reports.network import table
from parsim.planner.why.reasons import differences, step_parts
from parsim.sim import simulate
from parsim.sim.confidence.memory_fit import Fit
from parsim.units import format_bytes, format_seconds
from parsim.validation.tables import shipped_tables
from parsim.validation.validate import validate
from parsim.validation.validated_row import ValidatedRow

VENDORS = (
    "megatron_bridge_performance_public",
    "mlperf_llama31_8b_public",
    "nemo_performance_public",
    "nvidia_dgxc_benchmarking_public",
    "torchtitan_public_8b",
)
"""Shipped tables of runs whose plans their vendors tuned."""
PARTS = 3
"""Parts of a step that are named where a plan is behind."""

Row = Sequence[str]


def vendor_tables() -> list[Path]:
    """The shipped tables of `VENDORS`."""
    return [path for path in shipped_tables() if path.stem in VENDORS]


def page(tables: Sequence[Path]) -> str:
    """The whole page."""
    rows = validate(tables).rows
    judged = list(judge(rows))
    counts = Counter(plan.verdict for plan in judged)
    agree = sum(counts[verdict] for verdict in AGREES)
    fitting = len(judged) - counts["does not fit"]
    words = (
        f"**{agree} of {len(judged)} tuned plans are the search's first, within 3 % of it or tied "
        f"with it**, {agree} of the {fitting} that fit by the predicted memory."
    )
    parts = [HEAD, words, tried(judged), beaten(judged)]
    parts.append(table(SUMMARY_HEAD, summary(judged, rows), range(1, 8)))
    parts += ["## Every plan", WORDS, table(PLANS_HEAD, map(plan_row, judged), (1, 4, 5, 7, 8))]
    behind = [plan for plan in judged if plan.verdict == "behind"]
    if behind:
        parts += ["## Behind: where the difference lies", BEHIND]
        parts += [table(BEHIND_HEAD, map(behind_row, behind), (1,)), WHY]
    large = [plan for plan in judged if plan.verdict == "does not fit"]
    if large:
        parts += ["## Does not fit", LARGE, table(LARGE_HEAD, map(large_row, large), (1, 3, 4))]
    return "\n\n".join(parts) + "\n"


def tried(judged: Sequence[JudgedPlan]) -> str:
    """How often the search's other choice ran faster, where somebody published a run of it."""
    other = [
        (plan.measured, plan.best_measured)
        for plan in judged
        if plan.best_measured is not None and plan.slower > 0.0
    ]
    faster = sum(theirs > ours for theirs, ours in other)
    return (
        f"Of {len(other)} plans a run of the search's other choice for the same job is published "
        f"too: it was faster in {faster}."
    )


def beaten(judged: Sequence[JudgedPlan]) -> str:
    """How many of those that do not agree another published plan outran."""
    apart = [plan for plan in judged if plan.verdict not in AGREES]
    lost = sum(plan.outrun is not None for plan in apart)
    slower = sum(plan.outrun is None and plan.elsewhere is not None for plan in apart)
    return (
        f"Of the other {len(apart)}, {lost} were outrun by more than 3 % by another published plan "
        f"of the same job, so that they are not the best as measured, either; {slower} more by one "
        f"of the same model on at least as many of these devices, in samples a second for each."
    )


def summary(judged: Sequence[JudgedPlan], rows: Sequence[ValidatedRow]) -> Iterator[Row]:
    """How often each verdict was given, by table and in all."""
    names = dict.fromkeys(row.table for row in rows)
    for name in (*names, "all"):
        of = [plan for plan in judged if name in ("all", plan.rows[0].table)]
        counts = Counter(plan.verdict for plan in of)
        skipped = sum(row.skipped and name in ("all", row.table) for row in rows)
        runs = sum(len(plan.rows) for plan in of)
        yield name, str(runs), str(len(of)), *(str(counts[v]) for v in VERDICTS), str(skipped)


def plan_row(plan: JudgedPlan) -> Row:
    """One expert's plan beside the search's."""
    best, tight = plan.best, " (tight)" if plan.expert.fit is Fit.TIGHT else ""
    ours = ("nothing fits", "", "") if best is None else _best(plan)
    return (
        *_job(plan),
        f"`{plan.expert.plan.label()}`",
        format_seconds(plan.measured),
        format_seconds(plan.expert.step_time) + tight,
        *ours,
        plan.verdict,
    )


def _best(plan: JudgedPlan) -> tuple[str, str, str]:
    if plan.best is None or plan.best.plan.label() == plan.expert.plan.label():
        return "the same", "", ""
    seconds = format_seconds(plan.best.step_time)
    if plan.best_measured is not None:
        seconds += f" (measured {format_seconds(plan.best_measured)})"
    return f"`{plan.best.plan.label()}`", seconds, f"{100 * plan.slower:+.1f} %"


def _job(plan: JudgedPlan) -> tuple[str, str, str]:
    first = plan.rows[0]
    return f"{first.model} {first.precision}", str(plan.expert.plan.world_size), first.system


def behind_row(plan: JudgedPlan) -> Row:
    """What the expert's plan is predicted to lose against the best."""
    case, best = plan.rows[0].case, plan.best
    if case is None or best is None:
        return ()
    theirs, ours = (step_parts(case.job, entry.plan) for entry in (plan.expert, best))
    named = differences(ours, theirs)[:PARTS]
    told = "; ".join(f"{name} {_signed(there - here)}" for name, here, there in named)
    labels = (f"`{plan.expert.plan.label()}`", f"`{best.plan.label()}`")
    return (*_job(plan), *labels, told, _outrun(plan))


def _outrun(plan: JudgedPlan) -> str:
    """The published plan that ran faster, and how long both took."""
    if plan.outrun is not None:
        other = plan.outrun
        took = f"{format_seconds(other.measured)} instead of {format_seconds(plan.measured)}"
        return f"`{other.plan}`: {took}"
    if plan.elsewhere is None:
        return ""
    other, theirs = plan.elsewhere, plan.expert.plan
    more = other.rate * plan.measured * theirs.world_size / theirs.global_batch_size - 1.0
    job = f"{other.devices} devices, batch {other.batch}"
    return f"`{other.plan}` on {job}: {100 * more:.0f} % more samples/s a device"


def _signed(seconds: float) -> str:
    return f"{'+' if seconds >= 0 else '-'}{format_seconds(abs(seconds))}"


def large_row(plan: JudgedPlan) -> Row:
    """What the expert's plan is predicted to hold."""
    case = plan.rows[0].case
    if case is None:
        return ()
    prediction = simulate(case.job, case.plan)
    largest = max(prediction.memory, key=lambda name: prediction.memory[name])
    return (
        *_job(plan),
        f"`{plan.expert.plan.label()}`",
        format_bytes(plan.expert.peak_allocated),
        format_bytes(prediction.fullest.usable),
        f"{largest}, {format_bytes(prediction.memory[largest])}",
    )


HEAD = """# Experts' plans and the search's

Written by `python -m parsim.fitting.reports.experts reports/experts.md`. A vendor that publishes a
run has tuned its plan on the hardware. Here the same job (model, cluster, software, batch, format)
is searched as `parsim search` does it for everybody, all plans that the software offers, and the
vendor's plan is ranked by the same prediction. Rows that do not say what a
prediction needs are not judged (last column; `reports/accuracy.md` lists the reasons)."""
SUMMARY_HEAD = ("table", "runs", "plans", *VERDICTS, "runs not judged")
WORDS = """`first`: no plan that fits is faster. `within 3 %`: slower than the best by no more.
`tied`: each lies in the other's 80 % interval, so published runs do not tell which is faster.
`behind`: slower than that. `tight`: it may run out of memory; a search names such a plan where
it is faster than those that fit. `measured` behind the search's plan: a run of it is published."""
PLANS_HEAD = (
    *("job", "devices", "nodes", "expert's plan", "measured", "predicted"),
    *("search's best", "predicted", "expert is slower by", "verdict"),
)
BEHIND = """Seconds that the expert's plan is predicted to spend more (+) or less (-) than the
search's, by part of the step, the largest first."""
BEHIND_HEAD = (
    *("job", "devices", "nodes", "expert's plan", "search's best", "expert's plan spends"),
    "another plan ran faster",
)
WHY = """Where another plan of the job ran faster, the measurement sides with the search: other
releases of the vendor have other plans. What else is behind was not chosen for its speed, as far as
its sources say:

- torchtitan's Llama 3.1 8B with `tp8` on 64 GPUs compares vanilla with asynchronous tensor
  parallelism in one plan ("to measure the performance improvements of async TP over the vanilla
  TP baseline", benchmarks/asyncTP_llama3_h100_2025-06_torchtitan.md, commit b5bcd76).
- NeMo's SFT of Llama 2 13B has no virtual stages, as the launcher's file has them for no model
  (`virtual_pipeline_model_parallel_size: null`, launcher_scripts/conf/peft/llama/sft.yaml, commit
  0da9ad9c), although SFT may (pull request 7964); pretraining of it on the same page has."""
LARGE = """Plans that ran although the predicted peak is above the device's memory. The Llama 3 70B
recipes for GB200 and GB300 without tensor parallelism keep activations of 20 to 40 layers on the
host (`cpu_offloading_num_layers` in Megatron-Bridge's perf_recipes/llama/gb200/llama3.py and
gb300/llama3.py, commit 067f987df), and so do their plans here (`offload40`)."""
LARGE_HEAD = ("job", "devices", "nodes", "expert's plan", "peak", "usable", "most of it")


if __name__ == "__main__":
    given = [Path(name) for name in sys.argv[2:]]
    Path(sys.argv[1]).write_text(page(given or vendor_tables()), encoding="utf-8")
