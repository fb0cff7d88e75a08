"""What a run measured beside what was predicted, as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from parsim.comparison.compared import error_title, slow_cores
from parsim.report.text.tables import head_lines, table
from parsim.report.text.verified import undecided, verified_lines
from parsim.units import format_bytes, format_seconds, percent


def run_view(document: dict[str, Any], out: str) -> RenderableType:
    """Step time, memory and loss of a run; errors are (predicted - measured) / measured."""
    if "strategy" in document:
        return _strategy_view(document, out)
    predicted, measured, error = (document[name] for name in ("predicted", "measured", "error"))
    step, unlike = measured["step_time_s"], error.get("unlike")
    filled = _errors_table(error)
    filled.add_row(
        "step time (median)",
        format_seconds(predicted["step_time_s"]),
        format_seconds(step["median"]) if step["n"] else "",
        _error_of_step(error["step_time"], step["n"], unlike),
    )
    filled.add_row(
        "peak allocated",
        format_bytes(max(predicted["peak_allocated_bytes"])),
        format_bytes(max(measured["peak_allocated_bytes"])),
        percent(error["peak_memory"], signed=True),
    )
    return _told(filled, document, out, _run_lines(predicted, measured))


def _errors_table(error: Mapping[str, Any]) -> Table:
    """An empty table of predictions beside measurements."""
    title = error_title(tuple(error.get("uncalibrated", ())))
    return table(f" | predicted | measured | {head_lines(title)}", right=(1, 2, 3))


def _told(
    filled: Table, document: dict[str, Any], out: str, lines: Iterable[Text | str]
) -> RenderableType:
    """The table and what is said of the run below it; empty lines are left out."""
    unlike, verified = document["error"].get("unlike"), document["verify"]
    below = (
        Text(unlike, style="bold red") if unlike else "",
        *lines,
        verified_lines(verified),
        undecided(verified),
        f"device: {document['device']}; written to {out}, the curve of the loss as loss.png",
    )
    return Group(
        filled, *(line if isinstance(line, Text) else Text(line) for line in below if line)
    )


def _run_lines(predicted: dict[str, Any], measured: dict[str, Any]) -> Iterator[Text | str]:
    """Steps, bubble, loss and memory of a run whose ranks train together."""
    loss = measured["loss"]
    yield from _timed(measured)
    yield (
        f"bubble {percent(measured['bubble_fraction'])}; loss {_loss(loss[0])} -> "
        f"{_loss(loss[-1])} over {len(loss)} steps"
    )
    yield _core_pace(measured.get("core_pace"))
    yield _load(measured.get("expert_load"))
    yield _scaled(measured)
    yield f"recording a step costs {percent(measured['recording_cost'], signed=True)} of its time"
    yield f"memory by the prediction: {predicted['memory_fit']}"


def _error_of_step(error: float | None, count: int, unlike: str | None) -> Text:
    """The error of the step time; nothing where no step was timed or it is of other hardware."""
    if unlike:
        return Text("not comparable", style="bold red")
    return Text(percent(error, signed=True) if count else "")


def _strategy_view(document: dict[str, Any], out: str) -> RenderableType:
    """Rate, loss and ages of a run whose workers have a strategy of their own."""
    predicted, measured, error = (document[name] for name in ("predicted", "measured", "error"))
    step = measured["step_time_s"]
    seconds = step["mean"]
    filled = _errors_table(error)
    filled.add_row(
        "global batch",
        format_seconds(predicted["step_time_s"]),
        "" if seconds is None else format_seconds(seconds),
        _error_of_step(error["step_time"], step["n"], error.get("unlike")),
    )
    filled.add_row(
        "samples/s",
        f"{predicted['samples_per_s']:,.1f}",
        "" if seconds is None else f"{measured['samples_per_s']:,.1f}",
        "",
    )
    for row in _stage_peaks(predicted, measured, error):
        filled.add_row(*row)
    return _told(filled, document, out, _strategy_lines(document["strategy"], measured))


def _stage_peaks(
    predicted: Mapping[str, Any], measured: Mapping[str, Any], error: Mapping[str, Any]
) -> Iterator[tuple[str, str, str, str]]:
    """The highest memory of each stage, of a pipeline whose stages were run task by task."""
    for stage, gap in enumerate(error.get("peak_memory_by_stage", ())):
        ours, theirs = (of["peak_allocated_bytes"][stage] for of in (predicted, measured))
        name = f"peak allocated, stage {stage}"
        yield name, format_bytes(ours), format_bytes(theirs), percent(gap, signed=True)


def _strategy_lines(strategy: dict[str, Any], measured: dict[str, Any]) -> Iterator[Text | str]:
    """Loss, ages and late gradients of such a run, and how near its replay comes."""
    loss, ages = measured["loss"], strategy["mean_staleness_updates"]
    yield _untimed(measured["step_time_s"])
    yield (
        f"strategy {strategy['name']}; loss {_loss(loss[0])} -> {_loss(loss[-1])} over {len(loss)} "
        + ("batches" if "versions_by_rank" in strategy else "rounds of each worker")
    )
    yield _core_pace(measured.get("core_pace"))
    if ages is not None:
        yield f"staleness: {ages:.2f} updates in the mean"
    if strategy.get("dropped"):
        yield f"{percent(strategy['dropped'])} of the gradients came too late"
    yield from _again(strategy.get("versions_by_rank"), strategy.get("replay_error"))


def _again(versions: Sequence[int] | None, replayed: float | None) -> Iterator[str]:
    """How many weights a pipeline's ranks had at once, and how near one process comes to a run."""
    order = "in the order of arrivals"
    if versions is not None and max(versions) > 1:
        order = "in one process by the table of versions"
        yield f"versions of weights at once, by rank: {', '.join(map(str, versions))}"
    if replayed is not None:
        yield f"replayed {order}: error {replayed:.1e}"


NOTHING_LEFT = "no step is timed: none was left behind the warm-up (n = 0)"


def _untimed(step: Mapping[str, Any]) -> str:
    """Why a run whose workers have a strategy has no step time; empty if it has."""
    if step["mean"] is not None:
        return ""
    if not step["n"]:
        return NOTHING_LEFT
    return (
        "no step time is measured: a worker had done all its rounds before another had left the "
        "warm-up, so that they never trained together; take more --steps"
    )


def diverged(losses: Sequence[float | None], ranks: Sequence[int] = ()) -> str:
    """What to say of losses that are infinite or undefined, null in JSON; empty if none is.

    `ranks` are those whose own loss was, at the first such step.
    """
    lost = [step for step, loss in enumerate(losses) if loss is None]
    if not lost:
        return ""
    where = f" on rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}" if ranks else ""
    return (
        f"the training failed: the loss is infinite or undefined at {len(lost)} of {len(losses)} "
        f"steps, first at step {lost[0]}{where}; look at the text that it trains on and at the "
        f"plan's precision; --verify compares its gradients with one process's"
    )


def _loss(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.4f}"


def _timed(measured: dict[str, Any]) -> Iterator[str]:
    """The steps that were timed; training that went on from a checkpoint may have left none."""
    step, restarts = measured["step_time_s"], measured["restarts"]
    if restarts:
        times = "once" if restarts == 1 else f"{restarts} times"
        yield f"the ranks were started again {times}; steps before that are not timed"
    if not step["n"]:
        yield NOTHING_LEFT
        return
    yield (
        f"step time: least {format_seconds(step['min'])}, deviation {format_seconds(step['mad'])} "
        f"over {step['n']} steps"
    )
    unit = "samples/s" if measured.get("tokens_of_sample") == 1 else "tokens/s"
    yield f"{measured['tokens_per_s']:,.0f} {unit}, MFU {percent(measured['mfu'])}"


def _core_pace(pace: Mapping[str, float] | None) -> Text | str:
    """How fast cores were beside when they were calibrated, of a run on a CPU."""
    if pace is None:
        return ""
    if slow := slow_cores(pace["median"]):
        return Text(slow, style="bold red")
    return (
        f"cores took {pace['median']:.2f} times as long as when they were calibrated "
        f"({pace['min']:.2f} to {pace['max']:.2f})"
    )


def _scaled(measured: dict[str, Any]) -> str:
    """The scale of the loss at the end, in fp16."""
    if "loss_scale" not in measured:
        return ""
    skipped = measured["skipped_steps"]
    return (
        f"loss scale {measured['loss_scale']:g} at the end; {skipped} "
        f"step{'s' * (skipped != 1)} skipped, whose gradients overflowed"
    )


def _load(load: dict[str, float] | None) -> str:
    if load is None:
        return ""
    return (
        f"experts: the busiest of the ranks that share a layer's got {load['mean']:.2f} times the "
        f"mean of tokens (worst layer {load['max']:.2f}); predicted: {load['assumed']:.2f}"
    )


def residuals_view(document: dict[str, Any]) -> RenderableType:
    """How far a calibration's constants are from what was measured, per kind."""
    filled = table("|predicted / measured - 1| | n | median | p90 | max", right=(1, 2, 3, 4))
    for name, errors in (pair for part in document["residuals"].values() for pair in part.items()):
        shares = (percent(errors[key]) for key in ("median", "p90", "max"))
        filled.add_row(name, str(errors["n"]), *shares)
    return filled
