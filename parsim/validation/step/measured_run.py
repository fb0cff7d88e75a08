"""The record of a measured run: one row of a table, typed."""

from __future__ import annotations

from dataclasses import dataclass

from parsim.validation.step.row_cells import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """One row, typed; None where the source does not say. Seconds and bytes.

    `rank_order` are the plan's axes, outermost first, `stage_layers` the layers of each stage in
    the pipeline's order, `bucket_parameters` those of one gradient bucket, `offload_layers` the
    layers of a stage whose activations are on the host, `recompute_layers` those whose forward is
    repeated as a whole where `recompute` is "block", `graph_scopes` the parts of layers that graphs
    launch. `memory_on_device` says that `peak_memory`
    is what the driver counts, `memory_rank` whose it is in the pipeline (0, -1; None: the fullest
    one's), `out_of_memory` that the run ended so, `training_steps` how many of
    these steps the whole training took, `device_hours` what it cost as published. `split` says of a
    table that was split beforehand whether a row is for fits or judges them. `filled` are the
    sizes that were blank, each with where it is from. `lora_rank` is that of adapters beside
    frozen weights (0: all are trained), `lora_targets` the products that have one,
    `modules_to_save` what is trained whole beside them. Sequences are packed with samples of
    `sample_length` tokens that see themselves alone (None: each is one sample).
    `stack_lacks` is what the stack of that day did not have (`row_cells.LACKS`).
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
    head_dim: int | None = None
    ep: int = 1
    etp: int | None = None
    token_drop: bool = False
    rank_order: tuple[str, ...] | None = None
    stage_layers: tuple[int, ...] | None = None
    bucket_parameters: int | None = None
    cuda_graphs: bool | None = None
    graph_scopes: tuple[str, ...] = ()
    expert_overlap: bool | None = None
    expert_dispatcher: str | None = None
    fused_experts: bool | None = None
    quantized_attention: bool | None = None
    fp8_scales: str | None = None
    gradient_precision: str | None = None
    dropout: bool | None = None
    blocking_launches: bool = False
    training_steps: int | None = None
    device_hours: float | None = None
    memory_on_device: bool = False
    memory_rank: int | None = None
    out_of_memory: bool = False
    offload_layers: int | None = None
    recompute_layers: int | None = None
    split: str = ""
    lora_rank: int = 0
    lora_targets: tuple[str, ...] = ()
    modules_to_save: tuple[str, ...] = ()
    sample_length: int | None = None
    stack_lacks: tuple[str, ...] = ()
    filled: tuple[str, ...] = ()
