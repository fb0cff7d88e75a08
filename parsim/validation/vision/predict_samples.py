"""Predict one row of a table of networks' runs: what was trained, where, and by which plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate

import numpy as np

from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.optimizer import OPTIMIZERS
from parsim.cost.software import software
from parsim.errors import InputError, ModelError, shown
from parsim.model.graph.build import build_graph
from parsim.model.graph.catalog import is_network, network
from parsim.model.graph.record import Graph
from parsim.plan import Plan, Recompute
from parsim.plan.precision import PRECISIONS
from parsim.sim import simulate
from parsim.validation.step.case_cluster import case_cluster
from parsim.validation.tables import RowSkipped
from parsim.validation.validated_row import ValidatedRow
from parsim.validation.vision.measured_samples import MeasuredSamples, parse_samples

FRAMEWORKS: Mapping[str, str] = {"pytorch": "pytorch-ddp", "torchgpipe": "torchgpipe"}
"""First word of a framework, and the software that it is predicted as."""
ASSUMED = "pytorch-ddp"


def predict_samples(table: str, row: dict[str, str]) -> ValidatedRow:
    """Predict one row."""
    try:
        run = parse_samples(row)
        job, plan, notes = case_of(run)
        prediction = simulate(job, plan)
    except (RowSkipped, InputError) as reason:
        return ValidatedRow(
            table=table,
            row_id=row.get("row_id") or "(no row_id)",
            reason=str(reason),
            stack=row.get("framework", ""),
            device=row.get("gpu_type", ""),
            precision=row.get("precision", ""),
        )
    interval = prediction.interval
    return ValidatedRow(
        table=table,
        row_id=run.row_id,
        model=run.model,
        system=f"{job.cluster.num_nodes} x {run.system}",
        stack=run.framework.split(" ")[0],
        device=job.device.id,
        software=job.software.id,
        practice=job.practice,
        precision=plan.precision,
        plan=plan.label(),
        notes=notes,
        predicted_step=prediction.step_time * run.global_batch_size / plan.global_batch_size,
        measured_step=run.step_time,
        predicted_peak=sum(prediction.peak_allocated),
        measured_peak=run.peak_memory,
        predicted_reserved=sum(prediction.peak_reserved),
        step_interval=(interval.low, interval.high),
        standing=prediction.standing,
    )


def case_of(run: MeasuredSamples) -> tuple[Job, Plan, tuple[str, ...]]:
    """What the run trained, its plan, and what had to be assumed.

    Raises:
        RowSkipped: a name that parsim does not know, or batches that do not divide.
    """
    if not is_network(run.model):
        raise RowSkipped(f"model '{shown(run.model)}' is no network of `parsim catalog models`")
    if run.precision not in PRECISIONS:
        raise RowSkipped(f"precision '{shown(run.precision)}' is unknown")
    word = run.framework.split(" ")[0].lower()
    name = FRAMEWORKS.get(word, ASSUMED)
    notes: tuple[str, ...] = ()
    if word not in FRAMEWORKS:
        notes = (f"framework '{shown(run.framework)}': predicted as {ASSUMED}, unmeasured",)
    if run.assumed_batch:
        notes += (f"{run.model}: {run.global_batch_size} images, as torchgpipe's memory benchmark",)
    cluster, told = case_cluster(run, load_catalog())
    try:
        graph = _pieces(network(run.model), run.partition)
    except ModelError as reason:
        raise RowSkipped(str(reason)) from None
    job = Job(
        model=build_graph(graph),
        cluster=cluster,
        software=software(name),
        optimizer=OPTIMIZERS["sgd" if name == "torchgpipe" else "sgd_momentum"],
    )
    return job, _plan(run, graph), (*notes, *told)


def _plan(run: MeasuredSamples, graph: Graph) -> Plan:
    pipelined = run.strategy == "gpipe"
    dp = run.n_gpus if run.strategy == "data_parallel" else 1
    count = min(run.n_micro_batches, run.global_batch_size) if pipelined else 1
    size, rest = divmod(run.global_batch_size, dp * count)
    if not pipelined and run.batch_per_gpu and run.batch_per_gpu < size:
        count, rest = divmod(size, run.batch_per_gpu)  # gradients added up over several
        size = run.batch_per_gpu
    if rest and not pipelined:
        raise RowSkipped(f"global_batch_size={run.global_batch_size} does not divide by {dp}")
    if rest:  # chunks that differ by a sample: of their mean size, to the nearest sample
        size = max(1, round(run.global_batch_size / count))
    stages = run.n_gpus if pipelined else 1
    return Plan(
        pp=stages,
        dp_replicate=dp,
        microbatch_size=size,
        num_microbatches=count,
        schedule="gpipe" if stages > 1 else "1f1b",
        recompute=Recompute.FULL if run.recompute == "full" else Recompute.NONE,
        precision=run.precision,
        reduce_precision="fp32",
        overlap_p2p=stages > 1,
        stage_layers=_cut(run.partition, graph, stages) if stages > 1 else None,
    )


def _pieces(graph: Graph, partition: tuple[int, ...]) -> Graph:
    """The graph in as fine pieces as a partition counts: its layers, or else its single nodes."""
    if not partition or sum(partition) == len(graph.layers):
        return graph
    return replace(graph, ends=tuple(node.name for node in graph.nodes))


def _cut(partition: tuple[int, ...], graph: Graph, stages: int) -> tuple[int, ...] | None:
    """The layers whose ends lie nearest to those of a partition of finer pieces, in proportion."""
    layers = [len(nodes) for nodes in graph.layers]
    if not partition:
        return None
    if len(partition) != stages:
        raise RowSkipped(f"partition has {len(partition)} parts for {stages} devices")
    if sum(partition) == len(layers):
        return partition
    ends, pieces = list(accumulate(layers)), sum(partition)
    shares = np.array(ends) / ends[-1]
    wanted = np.array(list(accumulate(partition))) / pieces
    cuts = [int(np.abs(shares - share).argmin()) + 1 for share in wanted]
    return tuple(b - a for a, b in zip([0, *cuts], cuts, strict=False))
