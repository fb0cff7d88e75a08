"""Pipeline stages that Megatron-LM's arguments describe: how many a rank has, and their layers."""

from __future__ import annotations

import re
from typing import Any

from parsim.errors import InputError, shown
from parsim.frameworks.reading.arguments import Reader
from parsim.model.spec_rules import MAX_LAYERS

LAYOUT = "--pipeline-model-parallel-layout"
ENDS = (
    ("--decoder-first-pipeline-num-layers", "--num-layers-in-first-pipeline-stage"),
    ("--decoder-last-pipeline-num-layers", "--num-layers-in-last-pipeline-stage"),
)
"""Flags of the first and of the last rank's layers, and what Megatron-Core calls them."""


def stages_of(reader: Reader, pp: int) -> dict[str, Any]:
    """The chunks `v` of a rank where it has several, and `stage_layers` where a cut is said.

    Raises:
        InputError: a layout that is none, or of another number of stages.
    """
    if pp == 1:
        return {}
    if reader.has(LAYOUT):
        cut = _layout(reader.word(LAYOUT, ""))
        if len(cut) % pp:
            raise InputError(f"{LAYOUT} has {len(cut)} stages, no multiple of {pp} pipeline ranks")
        return _chunks(len(cut) // pp) | {"stage_layers": cut}
    chunks = _counted(reader, pp)
    ends = [next((flag for flag in flags if reader.has(flag)), "") for flags in ENDS]
    cut = _uneven(reader, pp, ends) if any(ends) and chunks == 1 else []
    if any(ends) and not cut:
        reader.read -= set(ends)  # virtual stages share a rank's layers out: told as not read
    return _chunks(chunks) | ({"stage_layers": cut} if cut else {})


def _chunks(count: int) -> dict[str, Any]:
    return {"v": count} if count > 1 else {}


def _counted(reader: Reader, pp: int) -> int:
    """Virtual stages of a rank, said in one of Megatron's two ways beside a layout."""
    if reader.has("--num-virtual-stages-per-pipeline-rank"):
        return reader.count("--num-virtual-stages-per-pipeline-rank")
    if reader.has("--num-layers-per-virtual-pipeline-stage"):
        each = reader.number("--num-layers-per-virtual-pipeline-stage", 1)
        return max(reader.number("--num-layers", 1) // (pp * max(each, 1)), 1)
    return 1


def _uneven(reader: Reader, pp: int, ends: list[str]) -> list[int]:
    """Layers of each rank where the first or last has others; none where the rest does not divide.

    The last one also predicts more than the next token.
    """
    first, last = (reader.count(flag) if flag else 0 for flag in ends)
    inner = pp - sum(map(bool, ends))
    rest = reader.number("--num-layers", 1) - first - last
    if pp > MAX_LAYERS or rest < 0 or rest % max(inner, 1) or (rest and not inner):
        return []
    cut = [*[first] * bool(first), *[rest // max(inner, 1)] * inner, *[last] * bool(last)]
    cut[-1] += reader.number("--mtp-num-layers", 0)
    return cut


def _layout(text: str) -> list[int]:
    """Layers of each stage of a layout: t and m are some, E and L none; x*n and (..)*n repeat.

    Source: `parse_str_to_list` of Megatron-Core's pipeline_parallel_layer_layout.py.
    """
    unrolled = text.replace(",", "").replace(" ", "")
    for pattern in (r"\(([^)]+)\)\*(\d{1,5})", r"(.)\*(\d{1,5})"):
        repeats = re.findall(pattern, unrolled)
        if sum(len(part) * int(times) for part, times in repeats) > 4 * MAX_LAYERS:
            raise InputError(f"{LAYOUT} {shown(text)} has more than {MAX_LAYERS} layers")
        unrolled = re.sub(pattern, lambda match: match[1] * int(match[2]), unrolled)
    if set(unrolled) - set("EtmL|"):
        raise InputError(f"{LAYOUT} {shown(text)} must be of E, t, m, L and |, as in Ettt|(tt|)*2L")
    return [stage.count("t") + stage.count("m") for stage in unrolled.split("|")]
