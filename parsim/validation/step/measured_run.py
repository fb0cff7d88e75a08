"""One measured training run per CSV row, checked; the schema users write for their own runs.

Columns and units: docs/accuracy.md, "Validate against your own runs". A
blank cell means the source does
not say. A row that cannot be used raises RowSkipped with the reason; it is never repaired.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from parsim.errors import shown
from parsim.plan.precision import SUMS
from parsim.validation.step.blank_sizes import EXPERTS, SIZES, Filled, blank_sizes
from parsim.validation.step.blank_sizes import cells as filled_cells
from parsim.validation.step.known_models import known_mixture, unmodelled
from parsim.validation.tables import LEAST, MOST, RowSkipped

REQUIRED = (
    "row_id", "stack", "system", "gpu_type", "gpus_per_node", "n_gpus", "model", "seq_len",
    "tp", "pp", "dp", "micro_batch_size", "n_micro_batches", "global_batch_size", "step_time_s",
)  # fmt: skip
"""Columns that a table must have; all others of the schema may be absent."""

OPTIONAL = (
    "source", "stack_release", "internode_gbit_per_s_per_node", "n_layers", "hidden_size",
    "n_heads", "n_kv_heads", "ffn_hidden_size", "vocab_size", "n_experts", "moe_topk",
    "moe_ffn_hidden_size", "precision", "vpp", "cp", "ep", "etp",
    "zero_stage", "fsdp_size", "sequence_parallel", "recompute", "schedule", "flash_attention",
    "overlap", "torch_compile", "step_time_from", "peak_memory_gib", "peak_memory_kind",
    "rank_order", "stage_layers", "ddp_bucket_parameters", "cuda_graphs", "offload_layers",
    "gradient_precision", "dropout", "blocking_launches", "training_steps", "gpu_hours",
    "out_of_memory", "bubble_fraction", "t_forward_ms", "t_backward_input_ms",
    "t_backward_weight_ms", "t_p2p_ms", "task", "note",
)  # fmt: skip

TIMES = ("t_forward_ms", "t_backward_input_ms", "t_backward_weight_ms")
"""Milliseconds of a pipeline rank and micro-batch, its chunks together."""

ORDERED = ("pp", "dp", "cp", "tp")
"""What a cell of `rank_order` names, with + between, outermost first."""

OVERLAPS = ("none", "dp", "fsdp", "tp", "p2p", "p2p_scatter_gather")
"""What a cell of `overlap` may list, with + between."""

GIB = 2.0**30

ON_DEVICE = "nvidia-smi"
"""A cell of `peak_memory_kind` that begins so is of the whole device: the context counts too."""

LARGEST = 10**9
"""No count of a training run is larger; a typing mistake is."""


class Profile(NamedTuple):
    """Seconds of F, I and W of a pipeline rank and micro-batch, and of a message."""

    forward: float
    backward_input: float
    backward_weight: float
    message: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """One row, typed; None where the source does not say. Seconds and bytes.

    `rank_order` are the plan's axes, outermost first, `stage_layers` the layers of each stage in
    the pipeline's order, `bucket_parameters` those of one gradient bucket, `offload_layers` the
    layers of a stage whose activations are on the host. `memory_on_device` says that `peak_memory`
    is what the driver counts, `out_of_memory` that the run ended so, `training_steps` how many of
    these steps the whole training took, `device_hours` what it cost as published. `filled` are the
    sizes that were blank, each with where it is from.
    """

    row_id: str
    stack: str
    system: str
    gpu_type: str
    gpus_per_node: int
    internode_gbit: float | None
    n_gpus: int
    model: str
    n_layers: int
    hidden_size: int
    n_heads: int
    n_kv_heads: int
    ffn_hidden_size: int
    seq_len: int
    vocab_size: int
    precision: str | None
    tp: int
    pp: int
    v: int
    dp: int
    cp: int
    zero_stage: int | None
    fsdp_size: int
    microbatch_size: int
    num_microbatches: int
    global_batch_size: int
    sequence_parallel: bool | None
    recompute: str | None
    schedule: str | None
    flash_attention: bool | None
    overlap: frozenset[str] | None
    torch_compile: bool | None
    step_time: float | None
    step_time_from: str
    peak_memory: float | None
    bubble_fraction: float | None = None
    profile: Profile | None = None
    release: str = ""
    publisher: str = ""
    n_experts: int = 0
    moe_topk: int = 0
    moe_ffn_hidden_size: int | None = None
    ep: int = 1
    etp: int | None = None
    token_drop: bool = False
    rank_order: tuple[str, ...] | None = None
    stage_layers: tuple[int, ...] | None = None
    bucket_parameters: int | None = None
    cuda_graphs: bool | None = None
    gradient_precision: str | None = None
    dropout: bool | None = None
    blocking_launches: bool = False
    training_steps: int | None = None
    device_hours: float | None = None
    memory_on_device: bool = False
    out_of_memory: bool = False
    offload_layers: int | None = None
    filled: tuple[str, ...] = ()


class _Cells:
    """Typed access to one row's text."""

    def __init__(self, row: Mapping[str, str]) -> None:
        self.row = row

    def text(self, name: str) -> str | None:
        return self.row.get(name, "") or None

    def integer(self, name: str) -> int | None:
        cell = self.text(name)
        if cell is None:
            return None
        try:
            value = float(cell)
        except ValueError:
            raise RowSkipped(f"{name}='{shown(cell)}' is not a whole number") from None
        if not value.is_integer() or not 0 <= value <= LARGEST:
            raise RowSkipped(f"{name}='{shown(cell)}' is not a whole number from 0 to {LARGEST:,}")
        return int(value)

    def need(self, name: str) -> int:
        value = self.integer(name)
        if value is None:
            raise RowSkipped(f"{name} is not stated{self._unknown_model(name)}")
        if value < 1:
            raise RowSkipped(f"{name}={value} must be at least 1")
        return value

    def _unknown_model(self, name: str) -> str:
        """Why a blank size was not filled."""
        if name not in SIZES and name not in EXPERTS:
            return ""
        model = self.text("model") or ""
        return f" and not known of model {model!r}; write it, or a name of `parsim catalog models`"

    def _float(self, name: str) -> float | None:
        cell = self.text(name)
        try:
            return None if cell is None else float(cell)
        except ValueError:
            raise RowSkipped(f"{name}='{shown(cell)}' is not a number") from None

    def number(self, name: str) -> float | None:
        value = self._float(name)
        if value is not None and not LEAST <= value <= MOST:
            cell = shown(self.text(name))
            raise RowSkipped(f"{name}='{shown(cell)}' must be a number from {LEAST:g} to {MOST:g}")
        return value

    def fraction(self, name: str) -> float | None:
        value = self._float(name)
        if value is not None and not 0.0 <= value < 1.0:
            raise RowSkipped(f"{name}={self.text(name)!r} must be at least 0 and below 1")
        return value

    def profile(self) -> Profile | None:
        """All of F, I and W, or none; a message that is not stated takes no time."""
        stated = {name: self.number(name) for name in TIMES}
        message = 0.0 if self.text("t_p2p_ms") in ("0", "0.0") else self.number("t_p2p_ms")
        missing = [name for name, value in stated.items() if value is None]
        if len(missing) == len(TIMES) and message is None:
            return None
        if missing:
            raise RowSkipped(f"{', '.join(TIMES)} belong together, but {missing[0]} is not stated")
        times = (1e-3 * (value or 0.0) for value in (*stated.values(), message))
        return Profile(*times)

    def flag(self, name: str) -> bool | None:
        cell = self.text(name)
        if cell is None:
            return None
        if cell not in ("yes", "no"):
            raise RowSkipped(f"{name}='{shown(cell)}' must be yes, no or blank")
        return cell == "yes"

    def rank_order(self) -> tuple[str, ...] | None:
        """The axes of a plan, with both data axes where the cell says dp."""
        cell = self.text("rank_order")
        if cell is None:
            return None
        words = cell.split("+")
        if sorted(words) != sorted(ORDERED):
            allowed = "+".join(ORDERED)
            raise RowSkipped(
                f"rank_order='{shown(cell)}' must name each axis of {allowed} once, outermost first"
            )
        both = {"dp": ("dp_replicate", "dp_shard")}
        return tuple(axis for word in words for axis in both.get(word, (word,)))

    def stage_layers(self) -> tuple[int, ...] | None:
        """Layers of each stage; 0 of one that holds the embedding or the head alone."""
        cell = self.text("stage_layers")
        if cell is None:
            return None
        counts = cell.split("+")
        if not all(count.isdecimal() and int(count) <= LARGEST for count in counts):
            raise RowSkipped(
                f"stage_layers='{shown(cell)}' must be counts with + between, such as 7+8+8+7"
            )
        return tuple(map(int, counts))

    def gradient_precision(self) -> str | None:
        """What gradients are summed in."""
        cell = self.text("gradient_precision")
        if cell is not None and cell not in SUMS:
            raise RowSkipped(
                f"gradient_precision='{shown(cell)}' is unknown; allowed: {', '.join(SUMS)}"
            )
        return cell

    def overlap(self) -> frozenset[str] | None:
        cell = self.text("overlap")
        if cell is None:
            return None
        for word in cell.split("+"):
            if word not in OVERLAPS:
                raise RowSkipped(
                    f"overlap='{shown(word)}' is unknown; allowed: {', '.join(OVERLAPS)}"
                )
        return frozenset(cell.split("+"))


def parse_row(row: Mapping[str, str]) -> MeasuredRun:
    """Check one row and give it types.

    Raises:
        RowSkipped: a needed figure is missing or garbage, or the row's arithmetic does not hold.
    """
    filled = blank_sizes(row)
    cells = _Cells({**row, **filled_cells(filled)})
    _in_scope(cells)
    memory = cells.number("peak_memory_gib")
    heads = cells.need("n_heads")
    run = MeasuredRun(
        row_id=row["row_id"],
        stack=row["stack"],
        release=row.get("stack_release", ""),
        publisher=_publisher(row.get("source", "")),
        system=row["system"],
        gpu_type=row["gpu_type"],
        gpus_per_node=cells.need("gpus_per_node"),
        internode_gbit=cells.number("internode_gbit_per_s_per_node"),
        n_gpus=cells.need("n_gpus"),
        model=row["model"],
        n_layers=cells.need("n_layers"),
        hidden_size=cells.need("hidden_size"),
        n_heads=heads,
        n_kv_heads=cells.integer("n_kv_heads") or heads,
        ffn_hidden_size=cells.need("ffn_hidden_size"),
        seq_len=cells.need("seq_len"),
        vocab_size=cells.need("vocab_size"),
        precision=cells.text("precision"),
        tp=cells.need("tp"),
        pp=cells.need("pp"),
        v=cells.integer("vpp") or 1,
        dp=cells.need("dp"),
        cp=cells.integer("cp") or 1,
        zero_stage=cells.integer("zero_stage"),
        fsdp_size=cells.integer("fsdp_size") or 0,
        microbatch_size=cells.need("micro_batch_size"),
        num_microbatches=cells.need("n_micro_batches"),
        global_batch_size=cells.need("global_batch_size"),
        sequence_parallel=cells.flag("sequence_parallel"),
        recompute=cells.text("recompute"),
        schedule=cells.text("schedule"),
        flash_attention=cells.flag("flash_attention"),
        overlap=cells.overlap(),
        torch_compile=cells.flag("torch_compile"),
        step_time=cells.number("step_time_s"),
        step_time_from=cells.text("step_time_from") or "",
        peak_memory=None if memory is None else memory * GIB,
        bubble_fraction=cells.fraction("bubble_fraction"),
        profile=cells.profile(),
        n_experts=cells.integer("n_experts") or 0,
        moe_topk=cells.need("moe_topk") if cells.integer("n_experts") else 0,
        moe_ffn_hidden_size=cells.integer("moe_ffn_hidden_size"),
        ep=cells.integer("ep") or 1,
        etp=cells.integer("etp") or None,
        token_drop="tokendrop" in (cells.text("note") or ""),
        rank_order=cells.rank_order(),
        stage_layers=cells.stage_layers(),
        bucket_parameters=cells.integer("ddp_bucket_parameters") or None,
        cuda_graphs=cells.flag("cuda_graphs"),
        gradient_precision=cells.gradient_precision(),
        dropout=cells.flag("dropout"),
        blocking_launches=cells.flag("blocking_launches") or False,
        training_steps=cells.integer("training_steps") or None,
        device_hours=cells.number("gpu_hours"),
        memory_on_device=(cells.text("peak_memory_kind") or "").startswith(ON_DEVICE),
        out_of_memory=cells.flag("out_of_memory") or False,
        offload_layers=cells.integer("offload_layers"),
        filled=_told(filled),
    )
    _arithmetic(run)
    measured = (run.step_time, run.peak_memory, run.bubble_fraction)
    if not run.out_of_memory and all(value is None for value in measured):
        raise RowSkipped("neither step_time_s nor peak_memory_gib is stated")
    return run


def _publisher(source: str) -> str:
    """Who published a row: the first word of its source, a repository's owner or a first author."""
    return re.split(r"[/ ,]", source.strip(), maxsplit=1)[0]


def _told(filled: Filled) -> tuple[str, ...]:
    return tuple(f"{column}={cell} ({why})" for column, (cell, why) in filled.items())


def _in_scope(cells: _Cells) -> None:
    task = cells.text("task")
    if task not in (None, "pretrain"):
        raise RowSkipped(f"task '{shown(task)}' is out of scope (only pretrain)")
    ep, model = cells.integer("ep"), cells.text("model") or ""
    if (ep or 1) > 1 and not cells.integer("n_experts"):
        raise RowSkipped(
            unmodelled(model)
            or f"ep={ep}, but n_experts is not stated and '{shown(model)}' is not known"
        )


def _arithmetic(run: MeasuredRun) -> None:
    if run.hidden_size % run.n_heads and known_mixture(run.model) is None:
        raise RowSkipped(f"n_heads={run.n_heads} does not divide hidden_size={run.hidden_size}")
    world = run.tp * run.pp * run.dp * run.cp
    if world != run.n_gpus:
        product = "tp x pp x dp x cp" if run.cp > 1 else "tp x pp x dp"
        raise RowSkipped(f"{product} = {world} differs from n_gpus = {run.n_gpus}")
    batch = run.microbatch_size * run.num_microbatches * run.dp
    if batch != run.global_batch_size:
        raise RowSkipped(
            f"micro_batch_size x n_micro_batches x dp = {batch} differs from "
            f"global_batch_size = {run.global_batch_size}"
        )
