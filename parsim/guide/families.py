"""The families of parallel training, each as the plans that a user would try first.

    one device       the whole batch of one worker, alone
    DataParallel     one process, the devices of one node
    DDP              all-reduce of gradients
    server           synchronous, a share of the weights on each host (or device); pushes beside
                     backward, and of several nodes with several devices one sum a node
    async server     without a barrier, every worker by itself
    local SGD        weights averaged every 8th step
    ZeRO / FSDP      states, gradients and parameters shared out to all devices, as far as is best
                     of what the software has
    tensor           layers split over the devices of a node, or as many as their heads allow, with
                     sequence parallelism or without, data parallelism beside it
    pipeline         layers in stages over the devices of a node, 1F1B, data parallelism beside it
    hybrid           tensor inside the node where layers can be split, a pipeline over two nodes or
                     halves, data parallelism
    branches         of models whose branches are worth it: two devices a model, data parallelism
    layout           of short models with most parameters in products: the cheapest split of each

Data parallelism beside others is plain or has the least of ZeRO that the software has. Each is
tried with micro-batches of every power of two that divides its share of the batch, and with full
recomputation where nothing fits without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from parsim.cluster.hardware import Cluster
from parsim.cost.job import Job
from parsim.model.networks import Convolution
from parsim.model.operators import Linear
from parsim.plan import Plan
from parsim.plan.rules.degrees import tensor_degrees
from parsim.plan.rules.strategy import hosts
from parsim.plan.strategies import (
    DDP,
    AsynchronousServer,
    BranchParallel,
    Layout,
    LocalSGD,
    ParameterServer,
    SingleProcess,
    Strategy,
    Where,
)

Plans = tuple[Plan, ...]
"""What a family is tried with: plans that differ in what its software may switch on."""

LARGEST_MICROBATCH = 1024
SHORT = 60
"""Operations of a graph up to which the cheapest layout is looked for: half a second a size."""
BESIDE = 0.1
"""Share of a model's FLOPs off its longest way from which branches on two devices are tried."""
LOCAL_STEPS = 8
"""Steps between averages of the local SGD that is compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyFamily:
    """A family: its name, the same training as DDP or not, and its plan with one micro-batch size.

    `plans` gives those of a job from the common switches, or says why there is none.
    """

    name: str
    same_training: bool
    plans: Callable[[Job, Plan], Plans | str]


def one_device(job: Job) -> Job:
    """The job on the first of its devices alone."""
    system = job.cluster.systems[0]
    alone = replace(system, devices_per_node=1, devices_per_host=1, topology=(), curves=())
    return replace(job, cluster=Cluster(system=alone, num_nodes=1), global_batch_size=None)


def families(job: Job) -> tuple[StrategyFamily, ...]:
    """The families in the order in which they are tried and printed."""
    where: Where = "hosts" if hosts(job.cluster) else "devices"
    served, loose = _served(job, where), AsynchronousServer(on=where)
    tried = [
        StrategyFamily(name="one device", same_training=True, plans=_alone),
        StrategyFamily(name="DataParallel", same_training=True, plans=_replicas(SingleProcess())),
        StrategyFamily(name="DDP", same_training=True, plans=_replicas(DDP)),
        StrategyFamily(name="parameter server", same_training=True, plans=_replicas(served)),
        StrategyFamily(name="asynchronous server", same_training=False, plans=_replicas(loose)),
        StrategyFamily(
            name="local SGD", same_training=False, plans=_replicas(LocalSGD(every=LOCAL_STEPS))
        ),
        StrategyFamily(name="ZeRO / FSDP", same_training=True, plans=_sharded),
        StrategyFamily(name="tensor", same_training=True, plans=_tensor),
        StrategyFamily(name="pipeline", same_training=True, plans=_pipeline),
        StrategyFamily(name="hybrid", same_training=True, plans=_hybrid),
    ]
    if _wide(job):
        tried.append(StrategyFamily(name="branches", same_training=True, plans=_branches))
    if _wide_products(job):
        tried.append(StrategyFamily(name="layout", same_training=True, plans=_layout))
    return tuple(tried)


def _served(job: Job, where: Where) -> ParameterServer:
    """Servers as frameworks with servers have them; parsim's own executor runs the plain ones."""
    if job.software.executor:
        return ParameterServer(on=where)
    several = job.cluster.num_nodes > 1 and _inside(job) > 1
    return ParameterServer(on=where, overlap=True, node_sums=several and where == "hosts")


def _wide_products(job: Job) -> bool:
    """Whether a short graph has most of its parameters in products, behind convolutions."""
    operators = [op for layer in job.model.layers for op in layer.operators]
    inside = sum(op.repeated_parameters for op in operators if isinstance(op, Linear))
    graph, convolves = job.model.graph, any(isinstance(op, Convolution) for op in operators)
    short = graph is not None and len(graph.nodes) <= SHORT
    return short and convolves and 2 * inside > job.model.parameters


def _wide(job: Job) -> bool:
    """Whether a share of the model worth naming may run beside its longest way."""
    branching = job.model.branching
    return branching is not None and branching.longest_share <= 1.0 - BESIDE


def _alone(job: Job, common: Plan) -> Plans:
    return (replace(common, dp_replicate=1),)


def _replicas(strategy: Strategy) -> Callable[[Job, Plan], Plans | str]:
    """One replica a device."""

    def plans(job: Job, common: Plan) -> Plans | str:
        if job.cluster.num_devices == 1:
            return "there is one device"
        return (replace(common, dp_replicate=job.cluster.num_devices, strategy=strategy),)

    return plans


def _sharded(job: Job, common: Plan) -> Plans | str:
    if job.cluster.num_devices == 1:
        return "there is one device"
    stages = _sharing(job, common) or (3,)
    return tuple(
        replace(common, dp_shard=job.cluster.num_devices, zero_stage=stage) for stage in stages
    )


def _sharing(job: Job, plan: Plan) -> tuple[int, ...]:
    """Stages of ZeRO that the software has with such a pipeline, the least first."""
    return tuple(stage for stage in sorted(job.software.zero_stages_with(plan.pp)) if stage)


def _inside(job: Job) -> int:
    """Devices of a node, of the smallest one."""
    return min(system.devices_per_node for system in job.cluster.systems)


def _split(job: Job, devices: int) -> int:
    """The most of so many devices of a node that the model's layers can be split over."""
    allowed = (tp for tp in tensor_degrees(job.model) if tp <= devices and devices % tp == 0)
    return max(allowed, default=1)


def _tensor(job: Job, common: Plan) -> Plans | str:
    inside = _inside(job)
    if inside == 1:
        return "nodes have one device"
    degree = _split(job, inside)
    # the rules say why a model cannot be split
    return _beside(job, replace(common, tp=degree if degree > 1 else inside))


def _pipeline(job: Job, common: Plan) -> Plans | str:
    devices = job.cluster.num_devices
    if devices == 1:
        return "there is one device"
    return _beside(job, replace(common, pp=_inside(job) if _inside(job) > 1 else devices))


def _hybrid(job: Job, common: Plan) -> Plans | str:
    devices, degree = job.cluster.num_devices, _inside(job)
    if devices < 4:
        return f"needs 4 devices or more, two stages of two each; there are {devices}"
    degree = _split(job, degree if devices > degree else degree // 2)
    return _beside(job, replace(common, tp=degree, pp=2))


def _branches(job: Job, common: Plan) -> Plans | str:
    """Two devices hold a model together, replicas of it on the others."""
    if job.cluster.num_devices == 1:
        return "there is one device"
    strategy = BranchParallel(devices=2)
    return (replace(common, dp_replicate=job.cluster.num_devices, strategy=strategy),)


def _layout(job: Job, common: Plan) -> Plans | str:
    """A node's devices are a mesh of one axis, the nodes its replicas."""
    devices = job.cluster.num_devices
    if devices == 1:
        return "there is one device"
    size = _inside(job) if _inside(job) > 1 else devices
    return (replace(common, dp_replicate=devices, strategy=Layout(mesh=(("devices", size),))),)


def _beside(job: Job, plan: Plan) -> Plans | str:
    """The plan with data parallelism over the devices that it leaves."""
    devices, used = job.cluster.num_devices, plan.tp * plan.pp
    if devices % used:
        return f"{used} devices do not divide {devices}"
    replicas = devices // used
    plain = replace(plan, dp_replicate=replicas)
    split = [plain, replace(plain, sequence_parallel=True)] if plan.tp > 1 else [plain]
    shared = _sharing(job, plan)[:1] if replicas > 1 else ()
    return (
        *split,
        *(
            replace(each, dp_replicate=1, dp_shard=replicas, zero_stage=stage)
            for each in split
            for stage in shared
        ),
    )


def with_batches(plan: Plan, batch: int) -> Iterator[Plan]:
    """The plan with micro-batches of each size that divides a replica's share of the batch."""
    share, rest = divmod(batch, plan.dp)
    size = 1
    while not rest and size <= min(share, LARGEST_MICROBATCH):
        if share % size == 0:
            yield replace(plan, microbatch_size=size, num_microbatches=share // size)
        size *= 2
