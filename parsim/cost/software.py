"""What the training software does: fusion, launch cost, overlap, precision of gradients.

These are assumptions, apart from hardware constants, the same for every run of a software stack.
They live with their reasons in `software.yaml` and are printed by `parsim validate -v`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any

from parsim.errors import CatalogError, alternatives, matching, shown
from parsim.files import OnDemand, entries_of
from parsim.plan.names import USUAL, CpCommType

GENERIC = "generic"
"""Name of the software assumed where none is named."""

SWITCHES = (
    *("compile", "tp_overlap", "cuda_graphs", "blocking_launches", "fused_experts"),
    *("expert_dispatcher", "expert_overlap", "expert_imbalance", "quantized_dispatch"),
)
"""Fields that a job of a stack may set for itself, because its users do."""

_NOTHING_BESIDE: Mapping[str, Any] = {
    **dict.fromkeys(("overlap", "tp_overlap_backward"), 0.0),
    **dict.fromkeys(("tp_overlap", "overlap_p2p"), False),
    **dict.fromkeys(("overlap_grad_reduce", "overlap_param_gather"), False),
    "expert_overlap": {"default": 0.0},
}
"""What a host that waits for each kernel leaves of overlap."""

DISPATCHERS = ("alltoall", "deepep", "hybridep")
"""What moves tokens to experts (`cost/layer/dispatch.py`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """One software stack.

    `traffic` scales the bytes of memory-bound kernels (1: each value moved once). `compile` says
    that torch.compile fuses them in each layer, without which they move `eager_traffic` times as
    much (0: the stack has no such switch), `eager_values` what kinds of operators move forward and
    backward whose kernels are counted one by one (`cost/layer/eager.py`), and `eager_kept` what
    they keep beside fused ones,
    `scores_traffic` those of softmax and dropout over unfused attention's scores, to which
    `scores_beside` adds bytes of forward and of backward per 16-bit score. `launch_cost`
    is host seconds per kernel launch, `host_spread` the relative standard deviation of it
    between ranks, `microbatch_overhead` host seconds per micro-batch. `replica_spread` maps a
    compute precision (or "default") to the relative standard deviation of a step between
    replicas, which wait for the slowest one. `attention_factor` maps
    the start of a device id (or "default") to how fast the stack's fused attention runs beside
    the vendor's best kernel there, forward and backward. `executor` says that it is parsim's
    own, which refuses more (`plan/rules/executor/`). `selective` says what selective
    recomputation repeats: "attention" or "half-products", `recompute_region` that what a plan
    names to be repeated is one region of a compiler (`kept/recomputed_modules.py`), and
    `keeps_output` whether half-products keep a layer's output that nothing needs (eager PyTorch).
    `recomputes_last` says that the last of several micro-batches is recomputed like the others,
    `checkpoints_stages` that full recomputation keeps what enters a stage, not a layer.
    `fused_casts` says that a compiler folds casts to 8 bit into what makes their values,
    `quantized_gather` that sharded parameters of 8-bit products are gathered in 8 bit.
    `cp_comm_type` is how context-parallel ranks exchange keys and values where the plan does not
    say (`plan/names.py`); `context_balanced` that each gets one piece from either end of a
    causal sequence, and `context_keeps_output` that a layer keeps one more tensor of its
    attention's output. `loss_bytes` is moved, `loss_kept` live at the peak and `loss_saved`
    from there to backward, per logit. `reserved_share` is
    what the allocator reserves above the allocated bytes, and `prints_reserved` says that the
    stack's own figure of its peak is the reserved one. `fp32_shards` says that what ZeRO-3
    shards is the fp32 copy, gathered in 16 bit. `eager` says that tensors live as eager
    autograd has them (`parsim/sim/memory/eager_peaks.py`), `composes` that dropout, attention
    with it and RMS norms are several kernels each (`cost/layer/composed.py`),
    `reorders_convolutions` that gradients of convolutions are made in a layout of the library's
    first (`cost/layer/kept/graph_backward.py`), and
    `scatter_copies` how many copies of a bucket its library makes to reduce and scatter it.
    `overlap` is the share of
    data-parallel collectives that are issued beside compute, `tp_overlap` says that GEMMs are
    cut into chunks beside which their collectives run (`cost/layer/tensor_exchanges.py`),
    `tp_overlap_backward` is the share of those in backward that are issued beside a whole GEMM;
    what they take from compute is the hardware's (`cost/layer/interference.py`).
    `gathers_per_layer` and `scatters_per_layer` are how many collectives ZeRO-3 needs for a
    layer's parameters and gradients, and `reuse_distance` how many parameters may be used between
    two uses of a gathered one before it is let go (None: any number;
    `gathered_again` of `cost/step/stages.py`).
    `split_cost` is what each group of parameters adds to the host's seconds of a backward in two,
    to I and to W, and `split_reads` how often W reads its operands again, a norm's and a product's
    (`cost/layer/split_calls.py`).
    `staging` is moved per byte that a sharded collective carries, between its flat buffer and the
    tensors, and `piece_cost` host seconds for each rank's piece of it, where these are tensors of
    their own; `channels_last` are the precisions in which images are stored as kernels want them,
    channels innermost; `lookup_gradient` bytes per value of the token table by each backward.
    `optimizer_bytes` is moved per local parameter by a step, `norm_bytes` by the norm of its
    gradients before, `clip_bytes` where they are clipped; `norm_sums` are scalar all-reduces;
    `scaling_bytes` and `scaling_sums` are what fp16's scale of the loss adds to these.
    `expert_overlap` maps the start of a device id (or "default") to the share of dispatching
    tokens to experts and back that hides beside compute there, `expert_imbalance` is the tokens
    of the busiest rank's experts over
    the mean. `expert_launch` is host seconds per kernel launch around experts. `row_rate` is
    what kernels that gather rows or compute much for each value move a second and
    multiprocessor: those around experts' products, and Mamba-2's scan (0: as much as the
    memory). `fused_experts` says that products, activation, bias and casts of experts are fused
    kernels. `expert_dispatcher` is what moves them: "alltoall" sends a copy for each expert,
    "deepep" and "hybridep" one for each rank that holds any of a token's experts
    (`cost/layer/dispatch.py`), and `quantized_dispatch` says that 8-bit training sends them in 8
    bit. `graphs` are the parts of layers that CUDA graphs launch, as
    Megatron-Core names them, and `cuda_graphs` says that one graph launches a whole iteration.
    `blocking_launches` says that the host waits for each kernel (CUDA_LAUNCH_BLOCKING=1), so that
    its time comes on top of the device's and nothing runs beside anything else.
    `gradient_copy` says that bf16 gradients of all parameters stand beside the fp32 ones, to which
    they are added when a backward is over, and which ZeRO-1 does not share out
    (`cost/data/buckets.py`). `ddp_buckets` is whose rule cuts gradients into buckets,
    "torch" or "megatron", and `ddp_bucket_parameters` a size that replaces the rule's
    (`cost/data/buckets.py`). `schedules` are the pipeline schedules that the stack has, by parsim's
    names, none where it has no pipelines: a search that names none looks at these. `zero_stages`
    are the ZeRO stages that it has without a pipeline, and `pipeline_zero_stages` those that it has
    with one. `kv_heads` says what it does where tensor-parallel ranks are more than key-value heads
    (`parsim/model/shared_heads.py`): "copied", "gathered", or "whole" where each head must be on
    one rank. `balanced_cut` says that a pipeline whose cut nobody states is cut by the seconds of
    layers, embedding and head counted, where that is not slower than as many layers on every stage
    (`sim/cuts.py`).
    """

    id: str
    description: str
    traffic: float
    compile: bool
    eager_traffic: float
    eager_values: Mapping[str, tuple[float, float]]
    eager_kept: Mapping[str, float]
    scores_traffic: float
    scores_beside: tuple[float, float]
    launch_cost: float
    host_spread: float
    microbatch_overhead: float
    replica_spread: Mapping[str, float]
    attention_factor: Mapping[str, tuple[float, float]]
    executor: bool
    fused_attention: bool
    selective: str
    recompute_region: bool
    keeps_output: bool
    recomputes_last: bool
    checkpoints_stages: bool
    fused_gradient_accumulation: bool
    fused_casts: bool
    quantized_gather: bool
    cp_comm_type: CpCommType
    context_balanced: bool
    context_keeps_output: bool
    loss_bytes: float
    loss_kept: float
    loss_saved: float
    fp32_shards: bool
    prints_reserved: bool
    reserved_share: float
    eager: bool
    composes: bool
    reorders_convolutions: bool
    scatter_copies: float
    overlap: float
    tp_overlap: bool
    tp_overlap_backward: float
    gathers_per_layer: int
    scatters_per_layer: int
    reuse_distance: float | None
    staging: float
    piece_cost: float
    split_cost: tuple[float, float]
    split_reads: tuple[float, float]
    lookup_gradient: float
    channels_last: tuple[str, ...]
    optimizer_bytes: float
    optimizer_fixed: float
    norm_sums: float
    norm_bytes: float
    clip_bytes: float
    scaling_bytes: float
    scaling_sums: float
    workspace: float
    gradient_precision: str
    reduce_precision: str
    overlap_grad_reduce: bool
    overlap_param_gather: bool
    overlap_p2p: bool
    scatter_p2p: bool
    expert_overlap: Mapping[str, float]
    expert_imbalance: float
    row_rate: float
    fused_experts: bool
    expert_launch: float
    expert_dispatcher: str
    quantized_dispatch: bool
    graphs: tuple[str, ...]
    cuda_graphs: bool
    blocking_launches: bool
    gradient_copy: bool
    ddp_buckets: str
    ddp_bucket_parameters: float | None
    schedules: tuple[str, ...]
    zero_stages: tuple[int, ...]
    pipeline_zero_stages: tuple[int, ...]
    kv_heads: str
    balanced_cut: bool
    reasons: Mapping[str, str] = field(default_factory=dict)

    @property
    def captured(self) -> tuple[str, ...]:
        """What CUDA graphs launch: everything, or the parts of layers in `graphs`."""
        return ("all",) if self.cuda_graphs else self.graphs

    def spread_of_replicas(self, compute: str) -> float:
        """Relative standard deviation of a step between replicas, by the precision of products."""
        return float(self.replica_spread.get(compute, self.replica_spread["default"]))

    @property
    def between_microbatches(self) -> float:
        """Host seconds of a micro-batch; a graph of the whole iteration leaves none."""
        return 0.0 if self.cuda_graphs else self.microbatch_overhead

    def attention_speed(self, device_id: str) -> tuple[float, float]:
        """(forward, backward) factor on the device's attention efficiency."""
        forward, backward = self.attention_factor[_longest(self.attention_factor, device_id)]
        return float(forward), float(backward)

    def zero_stages_with(self, pp: int) -> tuple[int, ...]:
        """The ZeRO stages that the stack has with so many pipeline ranks."""
        return self.zero_stages if pp == 1 else self.pipeline_zero_stages

    @property
    def switches(self) -> dict[str, Any]:
        """What a scenario changed of the catalog's stack, by field."""
        usual = software_catalog().get(self.id, self)
        values = {name: getattr(self, name) for name in SWITCHES}
        changed = {name: now for name, now in values.items() if now != getattr(usual, name)}
        if "expert_overlap" in changed:
            changed["expert_overlap"] = self.expert_overlap["default"]
        return changed

    def switched(self, values: Mapping[str, Any]) -> Software:
        """The stack with some of `SWITCHES` set; `expert_overlap` is one share for all devices.

        Compiled, layers move less and let go what backward does not read.

        Raises:
            CatalogError: `compile` of a stack without that switch.
        """
        given = dict(values)
        if given.get("compile", self.compile) != self.compile:
            given |= self._compiled(given["compile"])
        if "expert_overlap" in given:
            given["expert_overlap"] = {"default": given["expert_overlap"]}
        if given.get("blocking_launches"):
            given |= _NOTHING_BESIDE
        return replace(self, **given)

    def _compiled(self, asked: bool) -> dict[str, Any]:
        """What changes where torch.compile is switched on or off."""
        if not self.eager_traffic:
            have = (name for name, stack in software_catalog().items() if stack.eager_traffic)
            raise CatalogError(
                f"software.compile={str(asked).lower()}: stack {self.id} has no such switch, its "
                f"kernels are what they are; stacks with it: {', '.join(sorted(have))}"
            )
        factor = 1.0 / self.eager_traffic if asked else self.eager_traffic
        return {"traffic": self.traffic * factor, "keeps_output": not asked}

    def expert_hidden(self, device_id: str) -> float:
        """Share of moving tokens to experts and back that hides beside compute."""
        return float(self.expert_overlap[_longest(self.expert_overlap, device_id)])


def _longest(keys: Iterable[str], device_id: str) -> str:
    """The longest of some starts of device ids that begins this one, or the default."""
    return max((key for key in keys if device_id.startswith(key)), key=len, default="default")


@cache
def software_catalog() -> Mapping[str, Software]:
    """All known software stacks by id; entries start from the one they name in `from`."""
    text = (files("parsim.cost") / "software.yaml").read_text(encoding="utf-8")
    entries = entries_of(text)

    def stated(name: str) -> dict[str, Any]:
        keys = dict(entries[name])
        base = keys.pop("from", None)
        return {**(stated(base) if base else {}), **keys}

    return OnDemand(entries, lambda name: _build(name, **stated(name)))


def _build(name: str, description: str, **entry: tuple[Any, str]) -> Software:
    """A stack of (value, reason) by field."""
    values = {key: value for key, (value, _) in entry.items()}
    for key in ("graphs", "channels_last", "zero_stages", "pipeline_zero_stages"):
        values[key] = tuple(values[key])
    values["cp_comm_type"] = CpCommType[values["cp_comm_type"].upper()]
    schedules = values["schedules"]
    values["schedules"] = USUAL if schedules == "all" else tuple(schedules)
    reasons = {key: reason for key, (_, reason) in entry.items()}
    return Software(id=name, description=description, reasons=reasons, **values)


def software(name: str) -> Software:
    """Look up a stack.

    Raises:
        CatalogError: unknown name.
    """
    catalog = software_catalog()
    known = matching(name, catalog)
    if known is None:
        rest = alternatives(name, sorted(catalog), listing="parsim catalog software")
        raise CatalogError(f"software '{shown(name)}' is unknown{rest}")
    return catalog[known]
