"""Which whole layers are timed, and in which order: first what the predicted steps hang on.

A task is one part of one workload: its chain of blocks, its embedding, its head, or what ZeRO-3
adds to the whole. Every part has a share of the targets' predicted steps. First comes one task of
each part that a target has, by share; then the other sizes of the targets; then the usual sizes,
of which a line through several widths is made, so that other plans are served too.

    task         part's share   first of its part   order
    asked for    > 0            yes                 0, by share
    asked for    > 0            no                  1, by share
    usual        > 0            -                   2, by share, the cheapest first
    any          0              -                   3, the cheapest workload first

Where shares tie, the tasks of one workload come together, so that it is built once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from executor.calibration.cases.setting import CalibrationSetting
from executor.calibration.cases.targets import Target
from executor.calibration.cases.workloads import Workload
from parsim.cluster.hardware import Cluster, System
from parsim.cost.job import Job
from parsim.cost.layer.layers import LayerCoster, measured_kind
from parsim.cost.step.sharded_stages import sharding_times
from parsim.model.layer import Layer
from parsim.plan import PlanTable

BLOCK, EMBEDDING, HEAD, SHARDED = "block", "embedding", "head", "sharded"
"""Parts of a workload that are timed by themselves; SHARDED is what ZeRO-3 adds to all."""
BUILD = {"cpu": 2e-8, "cuda": 2e-10}
"""Seconds a parameter: a stage's weights are drawn, by one thread or by a GPU, and split."""
FEWEST_ROUNDS = 5
"""Two that warm up and three that count."""
SHARDED_ROUNDS = 3.0
"""Times as many: with and without sharding, and once more to see its waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTask:
    """One part of a workload to time.

    `share` is the part's share of the targets' predicted steps (mean over targets), `asked_for`
    whether the workload is a target's. `cost` is what timing it at least takes, seconds by the
    model.
    """

    workload: Workload
    part: str
    share: float = 0.0
    asked_for: bool = False
    cost: float = 0.0

    @property
    def kind(self) -> str:
        """What its residuals are called, without the direction."""
        layer = self.layer
        return layer if layer == SHARDED else measured_kind(self.workload.plan, layer)

    @property
    def layer(self) -> str:
        """The name of the layer that is timed; SHARDED stands for all."""
        return self.workload.model.kinds[0].name if self.part == BLOCK else self.part

    @property
    def make_up(self) -> str:
        """The operators of the block that is timed; other parts of a name are alike enough."""
        return self.workload.model.kinds[0].make_up if self.part == BLOCK else ""

    @property
    def exchanges(self) -> bool:
        """Whether ranks wait for each other in it."""
        return self.part == SHARDED or self.kind != self.layer

    @property
    def words(self) -> str:
        """The task for people: what, and of which size."""
        spec, plan = self.workload.spec, self.workload.plan
        size = f"width {spec.hidden_size}, {plan.microbatch_size} x {spec.seq_len} tokens"
        axes = ("tp", plan.tp), ("cp", plan.cp), ("ep", plan.ep)
        degrees = [f", {axis} {n}" for axis, n in axes if n > 1]
        return f"{self.kind} of {size}{''.join(degrees)}"


def layer_tasks(setting: CalibrationSetting, system: System) -> tuple[LayerTask, ...]:
    """All tasks of a setting in the order of measuring; the links are priced as `system`'s."""
    shares = part_shares(setting.targets)
    several = setting.groups.world > 1 and not setting.groups.oversubscribed
    node = Cluster(system=replace(system, device=setting.device), num_nodes=1)
    tasks = []
    for number, workload in enumerate(setting.workloads):
        job = Job(model=workload.model, cluster=node, software=setting.kernels.software)
        build = BUILD[setting.report.kind]
        costs = _costs(job, PlanTable.of([workload.plan]), build)
        asked_for = number < len(setting.asked_for)
        # of models that nobody asked for, one kind shows what sharding adds
        sharded = several and (asked_for or not workload.spec.gated_mlp)
        for part in parts_of(workload, sharded=sharded):
            task = LayerTask(workload=workload, part=part, asked_for=asked_for)
            tasks.append(replace(task, share=shares.get(task.kind, 0.0), cost=costs[part]))
    return tuple(ordered(tasks))


def parts_of(workload: Workload, *, sharded: bool) -> Iterable[str]:
    """Parts of a workload; of ranks that share sequences or experts the blocks alone.

    The rest is as without. A frozen embedding has no backward.
    """
    yield BLOCK
    plan = workload.plan
    if plan.cp * plan.ep * plan.etp > 1 or workload.blocks_alone:
        return
    yield from (EMBEDDING, HEAD) if workload.model.trained is None else (HEAD,)
    if sharded and plan.tp == 1:
        yield SHARDED


def ordered(tasks: Sequence[LayerTask]) -> list[LayerTask]:
    """The order above; equal ones keep theirs."""
    seen: set[tuple[str, str]] = set()
    tied: dict[tuple[int, float], dict[Workload, list[LayerTask]]] = {}
    for task in sorted(tasks, key=lambda task: (not task.asked_for, task.cost)):
        first = task.asked_for and (task.kind, task.make_up) not in seen
        if task.asked_for:
            seen.add((task.kind, task.make_up))
        group = 3 if task.share <= 0.0 else 0 if first else 1 if task.asked_for else 2
        tied.setdefault((group, -task.share), {}).setdefault(task.workload, []).append(task)
    return [task for key in sorted(tied) for task in _cheapest_first(tied[key])]


def _cheapest_first(tied: Mapping[Workload, list[LayerTask]]) -> Iterator[LayerTask]:
    """Workloads by their cheapest task, and the tasks of each by cost."""
    for tasks in sorted(tied.values(), key=lambda tasks: min(task.cost for task in tasks)):
        yield from sorted(tasks, key=lambda task: task.cost)


def part_shares(targets: Sequence[Target]) -> dict[str, float]:
    """Share of the layers' and sharding's seconds by kind, mean over targets; they sum to 1."""
    shares: dict[str, float] = {}
    for target in targets:
        seconds = _part_seconds(target)
        total = sum(seconds.values())
        for kind, part in seconds.items():
            shares[kind] = shares.get(kind, 0.0) + part / total / len(targets)
    return shares


def _part_seconds(target: Target) -> Mapping[str, float]:
    """Seconds of one micro-batch by kind, forward and backward, as the catalog prices them."""
    job, plan = target.job, target.plan
    table = PlanTable.of([plan])
    coster, seconds = LayerCoster(job, table), dict[str, float]()
    for layers in (job.model.ends, job.model.blocks):
        each = {name: _both(coster, layer) for name, layer in _by_name(layers).items()}
        for layer in layers:
            kind = measured_kind(plan, layer.name)
            seconds[kind] = seconds.get(kind, 0.0) + each[layer.name]
    if plan.zero_stage == 3 and plan.dp_shard > 1:
        seconds[SHARDED] = sum(sharding_times(job, table))
    return seconds


def _costs(job: Job, table: PlanTable, each: float) -> dict[str, float]:
    """Seconds that each part takes with the fewest rounds, as the catalog's device prices it.

    Building takes `each` parameter so many seconds more.
    """
    coster, model = LayerCoster(job, table), job.model
    blocks = sum(_both(coster, layer) for layer in model.blocks)
    ends = {layer.name: _both(coster, layer) for layer in model.ends}
    build = each * model.parameters / float(table.tp[0])
    once = {
        BLOCK: blocks,
        EMBEDDING: ends.get(EMBEDDING, 0.0),
        HEAD: ends.get(HEAD, 0.0),
        SHARDED: SHARDED_ROUNDS * (blocks + sum(ends.values())),
    }
    return {part: FEWEST_ROUNDS * seconds + build for part, seconds in once.items()}


def _by_name(layers: Iterable[Layer]) -> dict[str, Layer]:
    """One layer of each name."""
    return {layer.name: layer for layer in layers}


def _both(coster: LayerCoster, layer: Layer) -> float:
    """Seconds of a layer's forward and backward."""
    cost = coster.cost(layer)
    return float((cost.forward.seconds + cost.backward.seconds)[0])
