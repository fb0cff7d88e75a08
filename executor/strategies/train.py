"""Trains with a plan's strategy: who runs which, what cannot be run, and a first gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from executor.measure.tolerance import judge
from executor.strategies.asynchronous_server import asynchronous_server
from executor.strategies.compute import average, gradient_of, weight
from executor.strategies.gossip import asynchronous_gossip, gossip
from executor.strategies.local_steps import diloco, local_sgd
from executor.strategies.parameter_server import parameter_server
from executor.strategies.replays.log import Trained
from executor.strategies.single_process import Copies, single_process
from executor.strategies.together.branch_parallel import Group, branch_parallel
from executor.strategies.together.layout import Devices, layout
from executor.strategies.together.rounds import mean_loss
from executor.strategies.work import Work
from parsim.errors import PlanError
from parsim.plan import Plan
from parsim.plan.strategies import (
    AllReduce,
    AsynchronousGossip,
    AsynchronousServer,
    BranchParallel,
    DiLoCo,
    Gossip,
    Layout,
    LocalSGD,
    ParameterServer,
    SingleProcess,
)

RUNNERS: dict[str, Callable[[Work], Trained]] = {
    SingleProcess.name: single_process,
    ParameterServer.name: parameter_server,
    AsynchronousServer.name: asynchronous_server,
    Gossip.name: gossip,
    AsynchronousGossip.name: asynchronous_gossip,
    LocalSGD.name: local_sgd,
    DiLoCo.name: diloco,
    BranchParallel.name: branch_parallel,
    Layout.name: layout,
}
"""Who runs a strategy, by its name."""


def check_strategy(plan: Plan) -> None:
    """Refuse what would not be what the plan says.

    Raises:
        PlanError: an option that only the simulator has.
    """
    strategy = plan.strategy
    if isinstance(strategy, AllReduce):
        if strategy.algorithm is not None:
            raise PlanError(
                f"strategy.algorithm={strategy.algorithm} cannot be forced here; leave it out, or "
                f"set NCCL_ALGO where NCCL reduces"
            )
        return
    if isinstance(strategy, ParameterServer):
        _check_server(plan, strategy)
    if plan.precision != "fp32":
        raise PlanError(
            f"precision={plan.precision!r} with strategy {strategy.name}: workers run in fp32 "
            f"here; use precision='fp32'"
        )
    if plan.sync_batch_norm:
        raise PlanError(
            f"sync_batch_norm with strategy {strategy.name}: workers do not wait for one another "
            f"within a pass here; use strategy ddp, or sync_batch_norm=false"
        )


def check_off_cpu(plan: Plan) -> None:
    """Refuse a strategy whose workers can only be on a CPU.

    NCCL ignores the tags that tell messages of several threads between the same two ranks apart,
    and gloo sends and receives what is in the host's memory only.

    Raises:
        PlanError: naming the strategy, and what it needs.
    """
    strategy = plan.strategy
    what = ""
    if strategy.one_process:
        what = "runs its copies as threads on a CPU here"
    elif strategy.sharers > 1:
        what = "hands parts of a model on over gloo, on a CPU"
    elif isinstance(strategy, AsynchronousServer | AsynchronousGossip):
        what = TAGGED
    elif isinstance(strategy, ParameterServer) and strategy.backup_workers:
        what = f"with backup_workers={strategy.backup_workers} {TAGGED}"
    if what:
        raise PlanError(f"strategy.name={strategy.name} {what}; use --device cpu, or name=ddp")


TAGGED = "tells messages of its threads apart by tags, which NCCL ignores"


def _check_server(plan: Plan, strategy: ParameterServer) -> None:
    """Workers send their own gradients here, and servers must agree on whose gradients count."""
    simulated = [name for name in ("node_sums", "overlap") if getattr(strategy, name)]
    if simulated:
        raise PlanError(
            f"strategy.{simulated[0]}=true is simulated only: each worker sends its own gradient "
            f"behind its backward here; leave it out"
        )
    if not strategy.backup_workers:
        return
    if (strategy.servers or 1) > 1 or (strategy.on == "devices" and strategy.servers != 1):
        raise PlanError(
            f"strategy.backup_workers={strategy.backup_workers} with several servers: each would "
            f"count other workers' gradients; use servers=1"
        )
    if plan.replica_microbatches is not None:
        raise PlanError(
            f"strategy.backup_workers={strategy.backup_workers} with replica_microbatches="
            f"{list(plan.replica_microbatches)}: the samples of a step would hang on who comes "
            f"first; leave one of them out"
        )


def train(work: Work) -> Trained:
    """Train this rank's part; all ranks of the group call it."""
    trained = RUNNERS[work.plan.strategy.name](work)
    trained.weights = trained.weights.clone()  # the replica may be given other weights now
    return trained


def verify(work: Work, seed: int) -> dict[str, Any] | None:
    """Loss and gradient of the first global batch; on rank 0, None elsewhere.

    The model must have no dropout. That weights follow from such gradients as the strategy says is
    for the tests, and for the replay of an asynchronous run.
    """
    plan, replica = work.plan, work.replica
    loss, named = _gradients(work)
    if named is None:
        return None
    parts = [work.batches(worker, 0) for worker in range(plan.dp)]
    whole = torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])
    spec = replica.spec if work.laid is None else work.laid.graph
    return judge(spec, plan.whole_models, whole, seed, loss, named).to_json()


def _gradients(work: Work) -> tuple[float, dict[str, Tensor] | None]:
    """Mean loss of all workers, and on rank 0 the mean gradient by the names of parameters."""
    plan, replica = work.plan, work.replica
    if plan.strategy.sharers > 1:
        group = Group.of(work) if isinstance(plan.strategy, BranchParallel) else Devices.of(work)
        loss, gradient = group.gradient(0)
        return mean_loss(loss), group.named(gradient)
    if isinstance(plan.strategy, SingleProcess):
        copies = Copies.of(replica, plan.dp)
        with copies.threads:
            loss, mean = copies.gradient(work, 0)
    else:
        loss, gradient = gradient_of(work, 0)
        share = weight(plan, dist.get_rank())
        mean = average(share * gradient)
        # on the replica's device: NCCL reduces nothing in the host's memory
        losses = torch.tensor([share * loss], dtype=torch.float64, device=gradient.device)
        loss = float(average(losses))
    return loss, None if dist.get_rank() else replica.named(mean)
