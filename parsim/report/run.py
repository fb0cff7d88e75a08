"""What a run measured beside what was predicted, as text."""

from __future__ import annotations

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
        format_seconds(step["median"]),
        percent(error["step_time"], signed=True),
    )
    made.add_row(
        "peak allocated",
        format_bytes(max(predicted["peak_allocated_bytes"])),
        format_bytes(max(measured["peak_allocated_bytes"])),
        percent(error["peak_memory"], signed=True),
    )
    loss = measured["loss"]
    lines = [
        f"step time: least {format_seconds(step['min'])}, deviation {format_seconds(step['mad'])} "
        f"over {step['n']} steps; bubble {percent(measured['bubble_fraction'])}",
        f"{measured['tokens_per_s']:,.0f} tokens/s, MFU {percent(measured['mfu'])}; "
        f"loss {loss[0]:.4f} -> {loss[-1]:.4f}",
        _verified(document["verify"]),
        f"device: {document['device']}; written to {out}",
    ]
    return Group(made, *(Text(line) for line in lines if line))


def _verified(found: dict[str, Any] | None) -> str:
    if found is None:
        return ""
    return (
        f"verified against {found['reference']}: largest gradient error "
        f"{found['max_gradient_error']:.1e} ({found['parameter'] or 'none'}), loss error "
        f"{found['max_loss_error']:.1e}"
    )


def residuals_view(document: dict[str, Any]) -> RenderableType:
    """How far a calibration's constants are from what was measured, per kind."""
    made = table("|predicted / measured - 1|", "n", "median", "p90", "max", right=(1, 2, 3, 4))
    for name, found in (pair for part in document["residuals"].values() for pair in part.items()):
        shares = (percent(found[key]) for key in ("median", "p90", "max"))
        made.add_row(name, str(found["n"]), *shares)
    return made
