"""Everything that a plan states, field by field, and the counts of ranks and samples it makes."""

from __future__ import annotations

from dataclasses import dataclass
from operator import mul

from parsim.plan.names import CpCommType, Recompute
from parsim.plan.stages import Stage
from parsim.plan.strategies import DDP, Strategy

BUCKET_BYTES = 160e6
"""Size of a gradient bucket where nothing else is said: 40 million in fp32."""

AXES = ("pp", "dp_replicate", "dp_shard", "cp", "tp")
"""Mesh axes whose degrees multiply to the world size."""

RANK_ORDER = AXES
"""Default order, outermost first: tensor-parallel neighbours are adjacent ranks."""

REPLICAS_OUTSIDE = ("dp_replicate", "dp_shard", "pp", "cp", "tp")
"""The order in which each pipeline's ranks are neighbours: Megatron's --use-tp-pp-dp-mapping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFields:
    """The stated fields of a plan, without what follows from them; each has its comment."""

    # Degrees of the mesh: tensor parallel, pipeline, replicas whole and sharded, context parallel.
    tp: int = 1
    pp: int = 1
    dp_replicate: int = 1
    dp_shard: int = 1
    cp: int = 1
    # How context-parallel ranks exchange keys and values (`plan/names.py`).
    cp_comm_type: CpCommType = CpCommType.DEFAULT
    # `ep` shares out the experts of each layer to neighbouring ranks of a pipeline stage and `etp`
    # splits each of them: both divide the stage's dp x cp x tp ranks and are no factors of the
    # world. Ranks that hold the same experts, dp x cp x tp / (ep x etp), reduce their gradients.
    ep: int = 1
    etp: int = 1
    # Samples in a micro-batch, and micro-batches of a replica in a step (with `stages`: those of
    # all replicas of a stage together).
    microbatch_size: int = 1
    num_microbatches: int = 1
    # A named schedule, the file of one of the user's own, or "auto": ordered for the plan itself.
    schedule: str = "1f1b"
    # The CSV of the user's own schedule, or the order that `sim/orders` found for "auto". It is
    # text and no `Schedule`, so that a plan still holds all that decides its step, compares and
    # hashes like its other fields, and needs nothing of the schedule layer above it;
    # `parsim.schedule.schedule_of` reads it, once for all plans that share it.
    actions: str | None = None
    # What a zero-bubble schedule is searched for: F, I, W and a message in any unit, and the share
    # of activations that W needs (None: 1, 1, 1, 0 and 1). The order of actions follows from them.
    action_times: tuple[float, float, float, float, float] | None = None
    # Chunks (virtual stages) on each pipeline rank.
    v: int = 1
    # Layers of each of the pp*v stages (None: as even as possible, `cost/step/stages.py`; what a
    # scenario or a search makes of a plan that states none: `sim/cuts.py`).
    stage_layers: tuple[int, ...] | None = None
    # Optimizer states (1), gradients (2), parameters (3) are shared out over `dp_shard` x `cp`:
    # ranks of a context-parallel group hold the same parameters.
    zero_stage: int = 0
    # Norms and dropout take 1/tp of the sequence on each tensor-parallel rank.
    sequence_parallel: bool = False
    # What backward computes again in every layer.
    recompute: Recompute = Recompute.NONE
    # Parts of a layer that are computed again, as Megatron-Core names them, beside or instead of
    # what `recompute` says (`cost/layer/kept/recomputed_modules.py`).
    recompute_modules: tuple[str, ...] = ()
    # The first layers of each stage that are computed again as a whole, whatever `recompute` says
    # of the others: Megatron-Core's `--recompute-method block`.
    recompute_layers: int = 0
    # The first layers of each stage whose activations stay in the host's memory between forward
    # and backward, and which of their parts do (empty: all): `cost/layer/kept/activations.py`.
    offload_layers: int = 0
    offload_modules: tuple[str, ...] = ()
    # Optimizer states and fp32 parameters stay in the host's memory, which then updates them
    # (`cost/data/host_update.py`): DeepSpeed's `offload_optimizer`.
    optimizer_offload: bool = False
    # A name of `plan/precision.py`; then what gradients are accumulated in and what is sent of
    # them: "fp32" or "same" (as the parameters).
    precision: str = "bf16"
    gradient_precision: str = "fp32"
    reduce_precision: str = "fp32"
    # Size of a gradient bucket (None: the software's, `cost/data/buckets.py`).
    bucket_bytes: float | None = None
    # Which communication runs beside compute: of gradients, of parameters, between stages.
    overlap_grad_reduce: bool = True
    overlap_param_gather: bool = True
    overlap_p2p: bool = False
    # Each rank sends 1/tp of a stage boundary, which is gathered inside the node.
    scatter_p2p: bool = False
    # Mesh axes in the order in which ranks are numbered, outermost first.
    rank_order: tuple[str, ...] = RANK_ORDER
    # Groups of a mixed cluster in the order in which ranks fill their nodes (`cluster/groups.py`).
    node_order: tuple[str, ...] | None = None
    # Micro-batches of each replica where they differ, dp_replicate outside of dp_shard;
    # `num_microbatches` is then the largest.
    replica_microbatches: tuple[int, ...] | None = None
    # What keeps replicas one model, with its options (`plan/strategies/`).
    strategy: Strategy = DDP
    # Batch normalisation shares its statistics among all data-parallel ranks, so that they
    # normalise as one process with the whole batch would.
    sync_batch_norm: bool = False
    # Layers and replicas of each of pp stages (`plan/stages.py`); dp is then 1.
    stages: tuple[Stage, ...] | None = None

    @property
    def dp(self) -> int:
        """Number of model replicas, sharded or not."""
        return self.dp_replicate * self.dp_shard

    @property
    def world_size(self) -> int:
        """Number of ranks: the product of all axes, or the replicas of all stages."""
        if self.stages is not None:
            counts = (stage.replicas for stage in self.stages)
            return int(sum(map(mul, counts, self.stage_tp)) * self.cp)
        return self.pp * self.dp * self.cp * self.tp

    @property
    def stage_tp(self) -> tuple[int, ...]:
        """Tensor-parallel ranks of each pipeline rank's stages."""
        if self.stages is None:
            return (self.tp,) * self.pp
        return tuple(stage.tp or self.tp for stage in self.stages)

    @property
    def num_stages(self) -> int:
        """Stages of one copy of the model: pp * v."""
        return self.pp * self.v

    @property
    def stage_ranks(self) -> int:
        """Ranks of one pipeline stage: dp x cp x tp."""
        return self.dp * self.cp * self.tp

    @property
    def microbatches(self) -> tuple[int, ...]:
        """Micro-batches of each replica."""
        return self.replica_microbatches or (self.num_microbatches,) * self.dp

    @property
    def global_batch_size(self) -> int:
        """Sequences per step."""
        if self.replica_microbatches is not None:
            return self.microbatch_size * sum(self.replica_microbatches)
        return self.microbatch_size * self.num_microbatches * self.dp

    def degree(self, axis: str) -> int:
        """Degree of a mesh axis by name."""
        return int(getattr(self, axis))

    def stride(self, axis: str) -> int:
        """Distance in ranks between neighbours along an axis: product of the axes inside it."""
        inner = self.rank_order[self.rank_order.index(axis) + 1 :]
        stride = 1
        for name in inner:
            stride *= self.degree(name)
        return stride
