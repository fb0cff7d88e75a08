"""A software stack as a record: each field is a habit that costs or a choice that is left to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from parsim.cluster.hardware import Device
from parsim.plan.names import CpCommType

DISPATCHERS = ("alltoall", "deepep", "hybridep")
"""What moves tokens to experts (`cost/layer/mixture/dispatch.py`)."""

EXPERT_CHOICES = ("drawn", "consecutive")
"""How a token's experts lie among all, as `Routing` in the same file counts them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """One software stack: what it does, and what that costs the host and the memory."""

    # Its key in `software.yaml`.
    id: str
    # A sentence about it.
    description: str
    # Bytes of memory-bound kernels over those of moving each value once.
    traffic: float
    # Whether torch.compile fuses the memory-bound kernels of each layer.
    compile: bool
    # How many times as much they move without it (0: the stack has no such switch).
    eager_traffic: float
    # Values that kinds of operators move forward and backward for each of theirs, where kernels are
    # counted one by one, or fused ("relu fp16": in that precision; `cost/layer/eager.py`).
    eager_values: Mapping[str, tuple[float, float]] = field(hash=False)
    # Values that these keep for each of theirs beside fused ones.
    eager_kept: Mapping[str, float] = field(hash=False)
    # `traffic` of softmax and dropout over unfused attention's scores.
    scores_traffic: float
    # Bytes that forward and backward move beside, per 16-bit score.
    scores_beside: tuple[float, float]
    # Host seconds of a kernel's launch.
    launch_cost: float
    # Those in a mixture of experts, beside its experts (0: the same).
    mixture_launch: float
    # Standard deviation of the log of what hosts take, where no run of the stack shows it.
    launch_spread: float
    # Relative standard deviation of it between ranks.
    host_spread: float
    # Host seconds of a micro-batch.
    microbatch_overhead: float
    # Bytes/s at which a host copies its devices' samples to them before a micro-batch, with nothing
    # beside (0: they are there by then; `cost/step/layer_table.py`).
    input_copy_rate: float
    # Whether the host takes up the next micro-batch while the device still computes.
    runs_ahead: bool
    # Relative standard deviation of a step between replicas, which wait for the slowest one, by
    # what a sample is ("images", else tokens) and compute precision: "images fp16", "images",
    # "fp16", or "default".
    replica_spread: Mapping[str, float] = field(hash=False)
    # How fast fused attention runs beside the vendor's best kernel, forward and backward, by the
    # start of a device id (or "default").
    attention_factor: Mapping[str, tuple[float, float]] = field(hash=False)
    # Whether it is parsim's own, which refuses more (`plan/rules/executor/`).
    executor: bool
    # Whether attention is one kernel where the model does not say.
    fused_attention: bool
    # What selective recomputation repeats: "attention" or "half-products".
    selective: str
    # Whether what a plan names to be repeated is one region of a compiler
    # (`kept/recomputed_modules.py`).
    recompute_region: bool
    # Whether half-products keep a layer's output that nothing needs, as eager PyTorch does.
    keeps_output: bool
    # Whether the last of several micro-batches is recomputed like the others.
    recomputes_last: bool
    # Whether full recomputation keeps what enters a stage, not a layer.
    checkpoints_stages: bool
    # Whether products of weight gradients add to them, with no kernel of its own for that.
    fused_gradient_accumulation: bool
    # Whether a compiler folds casts to 8 bit into what makes their values.
    fused_casts: bool
    # Scales of 8-bit products with one a tensor: "delayed", from the maxima of steps before, or
    # "current", from the values themselves (`plan/precision.py`).
    fp8_scales: str
    # Whether sharded parameters of 8-bit products are gathered in 8 bit.
    quantized_gather: bool
    # How context-parallel ranks exchange keys and values where the plan does not say
    # (`plan/names.py`).
    cp_comm_type: CpCommType
    # Whether each of them gets one piece from either end of a causal sequence.
    context_balanced: bool
    # Whether a layer then keeps one more tensor of its attention's output.
    context_keeps_output: bool
    # Bytes that the loss moves per logit.
    loss_bytes: float
    # Bytes of it live at the peak, per logit.
    loss_kept: float
    # Bytes of it live from there to backward, per logit.
    loss_saved: float
    # Whether what ZeRO-3 shards is the fp32 copy, gathered in 16 bit.
    fp32_shards: bool
    # Whether its pipelines are stages of torch.distributed.pipelining, which have a buffer for each
    # micro-batch.
    torch_stages: bool
    # Whether the stack's own figure of its peak is the reserved memory.
    prints_reserved: bool
    # Stacks whose memory is counted alike have one name, so that one's measured peaks say how sure
    # the others' are ("": of none such).
    memory_family: str
    # Share that the allocator reserves above the allocated bytes.
    reserved_share: float
    # Whether tensors live as eager autograd has them (`sim/memory/eager_peaks.py`).
    eager: bool
    # Whether dropout, attention with it and RMS norms are several kernels each
    # (`cost/layer/composed.py`).
    composes: bool
    # Whether gradients of convolutions are made in a layout of the library's first
    # (`cost/layer/kept/graph_backward.py`).
    reorders_convolutions: bool
    # Copies of a bucket that its library makes to reduce and scatter it.
    scatter_copies: float
    # Share of data-parallel collectives that are issued beside compute; what they take from it is
    # the hardware's (`cost/layer/interference.py`).
    overlap: float
    # Whether products are cut into chunks beside which the collectives of tensor parallelism run
    # (`cost/layer/tensor_exchanges.py`).
    tp_overlap: bool
    # Whether copy engines carry those chunks from rank to rank, in 16 bit where they are gathered.
    tp_rings: bool
    # Share of these in backward that are issued beside a whole product.
    tp_overlap_backward: float
    # Whether ZeRO-3's gradients add up whole over micro-batches and are reduced with the last one.
    sums_whole: bool
    # Whether matrices that read the same input share its exchange (`cost/layer/products.py`).
    joined_inputs: bool
    # Whether logits are gathered, so that every tensor rank has the loss of all words.
    whole_logits: bool
    # Whether modules trained whole beside adapters are copies, with the frozen originals kept.
    saved_originals: bool
    # Collectives that ZeRO-3 needs for a layer's parameters.
    gathers_per_layer: int
    # Collectives that it needs for a layer's gradients.
    scatters_per_layer: int
    # Parameters that may be used between two uses of a gathered one before it is let go (None: any
    # number; `gathered_again` of `cost/step/stages.py`).
    reuse_distance: float | None
    # Bytes moved between flat buffer and tensors, per byte of a sharded collective.
    staging: float
    # Host seconds for each rank's piece of it, where these are tensors of their own.
    piece_cost: float
    # Host seconds that each group of parameters adds to I and to W of a backward in two
    # (`cost/layer/split_calls.py`).
    split_cost: tuple[float, float]
    # Times that W reads its operands again, a norm's and a product's.
    split_reads: tuple[float, float]
    # Bytes that each backward moves per value of the token table.
    lookup_gradient: float
    # Precisions in which images are stored as kernels want them, channels innermost.
    channels_last: tuple[str, ...]
    # Release of cuDNN, which says what ways of convolving there are in fp32 (`kernel/windows.py`).
    cudnn: float
    # Bytes that one of these may take beside its tensors.
    convolution_workspace: float
    # Release of cuDNN from which on batch normalisation asks for its persistent kernels
    # (`cost/layer/eager.py`).
    persistent_norms: float
    # Bytes that a step of the optimizer moves per local parameter.
    optimizer_bytes: float
    # Host seconds of such a step.
    optimizer_fixed: float
    # Those that it has for each tensor of parameters.
    tensor_update: float
    # Scalar all-reduces before it.
    norm_sums: float
    # Bytes that the norm of its gradients moves, per local parameter.
    norm_bytes: float
    # Bytes that clipping them moves, per local parameter.
    clip_bytes: float
    # Bytes that fp16's scale of the loss adds, per local parameter.
    scaling_bytes: float
    # Scalar all-reduces that it adds.
    scaling_sums: float
    # Bytes of kernels that no run uses and that are loaded into the driver's context all the same.
    unused_kernels: float
    # Bytes of library workspaces and small buffers on each device.
    workspace: float
    # What gradients are accumulated in where the plan does not say: "fp32" or "same".
    gradient_precision: str
    # What they are reduced in where the plan does not say: "fp32" or "same".
    reduce_precision: str
    # Whether gradients are reduced beside backward where the plan does not say.
    overlap_grad_reduce: bool
    # Whether parameters are gathered beside forward where the plan does not say.
    overlap_param_gather: bool
    # Whether stages send and receive beside compute where the plan does not say.
    overlap_p2p: bool
    # Whether each tensor rank sends its share of a border where the plan does not say.
    scatter_p2p: bool
    # Share of moving tokens to experts and back that hides beside compute, by the start of a device
    # id (or "default").
    expert_overlap: Mapping[str, float] = field(hash=False)
    # Launches around a layer's experts, in either direction, that its exchanges take beside another
    # micro-batch's compute.
    overlap_launches: float
    # Tokens of the busiest rank's experts over the mean.
    expert_imbalance: float
    # Bytes a second that each multiprocessor moves in kernels that gather rows or compute much for
    # each value: around experts' products, and Mamba-2's scan (0: as much as the memory).
    row_rate: float
    # Whether products, activation, bias and casts of experts are fused kernels.
    fused_experts: bool
    # Host seconds of a kernel's launch around experts.
    expert_launch: float
    # What moves tokens to experts: "alltoall" sends a copy for each expert, "deepep" and "hybridep"
    # one for each rank that holds any of a token's experts (`cost/layer/mixture/dispatch.py`).
    expert_dispatcher: str
    # How a token's experts lie among all: "drawn" evenly, or "consecutive" ones, as some benchmarks
    # deal them out.
    expert_choice: str
    # Whether 8-bit training sends them in 8 bit.
    quantized_dispatch: bool
    # Whether it computes the logits in 8 bit too.
    quantized_logits: bool
    # Whether it runs attention in 8 bit too.
    quantized_attention: bool
    # Parts of layers that CUDA graphs launch, as Megatron-Core names them.
    graphs: tuple[str, ...]
    # Whether one graph launches a whole iteration.
    cuda_graphs: bool
    # Whether the host waits for each kernel (CUDA_LAUNCH_BLOCKING=1), so that its time comes on top
    # of the device's and nothing runs beside anything else.
    blocking_launches: bool
    # Whether bf16 gradients of all parameters stand beside the fp32 ones, to which they are added
    # when a backward is over, and which ZeRO-1 does not share out (`cost/data/buckets.py`).
    gradient_copy: bool
    # Bytes a parameter that the update makes of 16-bit gradients beside them: of all of a rank's
    # parameters without ZeRO, and of its shard's under ZeRO-1 and ZeRO-2 (`sim/memory/buffers.py`).
    update_copies: tuple[float, float]
    # Whose rule cuts gradients into buckets: "torch" or "megatron" (`cost/data/buckets.py`).
    ddp_buckets: str
    # Parameters of a bucket that replace the rule's (None: the rule's).
    ddp_bucket_parameters: float | None
    # Pipeline schedules that the stack has, by parsim's names: a search that names none looks at
    # these (empty: it has no pipelines).
    schedules: tuple[str, ...]
    # ZeRO stages that it has without a pipeline.
    zero_stages: tuple[int, ...]
    # ZeRO stages that it has with a pipeline.
    pipeline_zero_stages: tuple[int, ...]
    # What it does where tensor-parallel ranks are more than key-value heads: "copied", "gathered",
    # or "whole" where each head must be on one rank (`model/shared_heads.py`).
    kv_heads: str
    # Whether a pipeline whose cut nobody states is cut by the seconds of layers, embedding and head
    # counted, where that is not slower than as many layers on every stage (`sim/cuts.py`).
    balanced_cut: bool
    # Why each field is what it is, by field.
    reasons: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def captured(self) -> tuple[str, ...]:
        """What CUDA graphs launch: everything, or the parts of layers in `graphs`."""
        return ("all",) if self.cuda_graphs else self.graphs

    def spread_of_replicas(self, compute: str, *, images: bool) -> float:
        """Relative standard deviation of a step between replicas.

        Args:
            compute: the precision of products.
            images: whether samples are images, which a stack may spread otherwise than sentences.
        """
        keys = (*((f"images {compute}", "images") if images else ()), compute)
        known = (self.replica_spread[key] for key in keys if key in self.replica_spread)
        return float(next(known, self.replica_spread["default"]))

    def launch_of(self, *, mixture: bool) -> float:
        """Host seconds of a kernel's launch in a mixture of experts, or in another model."""
        return (self.mixture_launch if mixture else 0.0) or self.launch_cost

    def launch_doubt(self, *, mixture: bool) -> float:
        """How much hosts of other machines differ, ln; none where runs of mixtures show theirs."""
        return 0.0 if mixture and self.mixture_launch else self.launch_spread

    @property
    def between_microbatches(self) -> float:
        """Host seconds of a micro-batch; a graph of the whole iteration leaves none."""
        return 0.0 if self.cuda_graphs else self.microbatch_overhead

    def attention_speed(self, device_id: str) -> tuple[float, float]:
        """(forward, backward) factor on the device's attention efficiency."""
        forward, backward = self.attention_factor[_longest(self.attention_factor, device_id)]
        return float(forward), float(backward)

    def context_memory(self, device: Device) -> float:
        """Bytes of the driver's context on a device, with all kernels that are loaded into it."""
        return device.context_memory + self.unused_kernels

    def usable_memory(self, device: Device) -> float:
        """Memory left for the training process beside the driver's context, bytes."""
        return device.memory - self.context_memory(device)

    def zero_stages_with(self, pp: int) -> tuple[int, ...]:
        """The ZeRO stages that the stack has with so many pipeline ranks."""
        return self.zero_stages if pp == 1 else self.pipeline_zero_stages

    def expert_hidden(self, device_id: str) -> float:
        """Share of moving tokens to experts and back that hides beside compute."""
        return float(self.expert_overlap[_longest(self.expert_overlap, device_id)])


def _longest(keys: Iterable[str], device_id: str) -> str:
    """The longest of some starts of device ids that begins this one, or the default."""
    return max((key for key in keys if device_id.startswith(key)), key=len, default="default")
