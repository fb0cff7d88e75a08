"""What contention makes of a step, as text for people."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from parsim.errors import InputError
from parsim.report.save import check_writable
from parsim.report.text import BAR, table
from parsim.report.trace import save_trace
from parsim.scenario import Scenario
from parsim.search.contended import ContendedOrder
from parsim.sim.contention import Contention, contended_timeline
from parsim.sim.link_use import Bottleneck, ClassUse
from parsim.sim.stream_cost import StreamCost
from parsim.units import format_bytes, format_seconds

SHARED = (
    "tier C: collectives and messages of all groups as flows over the cluster's links, max-min fair"
)


def contention_view(found: Contention) -> RenderableType:
    """Both tiers' step times, the bottleneck, and how long links of each class were used."""
    head = table("", "", title="contention")
    head.add_row("alone (tier B)", format_seconds(found.alone))
    head.add_row("on shared links", f"{format_seconds(found.step_time)}  ({slower(found)})")
    if found.quiet is not None:
        head.add_row("without background", format_seconds(found.quiet))
    head.add_row("bottleneck", bottleneck_text(found.bottleneck))
    parts: list[RenderableType] = [Text(""), head, Text("")]
    if found.streams:
        parts += [_streams(found.streams), Text("")]
    parts += [class_table(found.classes, found.step_time), Text(""), Text(SHARED, style="dim")]
    return Group(*parts)


def slower(found: Contention) -> str:
    """By how much a step is slower with contention; tiers agree to 1e-9 where nothing contends."""
    more = found.slowdown - 1.0
    return "as alone" if abs(more) < 1e-9 else f"{100.0 * more:+.3g} %"


def bottleneck_text(worst: Bottleneck | None) -> str:
    """The link that was full longest, and how many others are like it."""
    if worst is None:
        return "none: no rank sends anything"
    alike = f", as {worst.alike - 1:,} like it" if worst.alike > 1 else ""
    name = f"{worst.link} ({worst.link_class})"
    if worst.saturated <= 0.0:
        used = f"{100.0 * worst.used:.0f} % of its rate for {format_seconds(worst.busy)}"
        return f"no link is ever full; {name} is nearest: {used}{alike}"
    return f"{name}, full for {format_seconds(worst.saturated)}{alike}"


def _streams(streams: Sequence[StreamCost]) -> Table:
    """Each stream's time, what it costs the mean step, and the link that held it back."""
    made = table("stream", "", "takes", "mean cost of a step", "bottleneck of its way",
                 title="background", right=(2, 3))  # fmt: skip
    for one in streams:
        made.add_row(one.stream.name, when_text(one), takes_text(one), cost_text(one),
                     bottleneck_text(one.bottleneck))  # fmt: skip
    return made


def when_text(one: StreamCost) -> str:
    """From where to where, how much, how often."""
    stream = one.stream
    ends = f"{stream.source} to {stream.target}"
    if stream.rate is not None:
        return f"{ends}, {stream.rate / 1e9:g} GB/s each"
    every = "every step" if stream.every == 1 else f"every {stream.every:,} steps"
    return f"{ends}, {format_bytes(stream.size or 0.0)} each, {every}"


def takes_text(one: StreamCost) -> str:
    """Seconds and steps of one transfer."""
    if one.seconds is None:
        return "all the time"
    return f"{format_seconds(one.seconds)} ({one.steps:.3g} steps)"


def cost_text(one: StreamCost) -> str:
    """By how much the mean step is longer for it."""
    if one.stream.every == 1:
        return "in the step"
    late = ", waits for the last one" if one.overdue else ""
    return format_seconds(one.cost) + late


def class_table(classes: Sequence[ClassUse], seconds: float) -> Table:
    """How long links of each class were used, of so many seconds."""
    made = table("links", "in use", "of the time", "full", "", title="any link of a class",
                 right=(1, 2, 3))  # fmt: skip
    for one in classes:
        share = one.busy / seconds
        made.add_row(
            one.link_class,
            format_seconds(one.busy),
            f"{100.0 * share:.1f} %",
            format_seconds(one.saturated) if one.saturated > 0.0 else "never",
            "█" * round(BAR * share),
        )
    return made


def save_contended(found: Scenario, path: Path) -> None:
    """A trace of the step on shared links, with a counter for each class of links.

    Raises:
        InputError: another form than .json, or a path that cannot be written.
    """
    check_trace(path)
    timeline, links = contended_timeline(
        found.job,
        found.fixed_plan(),
        background=found.background,
        slow=dict(found.jitter.slow_ranks),
    )
    save_trace(timeline, path, links)


def check_trace(path: Path, option: str = "--contention") -> None:
    """Refuse what contention is not drawn as; the message names the option that asks for it.

    Raises:
        InputError: another form than .json, or a path that cannot be written.
    """
    if path.suffix != ".json":
        raise InputError(f"{path}: {option} is drawn in Perfetto's form only; write a .json")
    check_writable(path)


def order_view(found: ContendedOrder) -> RenderableType:
    """The best plans with contention, in the search's order."""
    made = table("#", "alone", "on shared links", "", "bottleneck", title="contention",
                 right=(1, 2, 3))  # fmt: skip
    for place, one in enumerate(found.plans, start=1):
        made.add_row(
            str(place),
            format_seconds(one.alone),
            format_seconds(one.step_time),
            slower(one),
            bottleneck_text(one.bottleneck),
        )
    said = "the order stays" if not found.warning else "the order changes, see the warning"
    return Group(Text(""), made, Text(""), Text(said), Text(SHARED, style="dim"))
