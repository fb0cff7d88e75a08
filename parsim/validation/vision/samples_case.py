"""From a measured run of a network to what parsim predicts: what was trained, where, which plan."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate
from math import lcm

import numpy as np

from parsim.cluster.reader import load_catalog
from parsim.cost.job import NO_UPDATE, OPTIMIZERS, Job, Optimizer, kind_of
from parsim.cost.software import Software, software
from parsim.errors import CatalogError, ModelError, NoFeasiblePlan, shown
from parsim.model.graph.catalog import is_network, network, reads_text
from parsim.model.graph.record import Graph
from parsim.model.reader import Description, build_model, model_spec
from parsim.partition.given_replicas import cut_for, levels_of, priced_graph
from parsim.partition.states import states_of
from parsim.plan import Plan, Recompute
from parsim.plan.precision import PRECISIONS
from parsim.plan.stages import Stage
from parsim.validation.step.case import PredictedCase
from parsim.validation.step.case_cluster import case_cluster
from parsim.validation.tables import RowSkipped
from parsim.validation.vision.measured_samples import INPUT_GRADIENT, STEP, MeasuredSamples
from parsim.validation.vision.row_strategy import DATA_PARALLEL, PIPELINES

FRAMEWORKS: Mapping[str, str] = {
    "pytorch": "pytorch-ddp",
    **dict.fromkeys(("pytorch-2017", "pytorch-2019"), "pytorch-2017"),
    "torch7": "torch7",
    **dict.fromkeys(("caffe2", "caffe2-2017"), "caffe2"),
    "torchgpipe": "torchgpipe",
    "tensorflow-xla": "tensorflow-xla",
    "tensorflow": "tensorflow",
    "mxnet": "mxnet",
    **dict.fromkeys(("mxnet-2016", "mxnet-2017", "mxnet-2018"), "mxnet-2016"),
    "paddlepaddle": "tensorflow",
}
"""First word of a framework, and the software that it is predicted as."""
ASSUMED: Mapping[str, str] = {"gpipe": "torchgpipe"}
"""Software that other frameworks are predicted as, by strategy; else DistributedDataParallel."""


def case_of(run: MeasuredSamples) -> PredictedCase:
    """What the run trained, its plan, and what had to be assumed.

    Raises:
        RowSkipped: a name that parsim does not know, or batches that do not divide.
    """
    return _case(replace(run, row_id="", step_time=None, peak_memory=None, speedup=None))


@lru_cache(maxsize=32)
def _case(run: MeasuredSamples) -> PredictedCase:
    """The case of a run, of whose measurements nothing is told; rows of one plan share it."""
    if run.precision not in PRECISIONS:
        known = ", ".join(PRECISIONS)
        raise RowSkipped(f"precision='{shown(run.precision)}' is unknown; allowed: {known}")
    stack, notes = _stack(run)
    cluster, cluster_notes = case_cluster(run, load_catalog())
    try:
        description = _description(run)
    except (ModelError, CatalogError) as reason:
        raise RowSkipped(str(reason)) from None
    job = Job(
        model=build_model(description),
        cluster=cluster,
        software=_software(stack, run),
        optimizer=_optimizer(stack) if run.covers == STEP else NO_UPDATE,
    )
    plan = _plan_for(job, run, description)
    return PredictedCase(job=job, plan=plan, notes=(*notes, *cluster_notes))


def _software(name: str, run: MeasuredSamples) -> Software:
    """The stack, with the release of cuDNN and the layout of images that the row says."""
    stack = software(name)
    if run.layout:
        last = run.layout == "channels_last"
        stack = replace(stack, channels_last=(PRECISIONS[run.precision].compute,) if last else ())
    return stack if run.cudnn is None else replace(stack, cudnn=run.cudnn)


def _optimizer(stack: str) -> Optimizer:
    return OPTIMIZERS["sgd" if stack == "torchgpipe" else "sgd_momentum"]


def _stack(run: MeasuredSamples) -> tuple[str, tuple[str, ...]]:
    """The software that a run is predicted as, and notes where that or its batch is assumed."""
    word = _framework(run.framework)
    name = FRAMEWORKS.get(word, ASSUMED.get(run.strategy, "pytorch-ddp"))
    notes: tuple[str, ...] = ()
    if word not in FRAMEWORKS:
        notes = (f"framework '{shown(run.framework)}': predicted as {name}, unmeasured",)
    if run.assumed_batch:
        notes += (f"{run.model}: {run.global_batch_size} images, as torchgpipe's memory benchmark",)
    return name, notes


def _plan_for(job: Job, run: MeasuredSamples, description: Description) -> Plan:
    """The row's plan; where it does not say how layers are cut, as its partitioner would."""
    if run.strategy == "pipedream":
        return _replicated(job, run)
    plan = _plan(run, description)
    if plan.pp > 1 and plan.stage_layers is None:  # the stack's partitioner balances costs
        return replace(plan, stage_layers=_layers(job, plan, (1,) * plan.pp))
    return plan


def _framework(text: str) -> str:
    """A framework's first word; TensorFlow with XLA, wherever that is said, is another one."""
    words = re.findall(r"[a-z0-9-]+", text.lower()) or [""]
    return "tensorflow-xla" if words[0] == "tensorflow" and "xla" in words else words[0]


def _description(run: MeasuredSamples) -> Description:
    """A network in as fine pieces as its partition counts, or the sizes of a transformer."""
    if run.padded_length and not reads_text(run.model):
        raise RowSkipped(
            f"padded_length={run.padded_length}: {shown(run.model)} reads no sentences"
        )
    if is_network(run.model):
        graph = _pieces(network(run.model, run.padded_length), run.partition)
        return replace(graph, asks_input=True) if run.covers == INPUT_GRADIENT else graph
    return replace(model_spec(run.model), fused_attention=False)  # these tables are from before


def _replicated(job: Job, run: MeasuredSamples) -> Plan:
    """PipeDream's stages with the row's replicas, over the layers that balance them best.

    A row that states no partition does not say which layers a stage had: each is given those that
    PipeDream's own partitioner would, from parsim's prices.
    """
    single = Plan(
        microbatch_size=run.batch_per_gpu or run.global_batch_size // run.n_gpus,
        num_microbatches=lcm(*run.replicas),
        precision=run.precision,
        reduce_precision="fp32",
        overlap_p2p=True,
    )
    if len(run.replicas) == 1:
        return replace(single, dp_replicate=run.n_gpus, num_microbatches=1)
    layers = zip(
        _layers(job, single, run.replicas, late=run.late_updates), run.replicas, strict=True
    )
    stages = tuple(
        Stage(layers=count, replicas=copies, late_update=run.late_updates and copies > 1)
        for count, copies in layers
    )
    return replace(single, pp=len(stages), schedule="pipedream", stages=stages)


def _layers(
    job: Job, plan: Plan, replicas: tuple[int, ...], *, late: bool = False
) -> tuple[int, ...]:
    """Layers of stages that have so many replicas."""
    states = states_of(priced_graph(job, plan))
    try:
        cut = cut_for(states, levels_of(job), replicas, late=late)
    except NoFeasiblePlan as reason:
        raise RowSkipped(str(reason)) from None
    return tuple(part.end - part.first for part in cut)


def _plan(run: MeasuredSamples, description: Description) -> Plan:
    dp = run.n_gpus if run.strategy in DATA_PARALLEL else 1
    stages = run.n_gpus if run.strategy in PIPELINES else 1
    size, count = _microbatches(run, dp)
    return Plan(
        pp=stages,
        dp_replicate=dp,
        microbatch_size=size,
        num_microbatches=count,
        schedule=PIPELINES[run.strategy] if stages > 1 else "1f1b",
        recompute=Recompute.FULL if run.recompute == "full" else Recompute.NONE,
        precision=run.precision,
        reduce_precision="fp32",
        overlap_p2p=stages > 1,
        stage_layers=_cut(run.partition, description, stages) if stages > 1 else None,
        strategy=run.replicated_by,
    )


def _microbatches(run: MeasuredSamples, dp: int) -> tuple[int, int]:
    """Samples of a micro-batch, and how many micro-batches a replica or pipeline has."""
    pipelined = run.strategy in PIPELINES
    count = min(run.n_micro_batches, run.global_batch_size) if pipelined else 1
    size, rest = divmod(run.global_batch_size, dp * count)
    if not pipelined and run.batch_per_gpu and run.batch_per_gpu < size:
        count, rest = divmod(size, run.batch_per_gpu)  # gradients added up over several
        size = run.batch_per_gpu
    if rest and not pipelined:
        raise RowSkipped(f"global_batch_size={run.global_batch_size} does not divide by {dp}")
    if rest:  # chunks that differ by a sample: of their mean size, to the nearest sample
        size = max(1, round(run.global_batch_size / count))
    return size, count


def _pieces(graph: Graph, partition: tuple[int, ...]) -> Graph:
    """The graph in as fine pieces as a partition counts: its layers, or else its single nodes."""
    if not partition or sum(partition) == len(graph.layers):
        return graph
    return replace(graph, ends=tuple(node.name for node in graph.nodes))


def _cut(
    partition: tuple[int, ...], description: Description, stages: int
) -> tuple[int, ...] | None:
    """The layers whose ends lie nearest to those of a partition of finer pieces, in proportion."""
    if not partition or not isinstance(description, Graph):
        return None
    layers = [len(nodes) for nodes in description.layers]
    if len(partition) != stages:
        raise RowSkipped(f"partition has {len(partition)} parts for {stages} devices")
    if sum(partition) == len(layers):
        return partition
    ends, pieces = list(accumulate(layers)), sum(partition)
    shares = np.array(ends) / ends[-1]
    wanted = np.array(list(accumulate(partition))) / pieces
    cuts = [int(np.abs(shares - share).argmin()) + 1 for share in wanted]
    return tuple(b - a for a, b in zip([0, *cuts], cuts, strict=False))


def practice_of(run: MeasuredSamples, job: Job) -> str:
    """Whose errors a row's are: those of its framework, also where it is predicted as another."""
    framework = _framework(run.framework)
    known = framework in FRAMEWORKS
    return job.practice if known else f"{framework}{kind_of(job.practice)}"
