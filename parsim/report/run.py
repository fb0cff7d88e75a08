"""What a run measured beside what was predicted, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from parsim.report.text import percent, table
from parsim.units import format_bytes, format_seconds


def run_view(document: dict[str, Any], out: str) -> RenderableType:
    """Step time, memory and loss of a run; errors are (predicted - measured) / measured."""
    predicted, measured, error = (document[name] for name in ("predicted", "measured", "error"))
    step = measured["step_time_s"]
    made = table("", "predicted", "measured", "error", right=(1, 2, 3))
    made.add_row(
        "step time (median)",
        format_seconds(predicted["step_time_s"]),
        format_seconds(step["median"]) if step["n"] else "",
        percent(error["step_time"], signed=True) if step["n"] else "",
    )
    made.add_row(
        "peak allocated",
        format_bytes(max(predicted["peak_allocated_bytes"])),
        format_bytes(max(measured["peak_allocated_bytes"])),
        percent(error["peak_memory"], signed=True),
    )
    loss = measured["loss"]
    lines = [
        *_timed(measured),
        f"bubble {percent(measured['bubble_fraction'])}; loss {_loss(loss[0])} -> "
        f"{_loss(loss[-1])} over {len(loss)} steps",
        _load(measured.get("expert_load")),
        f"recording a step costs {percent(measured['recording_cost'], signed=True)} of its time",
        _verified(document["verify"]),
        f"device: {document['device']}; written to {out}, the curve of the loss as loss.png",
    ]
    return Group(made, *(Text(line) for line in lines if line))


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
        yield "no step is timed: none was left behind the warm-up (n = 0)"
        return
    yield (
        f"step time: least {format_seconds(step['min'])}, deviation {format_seconds(step['mad'])} "
        f"over {step['n']} steps"
    )
    yield f"{measured['tokens_per_s']:,.0f} tokens/s, MFU {percent(measured['mfu'])}"


def _load(found: dict[str, float] | None) -> str:
    if found is None:
        return ""
    return (
        f"experts: the busiest of the ranks that share a layer's got {found['mean']:.2f} times the "
        f"mean of tokens (worst layer {found['max']:.2f}); predicted: {found['assumed']:.2f}"
    )


def _verified(found: dict[str, Any] | None) -> str:
    if found is None:
        return ""
    return (
        f"verified against {found['reference']}: largest gradient error "
        f"{_error(found['max_gradient_error'])} ({found['parameter'] or 'none'}; at most "
        f"{found['bound']:.1e}), loss error {_error(found['max_loss_error'])} (at most "
        f"{found['loss_bound']:.1e})"
    )


def verdict(found: dict[str, Any]) -> str:
    """What is wrong with a run whose verification is not within its bound."""
    return (
        f"verification failed: the gradient of {found['parameter'] or 'no parameter'} is off by "
        f"{_error(found['max_gradient_error'])} and the loss by "
        f"{_error(found['max_loss_error'])} from {found['reference']}; allowed: "
        f"{found['bound']:.1e} and {found['loss_bound']:.1e}; this plan trains wrongly on this "
        f"machine: use another plan, and report this one with its run.json"
    )


def _error(value: float | None) -> str:
    return "an infinite or undefined number" if value is None else f"{value:.1e}"


def residuals_view(document: dict[str, Any]) -> RenderableType:
    """How far a calibration's constants are from what was measured, per kind."""
    made = table("|predicted / measured - 1|", "n", "median", "p90", "max", right=(1, 2, 3, 4))
    for name, found in (pair for part in document["residuals"].values() for pair in part.items()):
        shares = (percent(found[key]) for key in ("median", "p90", "max"))
        made.add_row(name, str(found["n"]), *shares)
    return made
