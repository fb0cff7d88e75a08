"""One step of a training as a line of text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parsim.units import format_bytes, format_seconds


def step_line(record: Mapping[str, Any]) -> str:
    """Step, loss, gradient norm, seconds, tokens/s and memory; see `executor.run.step_log`.

    Memory is the highest of all ranks: reserved on a GPU, else what the process has in RAM.
    """
    width = len(str(record["steps"]))
    memory = record["peak_reserved_bytes"] or record["resident_bytes"]
    parts = [
        f"step {record['step'] + 1:>{width}}/{record['steps']}",
        f"loss {_number(record['loss'], '.4f')}",
        f"norm {_number(record['gradient_norm'], '.3g')}",
        format_seconds(record["seconds"]),
        f"{record['tokens_per_s']:,.0f} tokens/s",
    ]
    parts += [format_bytes(memory)] if memory else []
    parts += [f"{record['power_w']:.0f} W"] if record["power_w"] else []
    if "evaluation_loss" in record:
        parts.append(f"evaluation loss {_number(record['evaluation_loss'], '.4f')}")
    parts += [] if record["timed"] else ["warm-up"]
    return "  ".join(parts)


def _number(value: float | None, form: str) -> str:
    return "undefined" if value is None else format(value, form)
