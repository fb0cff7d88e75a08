"""The predicted step of a plan as text for people, and the answer in a box."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from parsim.cost.step.cuts import cut_words
from parsim.report.text.planning.plan_words import plan_words
from parsim.report.text.strategies import strategy_lines
from parsim.report.text.tables import bar, between, numbers, pairs, table
from parsim.sim.confidence.memory_fit import RISK, Fit
from parsim.sim.prediction import BUBBLE_DEFINITION, Prediction
from parsim.units import format_bytes, format_seconds, percent


def prediction_view(prediction: Prediction, *, evidence: str = "") -> RenderableType:
    """One simulated plan: verdict, time, where it goes, memory, what was assumed."""
    mean = "workers" if prediction.strategy else "pipeline ranks"
    steps = f"where the step goes (mean over {mean})"
    peak = f"memory at the peak of {_rank_words(prediction, 'pipeline rank')}"
    return Group(
        Text(prediction.plan.label(), style="bold"),
        pairs(_headlines(prediction, evidence)),
        *_slot_parts(prediction),
        Text(""),
        _shares(steps, prediction.breakdown, format_seconds),
        Text(""),
        _shares(peak, prediction.memory, format_bytes),
        *_kept_parts(prediction),
        Text(""),
        *([] if prediction.strategy else [Text(BUBBLE_DEFINITION, style="dim")]),
        *(Text(f"note: {note}", style="dim") for note in prediction.all_notes),
    )


def _kept_parts(prediction: Prediction) -> list[RenderableType]:
    """What keeps the activations of the peak, where there are any."""
    if not prediction.activations:
        return []
    title = "activations among it, by what keeps them"
    return [Text(""), _shares(title, prediction.activations, format_bytes)]


def _slot_parts(prediction: Prediction) -> list[RenderableType]:
    """What each kind of node of a mixed cluster does."""
    if not prediction.rank_uses:
        return []
    columns = (
        "replicas | pp | nodes | device | layers | micro-batches | busy | done at | memory | of"
    )
    rows = table(columns, title="who does what", right=range(4, 10))
    for use in prediction.rank_uses:
        rows.add_row(
            numbers(use.replicas),
            str(use.pipeline_rank),
            "+".join(use.groups),
            "+".join(use.devices),
            str(use.layers),
            str(use.microbatches),
            format_seconds(use.busy),
            format_seconds(use.end),
            format_bytes(use.peak_allocated),
            format_bytes(use.usable),
        )
    return [Text(""), rows]


def _rank_words(prediction: Prediction, noun: str) -> str:
    """Which rank is the fullest: by its role, where workers have roles."""
    if prediction.strategy:
        return prediction.strategy.roles[prediction.fullest.rank]
    return f"{noun} {prediction.fullest.rank}"


def _headlines(prediction: Prediction, evidence: str) -> Iterator[tuple[str, str]]:
    yield from _memory(prediction)
    yield "step time", f"{format_seconds(prediction.step_time)}  {_phases(prediction)}"
    yield "80 % interval", f"{between(prediction.interval)}: {prediction.interval.basis}"
    if not (prediction.strategy and prediction.speed_unit == "samples/s"):  # told below, once
        yield prediction.speed_unit, f"{prediction.tokens_per_second:,.0f}"
    if prediction.plan.stage_layers:
        yield "layers a stage", cut_words(prediction.plan.stage_layers)
    yield "MFU / HFU", _use_of_peak(prediction)
    if prediction.strategy:
        yield from strategy_lines(prediction.strategy)
    else:
        over = f"{percent(prediction.bubble_overhead)} over busy time"
        yield "bubble", f"{percent(prediction.bubble_fraction)} of the pipeline phase ({over})"
    if evidence:
        yield "evidence", evidence
    yield "the plan is", plan_words(prediction.plan)


def _phases(prediction: Prediction) -> str:
    """What the step time is of, in brackets."""
    if prediction.strategy:
        return "(in which all workers together do one global batch)"
    pipeline = format_seconds(prediction.pipeline_time)
    span = format_seconds(prediction.device_span)
    return f"(pipeline phase {pipeline}, longest device span {span})"


def _use_of_peak(prediction: Prediction) -> str:
    """Model and hardware FLOPs as shares of what devices could do, and what that is."""
    dense = f"{prediction.peak_flops / 1e12:.4g} TFLOP/s dense {prediction.plan.precision}"
    if prediction.mfu > 1.0:
        dense += "; counted are the FLOPs of direct convolutions, of which transforms save some"
    return f"{percent(prediction.mfu)} / {percent(prediction.hfu)}  of {dense}"


def _memory(prediction: Prediction) -> Iterator[tuple[str, str]]:
    """Whether the plan fits, and what its peak is made of."""
    fullest, margin = prediction.fullest, prediction.margin
    peak, usable = format_bytes(fullest.peak_allocated), format_bytes(fullest.usable)
    devices = f" ({'+'.join(fullest.devices)})" if prediction.rank_uses else ""
    where = f"{_rank_words(prediction, 'rank')}{devices}"
    yield "memory", f"{peak} of {usable} on {where}: {fit_words(prediction)}"
    if prediction.strategy and len(prediction.strategy.roles) > 1:
        yield "", _peaks_of_roles(prediction, prediction.strategy.roles)
    low, high = (format_bytes(end) for end in prediction.peak_interval)
    reserved = format_bytes(fullest.peak_reserved)
    yield (
        "",
        f"allocated (what must fit), 80 % {low} to {high} ({prediction.memory_basis}); reserved "
        f"by the allocator {reserved}, context {format_bytes(fullest.context)}",
    )
    yield (
        "",
        f"up to {format_bytes(margin.left(fullest.usable))} reserved fits: {usable} less a "
        f"margin of {percent(margin.share)} ({margin.basis}); more is tight",
    )
    if prediction.plan.offload_layers or prediction.plan.optimizer_offload:
        yield "", f"on the hosts of a node: {host_words(prediction)}"


def _peaks_of_roles(prediction: Prediction, roles: Sequence[str]) -> str:
    """The peak of each role of a device, those that are alike told once."""
    by_role = zip(roles, map(format_bytes, prediction.peak_allocated), strict=True)
    return f"peak of {', '.join(f'{role} {peak}' for role, peak in by_role)}"


def host_words(prediction: Prediction) -> str:
    """What a plan keeps in the memory of a node's hosts."""
    used, room = prediction.host_bytes, prediction.host_memory
    plan = prediction.plan
    parts = {"activations": plan.offload_layers, "optimizer states": plan.optimizer_offload}
    what = " and ".join(name for name, kept in parts.items() if kept)
    if room is None:
        return f"{format_bytes(used)} of {what}; the catalog does not say what they have"
    return f"{format_bytes(used)} of {what} in {format_bytes(room)}"


def fit_words(prediction: Prediction) -> str:
    """Whether a plan's memory fits its devices, and what it means where it does not."""
    if prediction.fit is Fit.TIGHT:
        return f"{prediction.fit}, {RISK}"
    if prediction.fit is Fit.TOO_LARGE:
        beyond = prediction.fullest.peak_allocated - prediction.fullest.usable
        if beyond <= 0.0:
            return f"{prediction.fit} the hosts: {host_words(prediction)}"
        return f"{prediction.fit}, {format_bytes(beyond)} too much"
    return str(prediction.fit)


def _shares(title: str, parts: Mapping[str, float], form: Callable[[float], str]) -> Table:
    rows = table("part | amount | share | ", title=title, right=(1, 2))
    total = sum(parts.values()) or 1.0
    for name, value in parts.items():
        if value <= 1e-9 * total:  # nothing, or what rounding left
            continue
        share = value / total
        rows.add_row(_part_words(name), form(value), percent(share), bar(share))
    return rows


def _part_words(name: str) -> str:
    """A part's name as people read it; masks are also of pools and functions of values."""
    return "masks" if name == "dropout_masks" else name.replace("_", " ")


WIDTH: Final = 96
"""Columns of the box."""
_BAR: Final = 24
"""Characters from one end of the interval's bar to the other."""


def answer_view(
    prediction: Prediction, *, plan_file: str, picture: str, title: str = ""
) -> RenderableType:
    """What one asked for, short: `plan_file` is what was read, `picture` what was written.

    ╭─ gpt3-175b on 128 x dgx-a100 ─────────────────────╮
    │ step time  19.832 s  18.882 s ├───●─────┤ 21.032 s │
    ╰────────────────────────────────────────────────────╯
    """
    rows = pairs([*_figures(prediction), ("plan file", plan_file), ("picture", picture)])
    rows.show_header = False
    heading = Text(title) if title else None
    return Panel(rows, title=heading, title_align="left", box=box.ROUNDED, width=WIDTH)


def _figures(prediction: Prediction) -> Iterator[tuple[str, str]]:
    yield "plan", prediction.plan.label()
    yield "step time", f"{format_seconds(prediction.step_time)}  {interval_bar(prediction)}"
    speed = f"{prediction.tokens_per_second:,.0f} {prediction.speed_unit}"
    yield "speed", f"{speed}, MFU {percent(prediction.mfu)}{_bubble(prediction)}"
    peak = format_bytes(prediction.fullest.peak_allocated)
    yield "memory", f"peak {peak}: {fit_words(prediction)}"


def _bubble(prediction: Prediction) -> str:
    """The bubble, where the plan has a pipeline's phase."""
    if prediction.strategy:
        return ""
    return f", bubble {percent(prediction.bubble_fraction)} of the pipeline phase"


def interval_bar(prediction: Prediction) -> str:
    """The 80 % interval drawn to scale, with the prediction as a dot: `low ├──●───┤ high`."""
    interval = prediction.interval
    low, high = format_seconds(interval.low), format_seconds(interval.high)
    length = interval.high - interval.low
    share = (prediction.step_time - interval.low) / length if length > 0.0 else 0.5
    dot = min(max(round(share * _BAR), 0), _BAR)
    drawn = f"├{'─' * dot}●{'─' * (_BAR - dot)}┤"
    return f"80 %: {low} {drawn} {high}"
