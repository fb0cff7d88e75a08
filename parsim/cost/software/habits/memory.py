"""How long the tensors of a stack live, and what stands beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from parsim.cluster.hardware import Device


@dataclass(frozen=True, kw_only=True)
class MemoryHabits:
    """What is kept of layers and of the loss, copies, and what the allocator takes beside."""

    # Whether tensors live as eager autograd has them (`sim/memory/eager_peaks.py`).
    eager: bool
    # Values that unfused operators keep for each of theirs beside fused ones
    # (`cost/layer/eager.py`).
    eager_kept: Mapping[str, float] = field(hash=False)
    # What takes its place without torch.compile, where `uncompiled_values` do.
    uncompiled_kept: Mapping[str, float] = field(hash=False)
    # Whether a layer whose half-products are repeated keeps its output, which nothing needs, as
    # eager PyTorch does.
    keeps_output: bool
    # Whether a layer of context-parallel ranks keeps one more tensor of its attention's output.
    context_keeps_output: bool
    # Bytes of the loss live at the peak, per logit.
    loss_kept: float
    # Bytes of the loss live from there to backward, per logit.
    loss_saved: float
    # Whether what ZeRO-3 shards is the fp32 copy, gathered in 16 bit.
    fp32_shards: bool
    # Whether bf16 gradients of all parameters stand beside the fp32 ones, to which they are added
    # when a backward is over, and which ZeRO-1 does not share out (`cost/data/buckets.py`).
    gradient_copy: bool
    # Bytes a parameter that the update makes of 16-bit gradients beside them: of all of a rank's
    # parameters without ZeRO, and of its shard's under ZeRO-1 and ZeRO-2
    # (`sim/memory/update_moment.py`).
    update_copies: tuple[float, float]
    # Tensors as large as a moment that the update makes for each parameter (`moment_lists` there).
    update_lists: float
    # Whether gradients are let go between steps, so that the first backward of each makes them
    # anew (`sim/memory/fresh_gradients.py`).
    frees_gradients: bool
    # Whether what recomputed layers with frozen parameters keep stays until a sharded backward is
    # over, with the gradients of their outputs.
    holds_frozen: bool
    # Whether modules trained whole beside adapters are copies, with the frozen originals kept.
    saved_originals: bool
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
    # Bytes of kernels that no run uses and that are loaded into the driver's context all the same.
    unused_kernels: float
    # Bytes of library workspaces and small buffers on each device.
    workspace: float

    def context_memory(self, device: Device) -> float:
        """Bytes of the driver's context on a device, with all kernels that are loaded into it."""
        return device.context_memory + self.unused_kernels

    def usable_memory(self, device: Device) -> float:
        """Memory left for the training process beside the driver's context, bytes."""
        return device.memory - self.context_memory(device)
