"""Where each rank stands: the device mesh of a plan, and whether the machine can hold it.

The names of the mesh are always AXES, outermost first. A plan's rank order changes which ranks
are neighbours, not the names: the tensor of ranks is permuted.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from parsim.errors import InputError, PlanError
from parsim.nodes import Nodes
from parsim.plan import Plan
from parsim.plan.divisors import divisors
from parsim.plan.record import AXES

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch.distributed.device_mesh import DeviceMesh

SHARING_NCCL = (2, 30)
"""First NCCL in which several ranks may use one GPU (experimental, by environment variable)."""

SHARING_VARIABLE = "NCCL_MULTI_RANK_GPU_ENABLE"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReport:
    """What this machine offers to the ranks on it.

    `kind` is torch's device type. `count` is the number of GPUs, or of CPU cores this process may
    use. `shareable` says whether several ranks may use one device. The other ones of `nodes` are
    taken to be alike.
    """

    kind: str
    backend: str
    count: int
    names: tuple[str, ...]
    shareable: bool
    nodes: int = 1

    def __str__(self) -> str:
        kinds = ", ".join(sorted(set(self.names)))
        nodes = f"{self.nodes} nodes of " if self.nodes > 1 else ""
        return f"{nodes}{self.count} x {self.kind} ({kinds}), backend {self.backend}"


def coordinates(plan: Plan, rank: int) -> dict[str, int]:
    """Return the place of a rank on each mesh axis.

    Raises:
        PlanError: the plan has no such rank.
    """
    if not 0 <= rank < plan.world_size:
        raise PlanError(
            f"rank={rank} is not in a plan of {plan.world_size} ranks; "
            f"allowed: 0..{plan.world_size - 1}"
        )
    return {axis: rank // plan.stride(axis) % plan.degree(axis) for axis in AXES}


def rank_at(plan: Plan, place: Mapping[str, int]) -> int:
    """Return the rank at a place; an axis that is not named counts as 0."""
    return sum(plan.stride(axis) * index for axis, index in place.items())


def replica_index(plan: Plan, rank: int) -> int:
    """Return which share of the global batch a rank trains on, 0 .. dp-1."""
    place = coordinates(plan, rank)
    return place["dp_replicate"] * plan.dp_shard + place["dp_shard"]


DIMS = ("pp", "dp_replicate", "dp_shard", "tp")
"""Dims of a mesh: the axes but cp, which is part of a data axis."""


def build_mesh(plan: Plan, device_type: str) -> DeviceMesh:
    """Build the mesh with the dims pp, dp_replicate, dp_shard, tp on every rank.

    Ranks of a context-parallel group have the same parameters and other tokens, as replicas have:
    cp is the inner part of dp_shard where states are sharded, and of dp_replicate where not. So
    the sizes of these dims may be more than the plan's degrees.

    The process group must exist and have the plan's world size.
    """
    from torch.distributed.device_mesh import DeviceMesh

    copies, shards = (1, plan.cp) if plan.zero_stage > 0 else (plan.cp, 1)
    sizes = plan.pp, plan.dp_replicate * copies, plan.dp_shard * shards, plan.tp
    return DeviceMesh(device_type, ranks_by_place(plan).view(sizes), mesh_dim_names=DIMS)


def ranks_by_place(plan: Plan) -> Tensor:
    """Return the ranks as a tensor whose dims are AXES: the transposed rank order."""
    import torch

    sizes = [plan.degree(axis) for axis in plan.rank_order]
    ranks = torch.arange(plan.world_size).view(sizes)
    return ranks.permute([plan.rank_order.index(axis) for axis in AXES]).contiguous()


def probe(kind: str | None = None, *, nodes: int = 1) -> DeviceReport:
    """Look at this machine, one of `nodes`: its GPUs if there are any, else (or if asked) the CPU.

    Raises:
        InputError: an unknown kind, or "cuda" where torch sees no GPU.
    """
    import torch

    if kind not in (None, "cpu", "cuda"):
        raise InputError(f"device={kind!r} is unknown; allowed: cpu, cuda")
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if kind == "cuda" and not found:
        raise InputError(
            f"device='cuda', but torch {torch.__version__} sees no GPU; use device='cpu', or "
            f"install a torch built for CUDA"
        )
    if kind == "cpu" or not found:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        return DeviceReport(
            kind="cpu", backend="gloo", count=cores or 1, names=("cpu",), shareable=True,
            nodes=nodes,
        )  # fmt: skip
    names = tuple(torch.cuda.get_device_name(i) for i in range(found))
    return DeviceReport(
        kind="cuda",
        backend="nccl",
        count=found,
        names=names,
        shareable=_may_share(torch.cuda.nccl.version()),
        nodes=nodes,
    )


def rank_device(report: DeviceReport) -> torch.device:
    """The device of this rank, under torchrun; CPU ranks compute with one thread."""
    import torch

    if report.kind == "cpu":
        torch.set_num_threads(1)
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % report.count)
    torch.cuda.set_device(device)
    return device


def _may_share(nccl: Iterable[int]) -> bool:
    # NCCL before 2.30 ends with "Duplicate GPU detected" when two ranks use one GPU
    return tuple(nccl)[:2] >= SHARING_NCCL and os.environ.get(SHARING_VARIABLE) == "1"


def check_world(plan: Plan, report: DeviceReport, *, oversubscribe: bool) -> None:
    """Refuse a plan that this machine cannot hold.

    Raises:
        InputError: more ranks than devices, and sharing them was not asked for or cannot be.
    """
    here = Nodes(count=report.nodes).share(plan.world_size)
    if here <= report.count or (oversubscribe and report.shareable):
        return
    smaller = largest_fitting(plan, report.count, nodes=report.nodes)
    fit = f"what fits: {_degrees(smaller)} = {smaller.world_size}"
    ranks = f"world size {plan.world_size} ({_degrees(plan)})"
    if report.nodes > 1:
        ranks += f" on {report.nodes} nodes, {here} on each,"
    raise InputError(
        f"{ranks} is more than the {report.count} {_devices(report)} of this machine; {fit}; "
        f"{_way_out(report)}"
    )


def largest_fitting(plan: Plan, count: int, *, nodes: int = 1) -> Plan:
    """Return the plan with the most ranks, up to `count` a node, whose degrees divide this one's.

    Among equals the one that changes tensor parallelism least, then pipeline, then sharding.
    """
    best = plan
    best_key: tuple[int, ...] = ()
    names = ("tp", "pp", "dp_shard", "dp_replicate", "cp")
    for degrees in itertools.product(*(divisors(plan.degree(name)) for name in names)):
        tp, pp, shard, copies, cp = degrees
        candidate = replace(plan, tp=tp, pp=pp, dp_shard=shard, dp_replicate=copies, cp=cp)
        key = (candidate.world_size, *degrees)
        if candidate.world_size % nodes or candidate.world_size > count * nodes:
            continue
        if key > best_key:
            best, best_key = candidate, key
    return _settled(best)


def _settled(plan: Plan) -> Plan:
    """Take back what needs a degree above 1 that is gone."""
    if plan.dp_shard * plan.cp == 1:
        plan = replace(plan, zero_stage=0)
    if plan.tp == 1:
        plan = replace(plan, sequence_parallel=False)
    if plan.pp == 1 and plan.schedule == "interleaved_1f1b":
        plan = replace(plan, schedule="1f1b", v=1, stage_layers=None)
    return plan


def _degrees(plan: Plan) -> str:
    return f"pp={plan.pp} x dp={plan.dp} x cp={plan.cp} x tp={plan.tp}"


def _devices(report: DeviceReport) -> str:
    one = report.count == 1
    if report.kind == "cpu":
        return "CPU core" if one else "CPU cores"
    return "GPU" if one else "GPUs"


def _way_out(report: DeviceReport) -> str:
    if report.shareable:
        return "or share the devices among ranks with --oversubscribe"
    return (
        f"or run on the CPU with --oversubscribe (one GPU holds one rank, unless NCCL is "
        f"{'.'.join(map(str, SHARING_NCCL))} or newer and {SHARING_VARIABLE}=1)"
    )
