"""Runs many plans on one set of ranks; leaves loss and gradient errors of each by its name.

Arguments: folder for the results, file of the cases by name (see `test_parallel.py`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from executor.measure.gradients import gather_gradients, max_relative_error, reference
from executor.measure.memory import step_bytes
from executor.model.factors import local_tensor
from executor.model.first_values import OUTPUT_TABLE, TOKEN_TABLE, Values, none_zero, seeded
from executor.model.loss import IGNORED
from executor.parallel.context import rank_part
from executor.parallel.gradients.split import whole_tensor
from executor.training.build import build_trainer
from executor.training.norm import clip_factor, clip_gradients, gradient_norm
from executor.training.optimizer import StageOptimizer
from executor.training.trainer import Trainer
from executor.training.update_rule import OptimizerConfig, Rate
from parsim.model.transformer import TransformerSpec
from parsim.plan import CpCommType, Plan, Recompute
from tests.executor.workers.specs import SPECS

SEED = 3
SGD = OptimizerConfig(name="sgd", rate=Rate(peak=0.5), weight_decay=0.0)


def batch(plan: Plan, spec: TransformerSpec) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(11)
    shape = (plan.global_batch_size, spec.seq_len + 1)
    ids = torch.randint(0, spec.vocab_size, shape, generator=generator)
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


def masked(plan: Plan, spec: TransformerSpec) -> tuple[torch.Tensor, torch.Tensor]:
    """Make a `batch` in which only every seventh token has a target."""
    tokens, targets = batch(plan, spec)
    counted = torch.arange(spec.seq_len) % 7 == 0
    return tokens, targets.masked_fill(~counted, IGNORED)


def mean_loss(losses: Sequence[Tensor | float], mesh: DeviceMesh, plan: Plan) -> float:
    """The mean over micro-batches, replicas and context ranks, on ranks that have losses."""
    total = torch.tensor(0.0, dtype=torch.float64)
    for loss in losses:
        total += float(loss) / (len(losses) * plan.dp * plan.cp)
    total = total.to(mesh.device_type)
    for axis in ("dp_replicate", "dp_shard"):
        if mesh[axis].size() > 1:
            dist.all_reduce(total, group=mesh[axis].get_group())
    return float(total)


def whole_step(case: Case) -> tuple[float, dict[str, Tensor]]:
    """Loss and gradients of one process: rank 0's, which all others are told."""
    told: list[Any] = [None]
    if dist.get_rank() == 0:
        batch = case.batch(case.plan, case.spec)
        told = [reference(case.spec, case.plan, batch, SEED, values=values_of(case.spec))]
    dist.broadcast_object_list(told)
    loss, gradients = told[0]
    return loss, dict(gradients)


def values_of(spec: TransformerSpec) -> Values:
    """First values that leave no second factor of an adapter zero, so that all have gradients."""
    return none_zero(seeded(SEED, spec=spec))


class Case:
    """One plan, ready to run steps."""

    def __init__(self, case: dict[str, Any]) -> None:
        fields = dict(case["plan"])
        fields["recompute"] = Recompute[fields.get("recompute", "none").upper()]
        fields["cp_comm_type"] = CpCommType[fields.get("cp_comm_type", "default").upper()]
        fields["rank_order"] = tuple(fields.get("rank_order", Plan().rank_order))
        self.plan = plan = Plan(**fields)
        self.spec = SPECS[case["model"]]
        self.batch = masked if case.get("masked") else batch
        self.trainer = build_trainer(
            self.spec,
            plan,
            device=torch.device("cpu"),
            seed=SEED,
            optimizer=SGD,
            values=values_of(self.spec),
        )

    def step(self) -> float | None:
        """Forward and backward; the mean loss of the global batch where it is known."""
        batch = self.batch(self.plan, self.spec)
        tokens, targets = rank_part(self.spec, self.plan, dist.get_rank(), batch)
        losses = self.trainer.gradients(tokens, targets)
        return mean_loss(losses, self.trainer.mesh, self.plan) if losses else None


def check(described: dict[str, Any]) -> dict[str, Any]:
    """Errors of loss, gradients and norm in the second of two equal steps."""
    case = Case(described)
    if described.get("ask"):
        return QUESTIONS[described["ask"]](case)
    plan, trainer = case.plan, case.trainer
    case.step()
    found_loss = case.step()
    gathered = gather_gradients(trainer.replicas, trainer.mesh, plan)
    norm = gradient_norm(trainer.replicas)
    expected_loss, expected = whole_step(case)
    result: dict[str, Any] = {"kind": trainer.replicas[0].kind}
    if dist.get_rank() == 0:
        worst = max_relative_error(gathered, expected)
        result |= {"gradient": worst.error, "parameter": worst.parameter}
    if case.spec.tied_embeddings and plan.pp > 1:
        expected.pop(OUTPUT_TABLE, None)  # a frozen one has none
    exact = torch.stack([g.norm() for g in expected.values()]).norm().item()
    result["norm"] = abs(norm - exact) / exact
    if found_loss is not None:
        result["loss"] = abs(found_loss - expected_loss) / expected_loss
        result["value"] = found_loss
    clip_gradients(trainer.replicas, norm / 2.0)
    clipped = float(clip_factor(torch.tensor(norm, dtype=torch.float64), norm / 2.0))
    result["update"] = update_error(case, expected, clipped)
    return result


class Counted(TorchDispatchMode):  # type: ignore[misc]  # torch has no types here
    """Counts collectives by name; DTensors are first taken apart."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[str, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if DTensor in types:
            return NotImplemented
        name = func._schema.name
        if "c10d" in name and "alltoall" in name:
            kind = f"all_to_all of {_moved(args[0])}"
            self.counts[kind] = self.counts.get(kind, 0) + 1
        for kind in ("all_reduce", "all_gather", "reduce_scatter"):
            # allreduce_, _allgather_base_ in place, all_gather_into_tensor for a new tensor
            if "c10d" in name and kind.replace("_", "") in name.replace("_", ""):
                self.counts[kind] = self.counts.get(kind, 0) + 1
        return func(*args, **(kwargs or {}))


def _moved(value: torch.Tensor) -> str:
    if not value.is_floating_point():
        return "counts"
    return {1: "weights", 2: "rows"}.get(value.dim(), "heads")


def count_collectives(case: Case) -> dict[str, Any]:
    with Counted() as counted:
        case.step()
    return dict(counted.counts)


def count_messages(case: Case) -> dict[str, Any]:
    """How many messages of each size, in values, a rank sends round its ring in a step."""
    sent: dict[str, int] = {}
    post = dist.batch_isend_irecv

    def counted(ways: list[dist.P2POp]) -> list[dist.Work]:
        for way in ways:
            if way.op is dist.isend:
                size = str(way.tensor.numel())
                sent[size] = sent.get(size, 0) + 1
        works: list[dist.Work] = post(ways)
        return works

    dist.batch_isend_irecv = counted
    case.step()
    dist.batch_isend_irecv = post
    return dict(sent)


def whole_states_saved(case: Case) -> dict[str, Any]:
    """How many different hidden states of all tokens forward keeps for backward."""
    plan, spec = case.plan, case.spec
    shape = (plan.microbatch_size, spec.seq_len, spec.hidden_size)
    kept: set[int] = set()

    def keep(value: torch.Tensor) -> torch.Tensor:
        local = value.to_local() if isinstance(value, DTensor) else value
        if tuple(local.shape) == shape:
            kept.add(local.data_ptr())
        return value

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda value: value):
        case.trainer.replicas[0].module(case.batch(plan, spec)[0])
    return {"kept": len(kept)}


def bytes_of_logits(case: Case) -> dict[str, Any]:
    """Peak of a step above what stands, for each of the logits of one micro-batch."""
    case.step()
    logits = case.plan.microbatch_size * case.spec.seq_len * case.spec.vocab_rows
    case.trainer.optimizer.zero_grad()
    return {"bytes": step_bytes(torch.device("cpu"), case.step) / logits}


def bytes_of_a_step(case: Case) -> dict[str, Any]:
    """Peak of a step above what stands."""
    case.step()
    case.trainer.optimizer.zero_grad()
    return {"bytes": step_bytes(torch.device("cpu"), case.step)}


def standing(case: Case) -> dict[str, Any]:
    """Bytes that stay after a step with AdamW, for each parameter of this rank's stages."""
    optimizer = StageOptimizer(case.trainer.replicas, OptimizerConfig())
    case.trainer.optimizer = optimizer
    case.step()
    optimizer.step()
    parameters = [p for replica in case.trainer.replicas for p in replica.stage.parameters()]
    storages = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for tensor in _standing(case.trainer)
    }
    return {"bytes": sum(storages.values()) / sum(p.numel() for p in parameters)}


def _standing(trainer: Trainer) -> Iterator[torch.Tensor]:
    """Parameters, gradients, buckets, optimizer states and masters, this rank's part of each."""
    for replica in trainer.replicas:
        for parameter in replica.stage.parameters():
            yield local_tensor(parameter)
            if parameter.grad is not None:
                yield local_tensor(parameter.grad)
        if replica.buckets is not None:
            yield from (bucket.flat for bucket in replica.buckets.buckets)
    for state in trainer.optimizer.inner.state.values():
        yield from (local_tensor(value) for value in state.values() if torch.is_tensor(value))
    yield from (master.values.detach() for master in trainer.optimizer.masters.values())


def against_same_precision(case: Case) -> dict[str, Any]:
    """Gradients beside those of one process that rounds and adds up as the plan says."""
    plan, trainer = case.plan, case.trainer
    case.step()
    case.step()
    gathered = gather_gradients(trainer.replicas, trainer.mesh, plan)
    if dist.get_rank() != 0:
        return {}
    batch_of = case.batch(plan, case.spec)
    expected = reference(case.spec, plan, batch_of, SEED, precision=plan.precision)[1]
    exact = reference(case.spec, plan, batch_of, SEED)[1]
    return {
        "gradient": max_relative_error(gathered, expected).error,
        "rounding": max_relative_error(gathered, exact).error,
    }


def update_error(case: Case, expected: dict[str, torch.Tensor], clipped: float) -> float:
    """Largest error of the parameters after one SGD update, relative to the largest update.

    With gradients that were clipped to a part of their norm.
    """
    rate = clipped * SGD.rate.peak
    stages = [replica.stage for replica in case.trainer.replicas]
    every = [item for stage in stages for item in stage.named_parameters()]
    named = [(name, parameter) for name, parameter in every if parameter.requires_grad]
    before = {name: whole_tensor(p.detach()).clone() for name, p in named}
    case.trainer.optimizer.step()
    gaps = []
    for name, parameter in named:
        gradient = expected[TOKEN_TABLE if name not in expected else name]
        wanted = before[name] - rate * gradient
        gaps.append((whole_tensor(parameter.detach()) - wanted).abs().max())
    largest = max(float(gradient.abs().max()) for gradient in expected.values())
    if not gaps:  # an empty stage alone
        return 0.0
    return float(torch.stack(gaps).max()) / (rate * largest)


QUESTIONS: dict[str, Callable[[Case], dict[str, Any]]] = {
    "collectives": count_collectives,
    "messages": count_messages,
    "whole states saved": whole_states_saved,
    "bytes of logits": bytes_of_logits,
    "bytes of a step": bytes_of_a_step,
    "standing": standing,
    "same precision": against_same_precision,
}


def main() -> None:
    from tests.executor.launch import die_with_parent, results

    die_with_parent()
    torch.set_num_threads(1)
    folder, cases = sys.argv[1], json.loads(Path(sys.argv[2]).read_text())
    # below the launch's own limit, above what a stalled machine has been seen to take
    dist.init_process_group("gloo", timeout=timedelta(seconds=180))
    result: dict[str, Any] = {}
    for name, case in cases.items():
        try:
            result[name] = check(case)
        except Exception as error:
            raise RuntimeError(f"case {name}") from error
    results(folder, dist.get_rank(), result)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
