"""The scenario that somebody begins with: a small commented file, every value explained."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from parsim.cluster.hardware import System
from parsim.cluster.reader import load_catalog
from parsim.errors import matching
from parsim.model.graph.catalog import NETWORKS
from parsim.model.reader import model_spec

SAMPLES_A_DEVICE = 8
"""Sequences or images of a step for each device, where nobody states the batch."""
PRECISIONS = ("bf16", "fp16", "fp32")
"""What one trains in, the best first; a file states the first that the device has a rate for."""
COLUMN = 30
"""Characters before a comment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What a first scenario is about; without `batch` each device has SAMPLES_A_DEVICE.

    `model` is a name of the catalog or the path of a Hugging Face config.json.
    """

    model: str
    system: str
    nodes: int
    batch: int | None = None


def starter_text(start: Start, file: Path) -> str:
    """The YAML of a scenario without a plan, which `parsim search` finds; `file` is where it goes.

    Raises:
        CatalogError: there is no such model or system; the message names those that are near.
    """
    system = load_catalog().system(start.system)
    return "\n".join(_explained(*line) for line in _lines(start, system, file)) + "\n"


def _lines(start: Start, system: System, file: Path) -> Iterator[tuple[str, str]]:
    """Each line of the file with what is said of it."""
    devices = start.nodes * system.devices_per_node
    yield f"# parsim search {file}     the best plan", ""
    yield f"# parsim report {file} -o page.html     all of it on one page", ""
    yield "", ""
    yield "model:", ""
    yield from _model(start.model)
    yield "cluster:", ""
    yield f"  system: {system.id}", f"nodes of {system.devices_per_node} x {system.device.id}"
    yield f"  nodes: {start.nodes}", f"{devices} devices in all"
    yield "# software: megatron-lm", "whose code trains: parsim catalog software; default: generic"
    yield "training:", ""
    batch = start.batch or SAMPLES_A_DEVICE * devices
    yield f"  global_batch_size: {batch}", "samples of a step, of all devices together"
    precision = next(name for name in PRECISIONS if name in system.device.peak_flops)
    yield (
        f"  precision: {precision}",
        f"{system.device.id} has {', '.join(system.device.peak_flops)}",
    )
    yield "  # tokens: 1T", "of the whole run: then also days, dollars and kWh"
    yield "# plan: {tp: 8, pp: 2}", "one plan, for parsim simulate and timeline"
    yield "search: {}", "every legal plan; {tp: [1, 2, 4]} looks at these alone"


def _model(name: str) -> Iterator[tuple[str, str]]:
    """A model by its name, with the length of its sequences where it has any, or by its file."""
    if name.endswith(".json"):
        yield f"  name: {name}", "sizes as Hugging Face's config.json states them"
        return
    network = matching(name, NETWORKS)
    if network is not None:
        yield f"  name: {network}", "parsim catalog models"
        return
    spec = model_spec(name)
    yield f"  name: {spec.name}", "parsim catalog models; or the path of a config.json"
    yield f"  seq_len: {spec.seq_len}", "tokens of a sequence"


def _explained(line: str, comment: str) -> str:
    return f"{line.ljust(COLUMN)}  # {comment}" if comment else line
