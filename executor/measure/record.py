"""Records steps of a trainer as timelines, in turn with plain steps: so the cost is known too."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from executor.devices.accelerator import Mark
from executor.devices.all_ranks import largest
from executor.devices.mesh import axis_group, coordinates
from executor.measure.communication import Expected
from executor.measure.gather import RankPlace
from executor.measure.spans import SpanRecorder
from executor.measure.steps import run_timed
from executor.measure.traffic import Traffic
from executor.model.loss import Batch, LossFn
from executor.parallel.held_twice import gradient_parts
from executor.torch_internals.autograd import after_backward
from executor.training.trainer import Trainer
from parsim.plan import Plan
from parsim.timelines.kinds import SpanKind, Stream
from parsim.timelines.timeline import Timeline

PAIRS = 3
"""Recorded steps; before each there is a plain one."""

BLIND = (
    "communication is not recorded: the profiler saw no kernel of the device (CUPTI is missing, or "
    "another profiler has it); exposed communication is unknown, not 0"
)

_AXES = {"pp": "pp", "dp_replicate": "dp", "dp_shard": "shard", "cp": "cp", "tp": "tp"}
"""What a rank's name says of its place, by axis."""


def record_steps(
    trainer: Trainer,
    batches: Iterator[Batch],
    device: torch.device,
    *,
    typical: float,
    pairs: int = PAIRS,
) -> Timeline | None:
    """Take plain and recorded steps in turn; the timeline of one on the first rank, else None.

    It is the one whose length is the nearest to `typical` seconds, or the fastest where nothing is
    typical yet (NaN). Its `meta` has that length, `recorded_step_s`, and `recording_cost`: the
    fastest recorded step over the fastest plain one, less 1. Every rank must call it.
    """
    exchange = None if trainer.experts is None else trainer.experts.exchange
    traffic = Traffic(_groups(trainer), device, [] if exchange is None else [exchange])
    traffic.learn()
    plain, recorded, recorders = [], [], []
    for _ in range(pairs):
        lasted, _ = run_timed(partial(trainer.step, *next(batches)), device)
        plain.append(largest(lasted, device))
        recorder = _recorder(trainer, device, traffic)
        recorded.append(largest(_recorded(trainer, recorder, next(batches), device), device))
        recorders.append(recorder)
    wanted = min(recorded) if math.isnan(typical) else typical
    best = min(range(pairs), key=lambda i: abs(recorded[i] - wanted))
    timeline = recorders[best].gather()
    cost = min(recorded) / min(plain) - 1.0
    lengths = {
        "recorded_step_s": recorded[best],
        "recorded_steps": pairs,
        "recording_cost": cost,
    }
    notes = {"communication_note": BLIND} if traffic.blind else {}
    return timeline and replace(timeline, meta={**timeline.meta, **lengths, **notes})


def _groups(trainer: Trainer) -> dict[str, list[dist.ProcessGroup]]:
    """The groups of more than one rank by stream."""
    mesh, experts = trainer.mesh, trainer.experts
    tensor = [axis_group(mesh, "tp"), trainer.context]
    data = [axis_group(mesh, "dp_replicate"), axis_group(mesh, "dp_shard"), trainer.copies]
    if experts is not None:
        data += [experts.gradients.replicate, experts.gradients.shard]
    present = {
        stream: [group for group in groups if group is not None]
        for stream, groups in ((Stream.TP, tensor), (Stream.DP, data))
    }
    return {stream: groups for stream, groups in present.items() if groups}


def _recorder(trainer: Trainer, device: torch.device, traffic: Traffic) -> SpanRecorder:
    """What records spans of this rank, and which collectives it may expect."""
    schedule = trainer.schedule
    stages = schedule.stages_on(trainer.mesh["pp"].get_local_rank())
    buckets = {
        stage: replica.buckets.reduced
        for stage, replica in zip(stages, trainer.replicas, strict=True)
        if replica.buckets is not None and replica.buckets.reduced
    }
    holds_table = any(replica.stage.tied_parameters() for replica in trainer.replicas)
    tied = int(trainer.tied is not None and holds_table)
    if trainer.copies is not None:
        tied += len(gradient_parts(trainer.replicas))
    return SpanRecorder(
        group=dist.group.WORLD,
        device=device,
        traffic=traffic,
        rank_place=rank_place(trainer.plan, dist.get_rank()),
        expected=Expected(tied=tied, buckets=buckets),
        first={stage: schedule.microbatches_of(stage).start for stage in stages},
        partner=None if trainer.runner is None else trainer.runner.partner,
    )


def rank_place(plan: Plan, rank: int) -> RankPlace:
    """A rank's place in the plan: which pipeline, where in it, and its name in pictures."""
    coordinate = coordinates(plan, rank)
    pipeline = 0
    for axis, at in coordinate.items():
        if axis != "pp":
            pipeline = pipeline * plan.degree(axis) + at
    words = [f"{_AXES[axis]} {at}" for axis, at in coordinate.items() if plan.degree(axis) > 1]
    at = coordinate["pp"]
    return RankPlace(
        pipeline_rank=at,
        pipeline=pipeline,
        pair=min(at, plan.pp - 1 - at) if plan.copies > 1 else 0,
        name=", ".join(words),
    )


def _recorded(
    trainer: Trainer, recorder: SpanRecorder, batch: Batch, device: torch.device
) -> float:
    def step() -> None:
        if trainer.runner is None:
            _loop(trainer, recorder, batch)
        else:
            trainer.backward(*batch)
        with recorder.measure(SpanKind.GRAD_NORM):
            trainer.optimizer.clip()
        with recorder.measure(SpanKind.OPTIMIZER):
            trainer.optimizer.step()

    with recorder:
        return run_timed(step, device)[0]


def _loop(trainer: Trainer, recorder: SpanRecorder, batch: Batch) -> None:
    """A step without pipeline, split into F and B of each micro-batch."""
    with _split(trainer, recorder.mark) as marks:
        trainer.backward(*batch)
    each = zip(marks.starts, marks.losses, marks.ends, strict=True)
    for number, (start, middle, end) in enumerate(each):
        recorder.add(SpanKind.F, start, middle, stage=0, microbatch=number)
        recorder.add(SpanKind.B, middle, end, stage=0, microbatch=number)
    if trainer.replicas[0].kind == "ddp":  # it waits for its buckets in C++
        recorder.waited(marks.ends[-1], recorder.mark())


@dataclass(slots=True)
class _Marks:
    """When each micro-batch's forward started, had its loss, and had its backward computed."""

    clock: Callable[[], Mark]
    starts: list[Mark] = field(default_factory=list)
    losses: list[Mark] = field(default_factory=list)
    ends: list[Mark] = field(default_factory=list)

    def start(self, *_: object) -> None:
        """Note a forward; a hook of the module."""
        self.starts.append(self.clock())

    def end(self) -> None:
        """Note that a backward is computed."""
        self.ends.append(self.clock())

    def watch(self, _module: object, _inputs: object, output: Tensor) -> None:
        """Wait for the backward of what the module gave; a hook of the module."""
        output.register_hook(lambda _: after_backward(self.end))

    def noting(self, loss_fn: LossFn) -> LossFn:
        """The loss, which notes when it is there."""

        def loss(outputs: Tensor, targets: Tensor) -> Tensor:
            value = loss_fn(outputs, targets)
            self.losses.append(self.clock())
            return value

        return loss


@contextmanager
def _split(trainer: Trainer, clock: Callable[[], Mark]) -> Iterator[_Marks]:
    """Split the step of a trainer by hooks around the module and the loss.

    A forward starts before `fully_shard` gathers what belongs to its root. A backward has computed
    all before DistributedDataParallel begins to wait for its buckets, and after `fully_shard` has
    reduced what belongs to its root.
    """
    marks = _Marks(clock)
    module, loss_fn = trainer.replicas[0].module, trainer.loss_fn
    hooks = [
        module.register_forward_pre_hook(marks.start, prepend=True),
        module.register_forward_hook(marks.watch),
    ]
    trainer.loss_fn = marks.noting(loss_fn)
    try:
        yield marks
    finally:
        trainer.loss_fn = loss_fn
        for hook in hooks:
            hook.remove()
