"""What contention makes of a step, and jobs that share a fabric, as text for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from parsim.planner.contended import ContendedOrder
from parsim.report.text.tables import bar, numbers, pairs, table
from parsim.sim.contention.contention import Contention
from parsim.sim.contention.jobs_together import JobsTogether
from parsim.sim.contention.link_use import Bottleneck, ClassUse
from parsim.sim.contention.stream_cost import StreamCost
from parsim.units import format_bytes, format_seconds, percent

SHARED = (
    "tier C: collectives and messages of all groups as flows over the cluster's links, max-min fair"
)
_LONGEST = 30
"""Letters of a list of nodes that a column shows."""


def contention_view(contention: Contention) -> RenderableType:
    """Both tiers' step times, the bottleneck, and how long links of each class were used."""
    head = pairs(_headlines(contention), title="contention")
    parts: list[RenderableType] = [Text(""), head, Text("")]
    if contention.streams:
        parts += [_streams(contention.streams), Text("")]
    classes = class_table(contention.classes, contention.step_time)
    return Group(*parts, classes, Text(""), Text(SHARED, style="dim"))


def _headlines(contention: Contention) -> Iterator[tuple[str, str]]:
    slowdown = slower_text(contention.slowdown - 1.0)
    yield "alone (tier B)", format_seconds(contention.alone)
    yield "on shared links", f"{format_seconds(contention.step_time)}  ({slowdown})"
    if contention.quiet is not None:
        yield "without background", format_seconds(contention.quiet)
    yield "bottleneck", bottleneck_text(contention.bottleneck)


def slower_text(share: float) -> str:
    """By how much a step is slower beside others; tiers agree to 1e-9 where nothing contends."""
    return "as alone" if abs(share) < 1e-9 else f"{100.0 * share:+.3g} %"


def bottleneck_text(worst: Bottleneck | None) -> str:
    """The link that was full longest, and how many others are like it."""
    if worst is None:
        return "none: no rank sends anything"
    alike = f", as {worst.alike - 1:,} like it" if worst.alike > 1 else ""
    name = f"{worst.link} ({worst.link_class})"
    if worst.saturated <= 0.0:
        used = f"{percent(worst.used, digits=0)} of its rate for {format_seconds(worst.busy)}"
        return f"no link is ever full; {name} is nearest: {used}{alike}"
    return f"{name}, full for {format_seconds(worst.saturated)}{alike}"


def _streams(streams: Sequence[StreamCost]) -> Table:
    """Each stream's time, what it costs the mean step, and the link that held it back."""
    columns = "stream |  | takes | mean cost of a step | bottleneck of its way"
    filled = table(columns, title="background", right=(2, 3))
    for cost in streams:
        words = (when_text(cost), takes_text(cost), cost_text(cost))
        filled.add_row(cost.stream.name, *words, bottleneck_text(cost.bottleneck))
    return filled


def when_text(cost: StreamCost) -> str:
    """From where to where, how much, how often."""
    stream = cost.stream
    ends = f"{stream.source} to {stream.target}"
    if stream.rate is not None:
        return f"{ends}, {stream.rate / 1e9:g} GB/s each"
    every = "every step" if stream.every == 1 else f"every {stream.every:,} steps"
    return f"{ends}, {format_bytes(stream.size or 0.0)} each, {every}"


def takes_text(cost: StreamCost) -> str:
    """Seconds and steps of one transfer."""
    if cost.seconds is None:
        return "all the time"
    return f"{format_seconds(cost.seconds)} ({cost.steps:.3g} steps)"


def cost_text(cost: StreamCost) -> str:
    """By how much the mean step is longer for it."""
    if cost.stream.every == 1:
        return "in the step"
    late = ", waits for the last one" if cost.overdue else ""
    return format_seconds(cost.cost) + late


def class_table(classes: Sequence[ClassUse], seconds: float) -> Table:
    """How long links of each class were used, of so many seconds."""
    columns = "links | in use | of the time | full | "
    filled = table(columns, title="any link of a class", right=(1, 2, 3))
    for use in classes:
        share = use.busy / seconds
        filled.add_row(
            use.link_class,
            format_seconds(use.busy),
            percent(share),
            format_seconds(use.saturated) if use.saturated > 0.0 else "never",
            bar(share),
        )
    return filled


def order_view(order: ContendedOrder) -> RenderableType:
    """The best plans with contention, in the search's order."""
    columns = "# | alone | on shared links |  | bottleneck"
    filled = table(columns, title="contention", right=(1, 2, 3))
    for number, contention in enumerate(order.plans, start=1):
        filled.add_row(
            str(number),
            format_seconds(contention.alone),
            format_seconds(contention.step_time),
            slower_text(contention.slowdown - 1.0),
            bottleneck_text(contention.bottleneck),
        )
    verdict = "the order stays" if not order.warning else "the order changes, see the warning"
    return Group(Text(""), filled, Text(""), Text(verdict), Text(SHARED, style="dim"))


def together_view(jobs: JobsTogether) -> RenderableType:
    """Each job's step alone and beside the others, and the link that they fight for."""
    parts: list[RenderableType] = [Text(""), _jobs(jobs), Text("")]
    if any(job.streams for job in jobs.jobs):
        parts += [_job_streams(jobs), Text("")]
    if not jobs.shared_links:
        parts.append(Text("the jobs share no link: neither slows the other"))
        return Group(*parts)
    links = f"{jobs.shared_links:,} links are shared"
    worst = f"bottleneck of {format_seconds(jobs.seconds)}: {bottleneck_text(jobs.bottleneck)}"
    parts.append(Text(f"{links}, {worst}"))
    parts += [Text(""), class_table(jobs.classes, jobs.seconds), Text("")]
    return Group(*parts, Text(SHARED, style="dim"))


def _jobs(together: JobsTogether) -> Table:
    columns = "job | plan | nodes | step alone | together |  | steps"
    filled = table(columns, title="jobs that share a fabric", right=(3, 4, 5, 6))
    for job in together.jobs:
        filled.add_row(
            job.name,
            job.plan.label(),
            _short(job.nodes),
            format_seconds(job.alone),
            format_seconds(job.together),
            slower_text(job.slowdown),
            str(job.steps),
        )
    return filled


def _job_streams(together: JobsTogether) -> Table:
    """Each job's streams, what they cost its mean step, and the others'."""
    columns = (
        "job | stream |  | takes | mean cost of a step | of the others' | bottleneck of its way"
    )
    filled = table(columns, title="background", right=(3, 4, 5))
    for job in together.jobs:
        for stream in job.streams:
            cost = stream.cost
            others = ", ".join(format_seconds(seconds) for seconds in stream.others.values())
            words = (when_text(cost), takes_text(cost), cost_text(cost), others)
            filled.add_row(job.name, cost.stream.name, *words, bottleneck_text(cost.bottleneck))
    return filled


def _short(nodes: tuple[int, ...]) -> str:
    """The list, or its ends where it is long."""
    text = numbers(nodes, ",")
    return text if len(text) <= _LONGEST else f"{nodes[0]} ... {nodes[-1]} ({len(nodes):,})"
