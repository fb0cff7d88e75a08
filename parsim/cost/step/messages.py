"""The messages of a stage, one list for whoever needs their bytes: a typical one of each axis.

    in layers   tp  activations at the borders of split matrices
                cp  keys and values, or heads of a sequence
                ep  copies of tokens on their way to experts
    shards      parameters of a layer, gathered by the ranks that share them
    gradients   a bucket: scattered over the ranks that share parameters, reduced over replicas

Sizes come from where the closed forms price them (`cost/layer`, `cost/data/data_parallel.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

from parsim.arrays import Array
from parsim.cost.collective.message import Message
from parsim.cost.data.data_parallel import DataParallel
from parsim.cost.job import Job
from parsim.cost.layer.context import context_message
from parsim.cost.layer.experts import routed_copies
from parsim.cost.layer.tensor_exchanges import Borders
from parsim.plan import PlanTable


def layer_messages(job: Job, table: PlanTable) -> Iterator[Message]:
    """Messages inside the layers of any stage of one plan (B = 1)."""
    model = job.model
    if table.tp[0] > 1:
        border = Borders.of(job, table).messages(table.on_rank(model.border), 1)
        yield border.gathered if table.sequence_parallel[0] else border.summed
    if table.cp[0] > 1 and model.attention is not None:
        yield context_message(job, table, model.attention)
    if table.ep[0] > 1 and model.experts is not None:
        tokens = table.on_rank(model.experts.tokens) / table.sequence_split
        yield routed_copies(job, table, model.experts, tokens)


def shard_messages(job: Job, data: DataParallel, parameters: Array) -> Iterator[Message]:
    """Gathers of a stage with so many parameters on a rank, of one plan."""
    if _sharded(data):
        layers = max(job.model.num_layers / float(data.table.pp[0] * data.table.v[0]), 1.0)
        yield data.gathered(parameters / layers)


def gradient_messages(data: DataParallel, bucket: Array) -> Iterator[Message]:
    """Reductions of a bucket of so many parameters on a rank, of one plan."""
    if _sharded(data):
        once = data.table.zero_stage[0] == 1
        yield data.summed(bucket) if once else data.scattered(bucket)
    if data.replicate.size[0] > 1:
        yield data.reduced(bucket)


def _sharded(data: DataParallel) -> bool:
    """Whether several ranks share parameters, gradients or optimizer states."""
    return bool(data.shards[0] > 1)  # 1 without ZeRO
