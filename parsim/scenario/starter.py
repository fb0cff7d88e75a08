"""The scenario that somebody begins with: a small commented file, every value explained."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from parsim.cluster.hardware import System
from parsim.cluster.reader import load_catalog
from parsim.cost.software import software
from parsim.errors import InputError, matching
from parsim.model.config.file import read_config
from parsim.model.graph.catalog import NETWORKS
from parsim.model.huggingface import spec_from_config
from parsim.model.reader import model_spec

SAMPLES_A_DEVICE, IMAGES_A_DEVICE = 8, 64
"""Sequences or images of a step for each device, where nobody states the batch."""
PRECISIONS = ("bf16", "fp16", "fp32")
"""What one trains in, the best first; a file states the first that the device has a rate for."""
TOKENS = 4096
"""Tokens of a sequence of a model that comes by its config; those of the catalog have their own."""
COLUMN = 30
"""Characters before a comment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What a first scenario is about; without `batch` each device has some samples.

    `model` is a name of the catalog or the path of a Hugging Face config.json. `devices_per_node`
    is how many devices of a node are used where these are not all, `seq_len` the tokens of a
    sequence where they are not the model's usual ones, `software` whose code trains.
    """

    model: str
    system: str
    nodes: int
    batch: int | None = None
    devices_per_node: int | None = None
    seq_len: int | None = None
    software: str | None = None


def starter_text(start: Start, file: Path) -> str:
    """The YAML of a scenario without a plan, which `parsim search` finds; `file` is where it goes.

    Raises:
        CatalogError: there is no such model, system or software; the message names those near it.
        InputError: a length of sequences for a network that has none.
    """
    system = load_catalog().system(start.system)
    return "\n".join(_explained(*line) for line in _lines(start, system, file)) + "\n"


def _lines(start: Start, system: System, file: Path) -> Iterator[tuple[str, str]]:
    """Each line of the file with what is said of it."""
    yield f"# parsim search {file}     the best plan", ""
    yield f"# parsim report {file} -o page.html     all of it on one page", ""
    yield "", ""
    yield "model:", ""
    yield from _model(start, file)
    yield from _cluster(start, system)
    yield _software(start, system)
    yield "training:", ""
    batch = start.batch or _samples(start.model) * _devices(start, system)
    yield f"  global_batch_size: {batch}", "samples of a step, of all devices together"
    known = ("fp32",) if system.library == "gloo" else PRECISIONS
    precision = next(name for name in known if name in system.device.peak_flops)
    yield (
        f"  precision: {precision}",
        f"{system.device.id} has {', '.join(system.device.peak_flops)}",
    )
    yield "  # tokens: 1T", "of the whole run: then also days, dollars and kWh"
    yield f"# plan: {_plan(start, system)}", "one plan, for parsim simulate and timeline"
    yield "search: {}", "every legal plan; {tp: [1, 2, 4]} looks at these alone"


def _plan(start: Start, system: System) -> str:
    """A plan that the job may have: a pipeline of two where there are devices for it."""
    paired = matching(start.model, NETWORKS) is None and _devices(start, system) % 2 == 0
    return "{pp: 2, microbatch_size: 1}" if paired else "{microbatch_size: 1}"


def _software(start: Start, system: System) -> tuple[str, str]:
    """Whose code trains: on CPUs parsim's own, which alone can be tried there."""
    if start.software is not None:
        stack = software(start.software)
        return f"software: {stack.id}", "whose code trains: parsim catalog software"
    if system.library == "gloo":
        return "software: executor-cpu", "what parsim run itself does on CPUs"
    return "# software: megatron-lm", "whose code trains: parsim catalog software; default: generic"


def _samples(model: str) -> int:
    """Samples of a step for each device: sequences, or images of a network of the catalog."""
    return SAMPLES_A_DEVICE if matching(model, NETWORKS) is None else IMAGES_A_DEVICE


def _devices(start: Start, system: System) -> int:
    return start.nodes * (start.devices_per_node or system.devices_per_node)


def _cluster(start: Start, system: System) -> Iterator[tuple[str, str]]:
    """The kind of node, how many, and how many devices of each where these are not all."""
    yield "cluster:", ""
    yield f"  system: {system.id}", f"nodes of {system.devices_per_node} x {system.device.id}"
    devices = _devices(start, system)
    yield f"  nodes: {start.nodes}", f"{devices} device{'s' if devices > 1 else ''} in all"
    if start.devices_per_node is not None:
        yield f"  devices_per_node: {start.devices_per_node}", "of each node"


def _model(start: Start, file: Path) -> Iterator[tuple[str, str]]:
    """A model by its name, with the length of its sequences where it has any, or by its file."""
    name = start.model
    if name.endswith(".json"):
        yield f"  name: {name}", "sizes as Hugging Face's config.json states them"
        yield from _length(start, file)
        return
    network = matching(name, NETWORKS)
    if network is not None:
        if start.seq_len is not None:
            raise InputError(f"--seq-len {start.seq_len}: {network} has no such length; leave it")
        yield f"  name: {network}", "parsim catalog models"
        return
    spec = model_spec(name)
    yield f"  name: {spec.name}", "parsim catalog models; or the path of a config.json"
    yield f"  seq_len: {start.seq_len or spec.seq_len}", "tokens of a sequence"
    yield "  # lora_rank: 16", "LoRA: trains adapters of this rank, all else is frozen"


def _length(start: Start, file: Path) -> Iterator[tuple[str, str]]:
    """The length of sequences that a config's model is trained on: few train on the longest.

    Nothing of a config that cannot be read yet.
    """
    config = start.model
    try:
        longest = spec_from_config(read_config(file.parent / config), name=config).seq_len
    except InputError:
        return
    length = start.seq_len or min(longest, TOKENS)
    yield f"  seq_len: {length}", f"tokens of a sequence; the config allows {longest}"


def _explained(line: str, comment: str) -> str:
    return f"{line.ljust(COLUMN)}  # {comment}" if comment else line
