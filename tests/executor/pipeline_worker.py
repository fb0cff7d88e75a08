"""Runs many pipelines in one launch and compares each with a single process.

Every case reports the largest difference of a gradient, relative to the largest gradient of the
same parameter, and of a loss. The reference is computed on each rank, from the same seeds.
"""

from __future__ import annotations

import datetime
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from executor.measure.communication import Expected
from executor.measure.spans import SpanRecorder
from executor.measure.traffic import Traffic
from executor.parallel.gradients.buckets import GradientBuckets
from executor.parallel.gradients.layout import Groups
from executor.pipeline.runner import PipelineRunner
from executor.pipeline.tensor_spec import TensorSpec
from parsim.errors import InputError
from parsim.schedule import Schedule, build_schedule
from parsim.schedule.lowering import lower
from tests.executor.launch import die_with_parent, results
from tests.executor.random_schedules import random_schedule

WIDTH, WORDS, LENGTH, SAMPLES = 16, 24, 4, 2  # SAMPLES sequences of LENGTH words a micro-batch
CPU = torch.device("cpu")
Found = dict[str, Any]


class Block(nn.Module):  # type: ignore[misc]  # torch has no types here
    """Two matrices, so that a stage has several parameters; optionally recomputed."""

    def __init__(self, recompute: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)
        self.recompute = recompute

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.recompute:
            y: torch.Tensor = checkpoint(self.inner, x, use_reentrant=False)
            return y
        return self.inner(x)

    def inner(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = x + self.down(torch.tanh(self.up(self.norm(x))))
        return y


class Transposed(nn.Module):  # type: ignore[misc]  # torch has no types here
    """Gives back, and takes the gradient of, tensors that are not contiguous in memory."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.transpose(0, 1)


def stage_module(
    stage: int, stages: int, *, recompute: bool = False, turned: bool = False
) -> nn.Module:
    torch.manual_seed(1000 + stage)
    layers: list[nn.Module] = [Block(recompute)]
    if turned and stage > 0:
        layers.insert(0, Transposed())
    if stage == 0:
        layers.insert(0, nn.Embedding(WORDS, WIDTH))
    if turned and stage < stages - 1:
        layers.append(Transposed())
    if stage == stages - 1:
        layers.append(nn.Linear(WIDTH, WORDS))
    return nn.Sequential(*layers)


def edges(stages: int, *, turned: bool = False) -> list[TensorSpec]:
    samples, length = (LENGTH, SAMPLES) if turned else (SAMPLES, LENGTH)
    hidden = TensorSpec((samples, length, WIDTH), torch.float32)
    return [
        TensorSpec((SAMPLES, LENGTH), torch.int64),
        *[hidden] * (stages - 1),
        TensorSpec((SAMPLES, LENGTH, WORDS), torch.float32),
    ]


def loss_fn(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return cross_entropy(output.flatten(0, 1), target.flatten())


def batch(m: int, replica: int, step: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(7 + 100 * replica + 10000 * step)
    shape = (2, m * SAMPLES, LENGTH)
    tokens, targets = torch.randint(WORDS, shape, generator=generator)
    return tokens, targets


def reference(
    schedule: Schedule, dp: int, **kind: bool
) -> tuple[list[nn.Module], list[list[float]]]:
    """All stages in one process: gradients of the mean over replicas; losses by replica."""
    n, m = schedule.num_stages, schedule.num_microbatches
    modules = [stage_module(s, n, **kind) for s in range(n)]
    losses: list[list[float]] = []
    for replica in range(dp):
        tokens, targets = batch(m, replica)
        losses.append([])
        for x, y in zip(tokens.chunk(m), targets.chunk(m), strict=True):
            for module in modules:
                x = module(x)
            loss = loss_fn(x, y)
            (loss / (m * dp)).backward()
            losses[-1].append(loss.item())
    return modules, losses


def gradient_error(module: nn.Module, expected: nn.Module) -> float:
    worst = 0.0
    for actual, other in zip(module.parameters(), expected.parameters(), strict=True):
        if actual.grad is None or other.grad is None:
            return float("inf")
        grad = actual.grad.full_tensor() if hasattr(actual.grad, "full_tensor") else actual.grad
        scale = other.grad.abs().max().item()
        worst = max(worst, (grad - other.grad).abs().max().item() / scale)
    return worst


def averaging(module: nn.Module, group: dist.ProcessGroup | None) -> GradientBuckets:
    """Two buckets or more for each stage."""
    return GradientBuckets(
        dict(module.named_parameters()),
        Groups(replicate=group),
        bucket_bytes=1e3,
        dtype=torch.float32,
        wire=torch.float32,
        overlap=False,
    )


class Case:
    """One schedule on one pipeline group, of `dp` replicas."""

    def __init__(
        self,
        schedule: Schedule,
        group: dist.ProcessGroup,
        *,
        dp_group: dist.ProcessGroup | None = None,
        wrap: Callable[[nn.Module], nn.Module] | None = None,
        own_reduction: bool = False,
        zero_stage: int = 0,
        **kind: bool,
    ) -> None:
        self.dp = 1 if dp_group is None else dist.get_world_size(dp_group)
        self.replica = 0 if dp_group is None else dist.get_rank(dp_group)
        self.schedule = schedule
        n = schedule.num_stages
        stages_here = schedule.stages_on(dist.get_rank(group))
        self.stages = {s: stage_module(s, n, **kind) for s in stages_here}
        if wrap is not None:
            self.stages = {s: wrap(module) for s, module in self.stages.items()}
        self.buckets = {s: averaging(m, dp_group) for s, m in self.stages.items() if own_reduction}
        self.expected, self.losses = reference(schedule, self.dp, **kind)
        self.runner = PipelineRunner(
            schedule,
            self.stages,
            edges=edges(n, turned=kind.get("turned", False)),
            loss_fn=loss_fn,
            group=group,
            device=CPU,
            buckets=self.buckets,
            zero_stage=zero_stage,
        )

    def step(self) -> list[float]:
        for module in self.stages.values():
            module.zero_grad()
        for buckets in self.buckets.values():
            buckets.forget()
        losses = [
            float(x) for x in self.runner.step(*batch(self.schedule.num_microbatches, self.replica))
        ]
        for stage, buckets in self.buckets.items():
            buckets.finish()
            for parameter in self.stages[stage].parameters():
                parameter.grad = buckets.gradient(parameter)
        return losses

    def compare(self, losses: list[float]) -> Found:
        pairs = [(module, self.expected[s]) for s, module in self.stages.items()]
        result: Found = {"gradient": max(gradient_error(*pair) for pair in pairs)}
        if self.schedule.num_stages - 1 in self.stages:
            expected = self.losses[self.replica]
            pairs_of_losses = zip(losses, expected, strict=True)
            result["loss"] = max(abs(a - b) / abs(b) for a, b in pairs_of_losses)
        elif losses:
            raise AssertionError("losses where the last stage is not")
        return result

    def run(self, steps: int = 2) -> Found:
        """The last of some steps; the second one uses buffers that the first one left."""
        for _ in range(steps - 1):
            self.step()
        return self.compare(self.step())


def stock(pp: int) -> Iterator[Schedule]:
    for name in ("naive", "gpipe", "1f1b", "eager_1f1b"):
        yield build_schedule(name, pp=pp, num_microbatches=8)
    for name, v in (("interleaved_1f1b", 2), ("looped_bfs", 2), ("hanayo", 4)):
        yield build_schedule(name, pp=pp, num_microbatches=8, v=v)
    for name in ("zb_h1", "zb_2p"):
        yield build_schedule(name, pp=pp, num_microbatches=8)
    for name in ("zb_v", "v_half", "v_min", "dualpipe_v"):
        yield build_schedule(name, pp=pp, num_microbatches=8, v=2)


def two(world: dist.ProcessGroup) -> Iterator[tuple[str, Found]]:
    for schedule in stock(2):
        yield schedule.name, Case(schedule, world).run()
    first = build_schedule("1f1b", pp=2, num_microbatches=4)
    split = random_schedule(11, pp=2)
    yield "one microbatch", Case(build_schedule("1f1b", pp=2, num_microbatches=1), world).run()
    yield "csv", Case(Schedule.from_csv(split.to_csv()), world).run()
    lowered = lower(split).to_csv()
    yield "csv with messages", Case(Schedule.from_csv(lowered), world).run()
    yield "recompute", Case(first, world, recompute=True).run()
    yield "recompute, split backward", Case(split, world, recompute=True).run()
    yield "not contiguous", Case(first, world, turned=True).run()
    yield "accumulated", accumulated(first, world)
    for schedule in (*stock(2), split):
        yield f"timeline of {schedule.name}", timeline(Case(schedule, world), world)
    solo = [dist.new_group([rank]) for rank in range(2)][dist.get_rank()]
    alone = build_schedule("gpipe", pp=1, num_microbatches=4)
    yield "one rank", Case(alone, solo).run()
    yield "refusals", refusals(world, solo)


def accumulated(schedule: Schedule, group: dist.ProcessGroup) -> Found:
    """Two steps without zeroing between them give twice the gradient."""
    case = Case(schedule, group)
    case.step()
    losses = [float(x) for x in case.runner.step(*batch(schedule.num_microbatches, 0))]
    for module in case.stages.values():
        for parameter in module.parameters():
            if parameter.grad is not None:
                parameter.grad.div_(2)
    return case.compare(losses)


def timeline(case: Case, group: dist.ProcessGroup) -> Found:
    case.step()
    recorder = SpanRecorder(
        group=group,
        device=CPU,
        traffic=Traffic({}, CPU),
        expected=Expected(buckets={s: len(b.buckets) for s, b in case.buckets.items()}),
    )
    with recorder:
        losses = case.step()
        with recorder.measure("OPTIMIZER"):
            pass
    result = case.compare(losses)
    gathered = recorder.gather()
    again = case.step()  # recording is over: nothing is added
    result["silent"] = len(recorder.spans())
    result["unchanged"] = case.compare(again)["gradient"]
    if gathered is not None:
        result["timeline"] = gathered.to_json()
        result["lowered"] = [list(map(str, row)) for row in case.runner.schedule.ranks]
    return result


def refusals(world: dist.ProcessGroup, solo: dist.ProcessGroup) -> dict[str, str]:
    """What the runner says to what does not fit; every rank refuses before any message."""
    schedule = build_schedule("1f1b", pp=2, num_microbatches=4)
    stages_here = {s: stage_module(s, 2) for s in schedule.stages_on(dist.get_rank(world))}
    split = random_schedule(11, pp=2)
    pieces = {s: stage_module(s, split.num_stages) for s in split.stages_on(dist.get_rank(world))}
    stuck = Schedule.from_csv("0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n")
    wrapped = {s: DistributedDataParallel(m, process_group=solo) for s, m in stages_here.items()}
    split_ddp = {s: DistributedDataParallel(m, process_group=solo) for s, m in pieces.items()}
    tries: dict[str, Callable[[], object]] = {
        "deadlock": lambda: runner(stuck, stages_here, edges(2), world),
        "stages": lambda: runner(schedule, {7: stage_module(0, 2)}, edges(2), world),
        "edges": lambda: runner(schedule, stages_here, edges(3), world),
        "twice": lambda: runner(schedule, wrapped, edges(2), world, averaged=True),
        "ddp": lambda: runner(split, split_ddp, edges(split.num_stages), world),
        "size": lambda: runner(
            build_schedule("1f1b", pp=4, num_microbatches=4), stages_here, [], world
        ),
        "nothing": lambda: runner(schedule, stages_here, edges(2), world).step(),
        "rows": lambda: runner(schedule, stages_here, edges(2), world).step(*batch(3, 0)),
    }
    return {name: message(attempt) for name, attempt in tries.items()}


def runner(
    schedule: Schedule,
    stages: dict[int, nn.Module],
    shapes: list[TensorSpec],
    group: dist.ProcessGroup,
    *,
    averaged: bool = False,
) -> PipelineRunner:
    return PipelineRunner(
        schedule,
        stages,
        edges=shapes,
        loss_fn=loss_fn,
        group=group,
        device=CPU,
        buckets={s: averaging(m, group) for s, m in stages.items() if averaged},
    )


def message(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except InputError as error:
        return f"{type(error).__name__}: {error}"
    return "not refused"


def three(world: dist.ProcessGroup) -> Iterator[tuple[str, Found]]:
    for seed in range(100):
        schedule = random_schedule(seed, pp=3)
        yield schedule.name, Case(schedule, world).run(steps=1)


def four(world: dist.ProcessGroup) -> Iterator[tuple[str, Found]]:
    for schedule in stock(4):
        yield schedule.name, Case(schedule, world).run()
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "dp"))
    pp, dp = mesh.get_group("pp"), mesh.get_group("dp")
    split = random_schedule(5, pp=2)
    for schedule in (*stock(2), split):
        case = Case(schedule, pp, dp_group=dp, own_reduction=True)
        yield f"2x2 reduce_grad, {schedule.name}", case.run()

    def ddp(module: nn.Module) -> nn.Module:
        return DistributedDataParallel(module, process_group=dp)

    def shard(reshard: bool) -> Callable[[nn.Module], nn.Module]:
        return lambda m: fully_shard(m, mesh=mesh["dp"], reshard_after_forward=reshard)

    full = [s for s in stock(2) if s.name in ("1f1b", "interleaved_1f1b")]
    for schedule in full:
        yield f"2x2 ddp, {schedule.name}", Case(schedule, pp, dp_group=dp, wrap=ddp).run()
        sharded = Case(schedule, pp, dp_group=dp, wrap=shard(True), zero_stage=3)
        yield f"2x2 zero 3, {schedule.name}", sharded.run()
    for schedule in (*full, split):
        sharded = Case(schedule, pp, dp_group=dp, wrap=shard(False), zero_stage=2)
        yield f"2x2 zero 2, {schedule.name}", sharded.run()
    case = Case(full[1], pp, dp_group=dp, own_reduction=True)
    yield "2x2 timeline", timeline(case, pp)


SUITES = {"two": two, "three": three, "four": four}


def main() -> None:
    folder, suite = sys.argv[1:]
    die_with_parent()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=30))
    try:
        result = dict(SUITES[suite](dist.group.WORLD))
        results(folder, int(os.environ["RANK"]), result)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
