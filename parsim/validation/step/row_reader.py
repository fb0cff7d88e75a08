"""One measured training run per CSV row, checked; the schema users write for their own runs.

Columns and units: docs/accuracy.md, "Validate against your own runs". A
blank cell means the source does not say. A row that cannot be used raises RowSkipped with the
reason; it is never repaired.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parsim.errors import shown
from parsim.units import GIB
from parsim.validation.cells import publisher_of
from parsim.validation.step.blank_sizes import Filled, blank_sizes, filled_cells
from parsim.validation.step.known_models import known_mixture, unmodelled
from parsim.validation.step.measured_run import MeasuredRun
from parsim.validation.step.row_cells import RunCells
from parsim.validation.tables import RowSkipped

REQUIRED = (
    "row_id", "stack", "system", "gpu_type", "gpus_per_node", "n_gpus", "model", "seq_len",
    "tp", "pp", "dp", "micro_batch_size", "n_micro_batches", "global_batch_size", "step_time_s",
)  # fmt: skip
"""Columns that a table must have."""

OPTIONAL = (
    "source", "stack_release", "internode_gbit_per_s_per_node", "n_layers", "hidden_size",
    "n_heads", "n_kv_heads", "head_dim", "ffn_hidden_size", "vocab_size", "n_experts", "moe_topk",
    "moe_ffn_hidden_size", "precision", "vpp", "cp", "ep", "etp",
    "zero_stage", "fsdp_size", "sequence_parallel", "recompute", "schedule", "flash_attention",
    "overlap", "torch_compile", "step_time_from", "peak_memory_gib", "peak_memory_kind",
    "rank_order", "stage_layers", "ddp_bucket_parameters", "cuda_graphs", "graph_scopes",
    "expert_overlap", "expert_dispatcher", "fused_experts", "offload_layers", "fp8_scales",
    "gradient_precision", "dropout", "blocking_launches", "training_steps", "gpu_hours",
    "quantized_attention", "out_of_memory", "bubble_fraction", "t_forward_ms",
    "t_backward_input_ms", "t_backward_weight_ms", "t_p2p_ms", "task", "note", "split",
    "lora_rank", "lora_targets", "modules_to_save", "recompute_layers",
    "sample_length", "stack_lacks",
)  # fmt: skip
"""Columns that it may have; others are not read."""

ON_DEVICE = "nvidia-smi"
"""A cell of `peak_memory_kind` that begins so is of the whole device: the context counts too."""
RANKS = {"first rank": 0, "last rank": -1}
"""A cell of `peak_memory_kind` that begins so is of that rank of the pipeline alone."""

_SAME_NAME = (
    "n_heads", "gpus_per_node", "n_gpus", "n_layers", "hidden_size", "ffn_hidden_size", "seq_len",
    "vocab_size", "tp", "pp", "dp", "global_batch_size",
)  # fmt: skip
NEEDED = {
    **{name: name for name in _SAME_NAME},
    "microbatch_size": "micro_batch_size",
    "num_microbatches": "n_micro_batches",
}
"""Counts that every row must state, by the field: their columns."""

PRETRAIN, LORA = "pretrain", "lora"
TUNES = "sft"
"""Tasks that are predicted; a blank cell is the first. Fine-tuning of all parameters on sequences
that are packed to their full length has its step; `sample_length` says what shortens attention."""

COUNTS = (
    *("zero_stage", "moe_ffn_hidden_size", "offload_layers", "head_dim"),
    *("recompute_layers", "sample_length"),
)
"""Counts that may be blank."""

FLAGS = (
    *("sequence_parallel", "flash_attention", "torch_compile", "cuda_graphs", "dropout"),
    *("quantized_attention", "expert_overlap", "fused_experts"),
)
"""Switches that may be blank."""

TEXTS = ("precision", "recompute", "schedule")
"""Words that may be blank; the case checks them."""


def parse_row(row: Mapping[str, str]) -> MeasuredRun:
    """Check one row and give it types.

    Raises:
        RowSkipped: a needed figure is missing or garbage, or the row's arithmetic does not hold.
    """
    filled = blank_sizes(row)
    cells = RunCells({**row, **filled_cells(filled)})
    _in_scope(cells)
    run = MeasuredRun(
        **_plain(cells, row),
        **_with_defaults(cells),
        release=row.get("stack_release", ""),
        publisher=publisher_of(row.get("source", "")),
        split=row.get("split", ""),
        internode_gbit=cells.number("internode_gbit_per_s_per_node"),
        overlap=cells.overlap(),
        rank_order=cells.rank_order(),
        stage_layers=cells.stage_layers(),
        graph_scopes=cells.graph_scopes(),
        expert_dispatcher=cells.expert_dispatcher(),
        gradient_precision=cells.gradient_precision(),
        fp8_scales=cells.fp8_scales(),
        stack_lacks=cells.stack_lacks(),
        token_drop="tokendrop" in (cells.text("note") or ""),
        filled=_told(filled),
        **_measured(cells),
    )
    _arithmetic(run)
    measured = (run.step_time, run.peak_memory, run.bubble_fraction)
    if not run.out_of_memory and all(value is None for value in measured):
        raise RowSkipped("neither step_time_s nor peak_memory_gib is stated")
    return run


def _plain(cells: RunCells, row: Mapping[str, str]) -> dict[str, Any]:
    """Fields that are a cell each."""
    return {
        **{name: row[name] for name in ("row_id", "stack", "system", "gpu_type", "model")},
        **{name: cells.need(column) for name, column in NEEDED.items()},
        **{name: cells.integer(name) for name in COUNTS},
        **{name: cells.flag(name) for name in FLAGS},
        **{name: cells.text(name) for name in TEXTS},
    }


def _with_defaults(cells: RunCells) -> dict[str, Any]:
    """Counts whose blank cell says the usual: one chunk, no experts, heads that share nothing."""
    experts = cells.integer("n_experts") or 0
    return {
        "n_kv_heads": cells.integer("n_kv_heads") or cells.need("n_heads"),
        "v": cells.integer("vpp") or 1,
        "cp": cells.integer("cp") or 1,
        "ep": cells.integer("ep") or 1,
        "etp": cells.integer("etp") or None,
        "fsdp_size": cells.integer("fsdp_size") or 0,
        "bucket_parameters": cells.integer("ddp_bucket_parameters") or None,
        "training_steps": cells.integer("training_steps") or None,
        "blocking_launches": cells.flag("blocking_launches") or False,
        "lora_rank": cells.integer("lora_rank") or 0,
        "lora_targets": _names(cells, "lora_targets"),
        "modules_to_save": _names(cells, "modules_to_save"),
        "n_experts": experts,
        "moe_topk": cells.need("moe_topk") if experts else 0,
    }


def _names(cells: RunCells, column: str) -> tuple[str, ...]:
    """The names in a cell that are joined by +."""
    return tuple(filter(None, (cells.text(column) or "").split("+")))


def _measured(cells: RunCells) -> dict[str, Any]:
    """What was measured: seconds, bytes, the bubble, hours, or that memory ran out."""
    memory, kind = cells.number("peak_memory_gib"), cells.text("peak_memory_kind") or ""
    return {
        "step_time": cells.number("step_time_s"),
        "step_time_from": cells.text("step_time_from") or "",
        "device_hours": cells.number("gpu_hours"),
        "peak_memory": None if memory is None else memory * GIB,
        "bubble_fraction": cells.fraction("bubble_fraction"),
        "profile": cells.profile(),
        "memory_on_device": kind.startswith(ON_DEVICE),
        "memory_rank": next((RANKS[name] for name in RANKS if kind.startswith(name)), None),
        "out_of_memory": cells.flag("out_of_memory") or False,
    }


def _told(filled: Filled) -> tuple[str, ...]:
    return tuple(f"{column}={cell} ({why})" for column, (cell, why) in filled.items())


def _task(cells: RunCells) -> str:
    """The task in small letters; "LoRA fine-tune" is the same as "lora", "sft" as pre-training."""
    task = (cells.text("task") or PRETRAIN).lower().removesuffix(" fine-tune")
    return PRETRAIN if task == TUNES else task


def _in_scope(cells: RunCells) -> None:
    task = _task(cells)
    if task not in (PRETRAIN, LORA):
        known = f"only {PRETRAIN}, {TUNES} and {LORA}"
        raise RowSkipped(f"task '{shown(task)}' is out of scope ({known})")
    if (task == LORA) != bool(cells.integer("lora_rank")):
        raise RowSkipped(f"task {LORA} and lora_rank, the rank of the adapters, go together")
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
