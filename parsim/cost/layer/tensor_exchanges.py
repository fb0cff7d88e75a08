"""Collectives inside layers: at the borders of split matrices, and of normalisations' statistics.

A column-split matrix needs nothing forward and an all-reduce of its input gradient backward, a
row-split one the other way round. Sequence parallelism replaces each all-reduce by a
reduce-scatter and adds an all-gather in the other direction.

Source: Shoeybi et al. 2019 (arXiv:1909.08053); Korthikanti et al. 2022 (arXiv:2205.05198), fig. 5.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from parsim.arrays import Array
from parsim.cost.collective.group_bandwidth import Groups, groups
from parsim.cost.collective.kinds import CollectiveKind
from parsim.cost.collective.message import Message
from parsim.cost.job import Job
from parsim.cost.kernel.kernels import memory_time
from parsim.cost.layer.interference import crowded_device
from parsim.cost.layer.operator_parts import Exchange, PassPart
from parsim.cost.streams import pipelined
from parsim.model.operators import Elementwise, Linear, Split
from parsim.model.shared_heads import SharedHeads
from parsim.plan import PlanTable
from parsim.plan.precision import Quantization

Pair = tuple[Array, Array]
"""Seconds (B,) of a reducing and of a spreading collective of the same rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BorderMessages:
    """Collectives of activations: `summed` without sequence parallelism, the others with it."""

    summed: Message
    scattered: Message
    gathered: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorGroups:
    """The tensor-parallel groups of a table of plans."""

    job: Job
    table: PlanTable
    where: Groups

    @classmethod
    def of(cls, job: Job, table: PlanTable) -> TensorGroups:
        """Place the groups."""
        where = groups(job.system, size=table.tp, stride=table.stride("tp"), world=table.world_size)
        return cls(job=job, table=table, where=where)

    def around(self, op: Linear, how: Quantization | None) -> tuple[Pair, Pair]:
        """Collectives before one matrix and behind it; before each of several that share none."""
        zero, tokens = np.zeros(len(self.table)), self.table.on_rank(op.tokens)
        before, behind = (zero, zero), (zero, zero)
        if op.split is Split.COLUMN:
            reduced, spread = self.exchange(tokens, op.inputs, how)
            count = 1 if self.job.software.joined_inputs else op.matrices
            before = (count * reduced, count * spread)
        if op.split is Split.ROW:
            behind = self.exchange(tokens, op.outputs, how)
        return before, behind

    def heads(self, op: Linear, shared: SharedHeads) -> Pair:
        """Gather what a product gives where it is divided below whole key-value heads, seconds.

        All outputs of all tokens come to every rank, which takes its heads of them; backward their
        gradients are reduced and scattered.

        Source: Megatron-Core, `SelfAttention.get_query_key_value_tensors` (commit f7dfb99795).
        Leaves out: that values kept for backward are a view of all that was gathered.
        """
        size = self.table.on_rank(op.tokens) * op.outputs * self.table.precision.activation
        whole, system = self.message("all_gather", size), self.job.system
        several = self.table.tp > shared.count
        gathered = np.where(several, whole.seconds(system), 0.0)
        return gathered, np.where(several, whole.instead("reduce_scatter").seconds(system), 0.0)

    def logits(self, op: Linear) -> Array:
        """Gather the logits of all words to every rank, seconds; backward each takes its part."""
        size = self.table.on_rank(op.tokens) * op.outputs * self.table.precision.activation
        return self.message("all_gather", size).seconds(self.job.system)

    def exchange(self, tokens: Array, width: int, how: Quantization | None = None) -> Pair:
        """Collectives of `tokens` rows of a width.

        What a quantised product needs is gathered as it enters it where the recipe does so, sums
        are carried in 16 bit.
        """
        sent, system = self.messages(tokens, width, how), self.job.system
        sequence = self.table.sequence_parallel
        whole, scatter = sent.summed.seconds(system), sent.scattered.seconds(system)
        gather = sent.gathered.seconds(system)
        return np.where(sequence, scatter, whole), np.where(sequence, gather, 0.0)

    def messages(
        self, tokens: Array, width: int, how: Quantization | None = None
    ) -> BorderMessages:
        """The collectives that plans may send of `tokens` rows of a width."""
        summed = self.message("all_reduce", tokens * width * self.table.precision.activation)
        gathered = summed.instead("all_gather")
        if how is not None and how.gathered:
            gathered = self.message("all_gather", tokens * width * how.operand)
        return BorderMessages(
            summed=summed, scattered=summed.instead("reduce_scatter"), gathered=gathered
        )

    def message(self, kind: CollectiveKind, size: Array) -> Message:
        """One collective of the tensor-parallel groups."""
        return Message(kind=kind, axis="tp", size=size, where=self.where)

    def beside(self, collective: Array, kernel: Array) -> Array:
        """What shows of a collective that runs beside a backward GEMM.

        The stack's share of the shorter of the two hides, less what the kernel loses to the
        collective's multiprocessors.
        """
        hidden = self.job.software.tp_overlap_backward * self.kept * np.minimum(collective, kernel)
        return np.asarray(collective - hidden)

    def chunked(self, collective: Array, kernel: Array, chunk: Array) -> Array:
        """What shows of a collective that runs in tp chunks beside the chunks of its GEMM, (B,).

        The product of m rows becomes tp products of m / tp rows (`chunk` seconds each), and each
        chunk's share of the collective runs beside the next one's product, which keeps the
        multiprocessors that the collective leaves: a pipeline of tp pieces, less the `kernel`
        seconds of the product in one. At most the collective itself, because a stack switches off
        what does not pay; and all of it without sequence parallelism, which chunks need.

        Source: user buffers of Transformer Engine (pipelined reduce-scatter).
        Leaves out: bulk overlap of fewer, larger pieces.
        """
        tp = self.table.tp.astype(np.float64)
        return self._shown(pipelined(tp * chunk, collective, tp, self.kept), kernel, collective)

    def ringed(
        self, collective: Array, kernel: Array, chunk: Array, summed: Array | float = 0.0
    ) -> Array:
        """What shows of a collective whose chunks copy engines carry from rank to rank, (B,).

            gather    | own chunk | 2nd chunk | ... | tp-th chunk |            products, c each
                      | transfer  | transfer  | ... |                          G / (tp - 1) each
            reduce    | 1st chunk | 2nd chunk | ... | own chunk   | sum of tp chunks

        c + (tp - 1) max(c, G / (tp - 1)) + sum, less the `kernel` seconds of the product in one:
        one chunk of a gather is there already, and one of a reduction, the last, need not be sent.
        Products keep all multiprocessors. A reduction's chunks are added up behind the last one,
        `summed` bytes for that. At most the collective itself, as `chunked`.

        Source: Transformer Engine (commit d0067d0), common/comm_gemm_overlap, split_overlap_ag and
        split_overlap_rs of CommOverlapP2PBase, with use_ce, its default.
        Leaves out: pairs of chunks (`aggregate`); what copies take of the memory's bandwidth.
        """
        others = np.maximum(self.table.tp - 1.0, 1.0)
        whole = chunk + others * np.maximum(chunk, collective / others)
        whole = whole + np.where(np.asarray(summed) > 0.0, memory_time(self.job.device, summed), 0)
        return self._shown(whole, kernel, collective)

    def _shown(self, whole: Array, kernel: Array, collective: Array) -> Array:
        """What a product in chunks takes beyond the one in one, at most the collective."""
        on = self.table.sequence_parallel & (self.table.tp > 1)
        return np.where(on, np.clip(whole - kernel, 0.0, collective), collective)

    @property
    def kept(self) -> float:
        """Share of the multiprocessors that a collective leaves to a product."""
        return crowded_device(self.job.system).sm_count / self.job.device.sm_count


FP32 = 4.0


def statistics_bytes(channels: float) -> tuple[float, float]:
    """What each replica hands on of a batch normalisation of C channels, forward and backward.

        forward    all-gather of 2 C + 1 fp32 values of each replica (means, variances, a count)
        backward   all-reduce of 2 C fp32 values (the two sums of the gradient)

    Source: `torch.nn.SyncBatchNorm` (`torch/nn/modules/_functions.py`); one gather in place of
    three took MobileNet-v2 on 8 P100 from 453 to 373 ms a step (pytorch pull request 38246).
    """
    return (2.0 * channels + 1.0) * FP32, 2.0 * channels * FP32


def statistics_messages(job: Job, table: PlanTable, op: Elementwise) -> tuple[Message, Message]:
    """The gather of forward and the reduction of backward, over all data-parallel ranks.

    Both stand on the critical path, and are so small that they are latency alone: 2 x layers x
    alpha. Leaves out: batches that differ between replicas, which the count is for.
    """
    forward, backward = statistics_bytes(op.statistics)
    inner = np.where(table.dp_shard > 1, table.stride("dp_shard"), table.stride("dp_replicate"))
    where = groups(job.system, size=table.dp, stride=inner, world=table.world_size)
    gathered = np.asarray(table.dp, dtype=np.float64) * forward
    summed = np.full(len(table), backward)
    return (
        Message(kind="all_gather", axis="replicate", size=gathered, where=where),
        Message(kind="all_reduce", axis="replicate", size=summed, where=where),
    )


def statistics_exchanges(job: Job, table: PlanTable, op: Elementwise) -> Iterator[Exchange]:
    """What both take, where the plan synchronises its statistics and replicas are several."""
    if not op.statistics or not table.common.sync_batch_norm:
        return
    forward, backward = statistics_messages(job, table, op)
    yield Exchange(part=PassPart.FORWARD, exposed=forward.seconds(job.system))
    yield Exchange(part=PassPart.BACKWARD, exposed=backward.seconds(job.system))
