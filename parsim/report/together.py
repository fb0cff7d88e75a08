"""Jobs that share a fabric, as text for people."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from parsim.report.contention import (
    SHARED,
    bottleneck_text,
    class_table,
    cost_text,
    takes_text,
    when_text,
)
from parsim.report.text import table
from parsim.sim.jobs_together import JobBeside, JobsTogether
from parsim.units import format_seconds

_LONGEST = 30
"""Letters of a list of nodes that a column shows."""


def together_view(found: JobsTogether) -> RenderableType:
    """Each job's step alone and beside the others, and the link that they fight for."""
    parts: list[RenderableType] = [Text(""), _jobs(found), Text("")]
    if any(one.streams for one in found.jobs):
        parts += [_streams(found), Text("")]
    if not found.shared_links:
        parts.append(Text("the jobs share no link: neither slows the other"))
        return Group(*parts)
    parts.append(Text(
        f"{found.shared_links:,} links are shared, bottleneck of {format_seconds(found.seconds)}: "
        f"{bottleneck_text(found.bottleneck)}"
    ))  # fmt: skip
    parts += [Text(""), class_table(found.classes, found.seconds), Text("")]
    return Group(*parts, Text(SHARED, style="dim"))


def _jobs(found: JobsTogether) -> Table:
    made = table("job", "plan", "nodes", "step alone", "together", "", "steps",
                 title="jobs that share a fabric", right=(3, 4, 5, 6))  # fmt: skip
    for one in found.jobs:
        made.add_row(
            one.name,
            one.plan.label(),
            _short(one.nodes),
            format_seconds(one.alone),
            format_seconds(one.together),
            slower_text(one),
            str(one.steps),
        )
    return made


def _streams(found: JobsTogether) -> Table:
    """Each job's streams, what they cost its mean step, and the others'."""
    made = table("job", "stream", "", "takes", "mean cost of a step", "of the others'",
                 "bottleneck of its way", title="background", right=(3, 4, 5))  # fmt: skip
    for job in found.jobs:
        for one in job.streams:
            others = [format_seconds(seconds) for seconds in one.others.values()]
            made.add_row(job.name, one.cost.stream.name, when_text(one.cost), takes_text(one.cost),
                         cost_text(one.cost), ", ".join(others),
                         bottleneck_text(one.cost.bottleneck))  # fmt: skip
    return made


def _short(nodes: tuple[int, ...]) -> str:
    """The list, or its ends where it is long."""
    text = node_list(nodes)
    return text if len(text) <= _LONGEST else f"{nodes[0]} ... {nodes[-1]} ({len(nodes):,})"


def slower_text(one: JobBeside) -> str:
    """By how much a job's mean step is longer beside the others."""
    return "as alone" if abs(one.slowdown) < 1e-9 else f"{100.0 * one.slowdown:+.3g} %"


def node_list(nodes: tuple[int, ...]) -> str:
    """Numbers with ranges: 0-3,8."""
    runs: list[list[int]] = []
    for node in nodes:
        if runs and node == runs[-1][-1] + 1:
            runs[-1].append(node)
        else:
            runs.append([node])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
