"""One line about each step of a run, as it goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parsim.units import format_bytes, format_seconds


def _counted(record: Mapping[str, Any]) -> str:
    return "samples" if record.get("tokens_of_sample") == 1 else "tokens"


def step_line(record: Mapping[str, Any]) -> str:
    """Step, loss, gradient norm, seconds, tokens/s and memory; see `executor.run.step_log`.

    Memory is the highest of all ranks: reserved on a GPU, else what the process has in RAM.
    """
    width = len(str(record["steps"]))
    memory = record["peak_reserved_bytes"] or record["resident_bytes"]
    parts = [
        f"step {record['step'] + 1:>{width}}/{record['steps']}",
        f"loss {_in_form(record['loss'], '.4f')}",
        f"norm {_in_form(record['gradient_norm'], '.3g')}",
        format_seconds(record["seconds"]),
        f"{record['tokens_per_s']:,.0f} {_counted(record)}/s",
    ]
    parts += [format_bytes(memory)] if memory else []
    parts += [f"{record['power_w']:.0f} W"] if record["power_w"] else []
    if "evaluation_loss" in record:
        parts.append(f"evaluation loss {_in_form(record['evaluation_loss'], '.4f')}")
    if record.get("skipped"):
        parts.append(f"skipped: gradients overflowed at scale {record['loss_scale']:g}")
    elif not record["timed"]:
        parts.append("warm-up")
    return "  ".join(parts)


def _in_form(value: float | None, form: str) -> str:
    return "undefined" if value is None else format(value, form)
