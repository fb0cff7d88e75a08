"""The plan record: degrees, micro-batching, schedule, sharding, recomputation, precision."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from operator import mul
from pathlib import PurePath
from typing import Any

from parsim.plan.names import AUTO, TWO_WAY, WITHOUT_FLUSH, CpCommType, Recompute
from parsim.plan.stages import Stage, stage_words
from parsim.plan.strategies import DDP, LocalSGD, Strategy

BUCKET_BYTES = 160e6
"""Size of a gradient bucket where nothing else is said: 40 million in fp32."""

AXES = ("pp", "dp_replicate", "dp_shard", "cp", "tp")
"""Mesh axes whose degrees multiply to the world size."""

RANK_ORDER = AXES
"""Default order, outermost first: tensor-parallel neighbours are adjacent ranks."""

REPLICAS_OUTSIDE = ("dp_replicate", "dp_shard", "pp", "cp", "tp")
"""The order in which each pipeline's ranks are neighbours: Megatron's --use-tp-pp-dp-mapping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One way to train: read the field names with the axes of the design in mind.

    `v` is the number of chunks (virtual stages) per pipeline rank. `stage_layers` gives the layer
    count of each of the pp*v stages (None: as even as possible, see `cost/step/stages.py`; what a
    scenario or a search makes of a plan that states none: `sim/cuts.py`).
    `zero_stage` shards optimizer states (1), gradients (2), parameters (3) over `dp_shard` x `cp`
    (ranks of a context-parallel group hold the same parameters, so they share them out too).
    `gradient_precision` is what gradients are accumulated in, `reduce_precision` what is sent:
    "fp32" or "same" (as the parameters). `bucket_bytes` is the size of one gradient bucket (None:
    the software's, see `cost/data/buckets.py`).
    `scatter_p2p` sends 1/tp of a stage boundary per rank and gathers it inside the node.

    `cp_comm_type` is how context-parallel ranks exchange keys and values (`plan/names.py`).

    `ep` shares out the experts of each layer to neighbouring ranks of a pipeline stage and `etp`
    splits each of them: both divide the stage's dp x cp x tp ranks and are no factors of the world.
    The ranks that hold the same experts, dp x cp x tp / (ep x etp), reduce their gradients.

    `actions` is the CSV of a schedule of the user's own, whose file `schedule` then names. It is
    text and no `Schedule`, so that a plan still holds all that decides its step, compares and
    hashes like its other fields, and needs nothing of the schedule layer above it;
    `parsim.schedule.schedule_of` reads it, once for all plans that share it. With the schedule
    `auto` they are the order that was found for the plan (`parsim.sim.orders`).

    `action_times` are what a zero-bubble schedule is searched for: F, I, W and a message in any
    unit, and the share of activations that W needs (None: 1, 1, 1, 0 and 1). They are part of the
    plan because the order of its actions follows from them.

    `recompute_modules` are parts of a layer that are computed again, as Megatron-Core names them
    (`cost/layer/kept/recomputed_modules.py`), beside or instead of what `recompute` says.

    `recompute_layers` are the layers of each stage, its first ones, that are computed again as a
    whole, whatever `recompute` says of the others: Megatron-Core's `--recompute-method block`.

    `offload_layers` are the layers of each stage, its first ones, whose activations stay in the
    host's memory between forward and backward; `offload_modules` are the parts of those layers
    that do (empty: all that they keep), see `cost/layer/kept/activations.py`.

    `optimizer_offload` keeps optimizer states and the fp32 parameters in the host's memory, which
    then updates them (`cost/data/host_update.py`): DeepSpeed's `offload_optimizer`.

    `node_order` names the groups of a mixed cluster in the order in which ranks fill their nodes
    (`cluster/groups.py`). `replica_microbatches` are those of each replica where replicas have
    different numbers, dp_replicate outside of dp_shard; `num_microbatches` is then the largest.

    `strategy` is what keeps replicas one model, with its options (`plan/strategies.py`).

    `stages` give each of pp stages layers and replicas of its own (`plan/stages.py`); dp is then 1
    and `num_microbatches` are those of all replicas of a stage together.

    `sync_batch_norm` shares the statistics of batch normalisation among all data-parallel ranks,
    so that they normalise as one process with the whole batch would.
    """

    tp: int = 1
    pp: int = 1
    dp_replicate: int = 1
    dp_shard: int = 1
    cp: int = 1
    cp_comm_type: CpCommType = CpCommType.DEFAULT
    ep: int = 1
    etp: int = 1
    microbatch_size: int = 1
    num_microbatches: int = 1
    schedule: str = "1f1b"
    actions: str | None = None
    action_times: tuple[float, float, float, float, float] | None = None
    v: int = 1
    stage_layers: tuple[int, ...] | None = None
    zero_stage: int = 0
    sequence_parallel: bool = False
    recompute: Recompute = Recompute.NONE
    recompute_modules: tuple[str, ...] = ()
    recompute_layers: int = 0
    offload_layers: int = 0
    offload_modules: tuple[str, ...] = ()
    optimizer_offload: bool = False
    precision: str = "bf16"
    gradient_precision: str = "fp32"
    reduce_precision: str = "fp32"
    bucket_bytes: float | None = None
    overlap_grad_reduce: bool = True
    overlap_param_gather: bool = True
    overlap_p2p: bool = False
    scatter_p2p: bool = False
    rank_order: tuple[str, ...] = RANK_ORDER
    node_order: tuple[str, ...] | None = None
    replica_microbatches: tuple[int, ...] | None = None
    strategy: Strategy = DDP
    sync_batch_norm: bool = False
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
    def whole_models(self) -> Plan:
        """The plan of as many all-reducing workers as there are whole models.

        It has the samples of this one: where several workers hold a model together, one does their
        work.
        """
        sharers = self.strategy.sharers
        return replace(
            self,
            strategy=DDP,
            dp_replicate=self.dp_replicate // sharers,
            microbatch_size=self.microbatch_size * sharers,
        )

    @property
    def stage_tp(self) -> tuple[int, ...]:
        """Tensor-parallel ranks of each pipeline rank's stages."""
        if self.stages is None:
            return (self.tp,) * self.pp
        return tuple(stage.tp or self.tp for stage in self.stages)

    @property
    def processes(self) -> int:
        """Processes that run it: one a rank, unless one process has all devices."""
        return 1 if self.strategy.one_process else self.world_size

    @property
    def from_file(self) -> bool:
        """Whether its actions are a schedule of the user's own, by the name of a file."""
        return self.actions is not None and self.schedule != AUTO

    @property
    def copies(self) -> int:
        """Copies of the model on the ranks of one pipeline: two where it runs both ways."""
        return 2 if self.pp > 1 and self.schedule in TWO_WAY else 1

    @property
    def num_stages(self) -> int:
        """Stages of one copy of the model: pp * v."""
        return self.pp * self.v

    @property
    def global_batch_size(self) -> int:
        """Sequences per step."""
        if self.replica_microbatches is not None:
            return self.microbatch_size * sum(self.replica_microbatches)
        return self.microbatch_size * self.num_microbatches * self.dp

    @property
    def runs_as_tasks(self) -> bool:
        """Whether no two replicas of its pipeline are alike, or it never flushes.

        Such a pipeline is written out task by task, not as a schedule that replicas share.
        """
        return self.stages is not None or (self.schedule in WITHOUT_FLUSH and self.actions is None)

    @property
    def runs_own_program(self) -> bool:
        """Whether its step is another than that of the all-reduce.

        Averages of weights after every step are averages of gradients, under plain SGD: that is
        DDP.
        """
        at_once = isinstance(self.strategy, LocalSGD) and self.strategy.every == 1
        return self.strategy.own_program and not at_once

    @property
    def cut(self) -> tuple[int, ...] | None:
        """Layers of each stage where the plan says them."""
        if self.stages is not None:
            return tuple(stage.layers for stage in self.stages)
        return self.stage_layers

    @property
    def stage_ranks(self) -> int:
        """Ranks of one pipeline stage: dp x cp x tp."""
        return self.dp * self.cp * self.tp

    @property
    def microbatches(self) -> tuple[int, ...]:
        """Micro-batches of each replica."""
        return self.replica_microbatches or (self.num_microbatches,) * self.dp

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

    def to_json(self) -> dict[str, Any]:
        """Plain data, enums by name; `etp` and the fields of `_RARE` only where there are any."""
        document = {field.name: getattr(self, field.name) for field in fields(self)}
        document["strategy"] = None if self.strategy == DDP else self.strategy.to_json()
        document["stages"] = self.stages and [stage.to_json() for stage in self.stages]
        for name in _RARE:
            if document[name] in (None, (), False):
                del document[name]
        if self.etp == 1:
            del document["etp"]
        if self.cp_comm_type:
            document["cp_comm_type"] = str(self.cp_comm_type)
        document["recompute"] = self.recompute.name.lower()
        document["rank_order"] = list(self.rank_order)
        document["stage_layers"] = list(self.stage_layers) if self.stage_layers else None
        return {**document, "dp": self.dp, "world_size": self.world_size}

    def label(self) -> str:
        """A short name for tables: `tp8 pp8 dp16 mb1 m96 1f1b full`."""
        parts = [f"tp{self.tp}", f"pp{self.pp}", f"dp{self.dp}"]
        parts += [f"cp{self.cp}"] if self.cp > 1 else []
        parts += [str(self.cp_comm_type)] if self.cp > 1 and self.cp_comm_type else []
        parts += [f"ep{self.ep}"] if self.ep > 1 else []
        parts += [f"etp{self.etp}"] if self.etp > 1 else []
        parts += [f"mb{self.microbatch_size}"]
        schedule = self.schedule if self.actions is None else PurePath(self.schedule).name
        parts += [f"m{_span(self.microbatches)}", schedule if self.pp > 1 else "no-pipeline"]
        parts += [f"v{self.v}"] if self.v > 1 else []
        parts += [f"zero{self.zero_stage}"] if self.zero_stage else []
        parts += [f"shard{self.dp_shard}"] if self.dp_shard > 1 < self.dp_replicate else []
        parts += ["sp"] if self.sequence_parallel else []
        parts += ["sync-bn"] if self.sync_batch_norm else []
        parts += [f"recompute-{self.recompute.name.lower()}"] if self.recompute else []
        parts += [f"recompute-{name}" for name in self.recompute_modules]
        parts += [f"recompute{self.recompute_layers}"] if self.recompute_layers else []
        parts += [f"offload{self.offload_layers}"] if self.offload_layers else []
        parts += [f"offload-{name}" for name in self.offload_modules]
        parts += ["optimizer-on-host"] if self.optimizer_offload else []
        parts += [self.strategy.label()] if self.strategy != DDP else []
        parts += [stage_words(self.stages, self.tp)] if self.stages else []
        return " ".join([*parts, *self._placement_words()])

    def _placement_words(self) -> list[str]:
        """Where the nodes differ: their order, which axis is outermost, and the cut."""
        if self.node_order is None:
            return []
        axes = [axis for axis in self.rank_order if self.degree(axis) > 1 and axis != "tp"]
        words = ["on " + "+".join(self.node_order)]
        words += ["by " + "-".join(axes)] if len(axes) > 1 else []
        cut = self.stage_layers
        return words + (["cut " + "-".join(map(str, cut))] if cut else [])


_RARE = (
    *("actions", "action_times", "bucket_bytes", "cp_comm_type", "node_order"),
    *("offload_layers", "offload_modules", "optimizer_offload"),
    *("recompute_layers", "recompute_modules", "replica_microbatches"),
    *("stages", "strategy", "sync_batch_norm"),
)
"""Fields that most plans do not have."""


def _span(counts: tuple[int, ...]) -> str:
    """Numbers in a few characters: 8, or 12/4 of two replicas, or 4..12 of many."""
    if len(set(counts)) == 1:
        return str(counts[0])
    return "/".join(map(str, counts)) if len(counts) <= 4 else f"{min(counts)}..{max(counts)}"
