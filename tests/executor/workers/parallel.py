"""Runs many plans on one set of ranks; leaves loss and gradient errors of each by its name.

Arguments: folder for the results, file of the cases by name (see `test_parallel.py`).
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from executor.mesh import build_mesh, data_group, replica_index
from executor.module import OUTPUT_TABLE, TOKEN_TABLE, build_stage
from executor.optimizer import OptimizerConfig, StageOptimizer, gradient_norm
from executor.parallel.data import Replica, apply_data_parallel, whole_tensor
from executor.parallel.precision import edge_dtype, storage_dtype
from executor.parallel.tensor import apply_tensor_parallel, loss_context, parallel_loss
from executor.parallel.tied import sum_tied_gradients
from executor.pipeline import PipelineRunner
from executor.runtime import TensorSpec
from executor.verify import gather_gradients, max_relative_error, mean_loss, reference
from parsim.model.transformer import TransformerSpec
from parsim.plan import Plan, Recompute
from parsim.schedule import build_schedule

GPT = TransformerSpec(
    name="tiny-gpt",
    num_layers=2,
    hidden_size=32,
    num_attention_heads=4,
    num_key_value_heads=4,
    head_dim=8,
    ffn_hidden_size=64,
    vocab_size=60,
    padded_vocab_size=64,
    seq_len=16,
    positions=24,
)
BERT = replace(
    GPT, name="tiny-bert", post_norm=True, token_types=2, causal=False, pooler=True, head="mlm"
)
LLAMA = replace(
    GPT,
    name="tiny-llama",
    positions=0,
    num_key_value_heads=2,
    rope=True,
    rms_norm=True,
    gated_mlp=True,
    qkv_bias=False,
    projection_bias=False,
    mlp_bias=False,
    tied_embeddings=False,
)
SPECS = {
    "gpt": GPT,
    "llama": LLAMA,
    "llama-mha": replace(LLAMA, name="tiny-llama-mha", num_key_value_heads=4),
    "bert": BERT,
}
SEED = 3


def batch(plan: Plan, spec: TransformerSpec) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(11)
    shape = (plan.global_batch_size, spec.seq_len + 1)
    ids = torch.randint(0, spec.vocab_size, shape, generator=generator)
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


def prepare(spec: TransformerSpec, plan: Plan, loss_parallel: bool) -> dict[int, Replica]:
    """This rank's stages by number; one layer a stage under a pipeline."""
    mesh = build_mesh(plan, "cpu")
    here = mesh["pp"].get_local_rank()
    mine = range(here, plan.num_stages, plan.pp)
    return {index: build_replica(spec, plan, mesh, index, loss_parallel) for index in mine}


def build_replica(
    spec: TransformerSpec, plan: Plan, mesh: DeviceMesh, index: int, loss_parallel: bool
) -> Replica:
    each = spec.num_layers // plan.num_stages
    stage = build_stage(
        spec,
        first_layer=index * each,
        num_layers=each,
        embedding=index == 0,
        head=index == plan.num_stages - 1,
        dtype=storage_dtype(plan),
        recompute=plan.recompute,
        seed=SEED,
    )
    apply_tensor_parallel(
        stage,
        mesh["tp"],
        sequence_parallel=plan.sequence_parallel,
        loss_parallel=loss_parallel,
    )
    return apply_data_parallel(stage, plan, mesh)


class Case:
    """One plan, ready to run steps."""

    def __init__(self, case: dict[str, Any]) -> None:
        fields = dict(case["plan"])
        fields["recompute"] = Recompute[fields.get("recompute", "none").upper()]
        fields["rank_order"] = tuple(fields.get("rank_order", Plan().rank_order))
        self.plan = plan = Plan(**fields)
        self.spec = SPECS[case["model"]]
        self.loss_parallel = case["loss_parallel"]
        self.replicas = prepare(self.spec, plan, self.loss_parallel)
        self.all = list(self.replicas.values())
        self.mesh = self.all[0].mesh
        self.runner = self._runner() if plan.pp > 1 else None

    def step(self) -> float | None:
        """Forward and backward; the mean loss of the global batch where it is known."""
        for replica in self.all:
            replica.zero_grad()
        index = replica_index(self.plan, dist.get_rank())
        tokens, targets = (x.chunk(self.plan.dp)[index] for x in batch(self.plan, self.spec))
        losses: list[Any]
        with loss_context(loss_parallel=self.loss_parallel):
            if self.runner is None:
                losses = self.all[0].accumulate(tokens, targets, parallel_loss)
            else:
                losses = self.runner.step(tokens, targets)
        if self.runner is not None:
            last = self.plan.pp - 1
            sum_tied_gradients([r.stage for r in self.all], self.mesh, (0, last))
            for replica in self.all:
                replica.finish()
        return mean_loss(losses, self.mesh, self.plan) if losses else None

    def _runner(self) -> PipelineRunner:
        plan, spec = self.plan, self.spec
        rows, seq = plan.microbatch_size, spec.seq_len
        hidden = (rows, seq // (plan.tp if plan.sequence_parallel else 1), spec.hidden_size)
        edges = [TensorSpec(hidden, edge_dtype(plan))] * (plan.num_stages + 1)
        edges[0] = TensorSpec((rows, seq), torch.int64)
        edges[-1] = TensorSpec((rows, seq, spec.vocab_rows), edge_dtype(plan))
        averaging = plan.zero_stage < 2 and plan.dp > 1
        return PipelineRunner(
            build_schedule(
                plan.schedule, pp=plan.pp, num_microbatches=plan.num_microbatches, v=plan.v
            ),
            {index: replica.module for index, replica in self.replicas.items()},
            edges=edges,
            loss_fn=parallel_loss,
            group=self.mesh["pp"].get_group(),
            device=torch.device("cpu"),
            dp_group=data_group(plan, self.mesh) if averaging else None,
            zero_stage=plan.zero_stage,
        )


def check(described: dict[str, Any]) -> dict[str, Any]:
    """Errors of loss, gradients and norm in the second of two equal steps."""
    case = Case(described)
    if described.get("count"):
        return count_collectives(case)
    plan = case.plan
    case.step()
    found_loss = case.step()
    found = gather_gradients(case.all, case.mesh, plan)
    norm = gradient_norm(case.all, plan)
    expected_loss, expected = reference(case.spec, plan, batch(plan, case.spec), SEED)
    result: dict[str, Any] = {"kind": case.all[0].kind}
    if dist.get_rank() == 0:
        worst = max_relative_error(found, expected)
        result |= {"gradient": worst.error, "parameter": worst.parameter}
    if case.spec.tied_embeddings and plan.pp > 1:
        del expected[OUTPUT_TABLE]
    exact = torch.stack([g.norm() for g in expected.values()]).norm().item()
    result["norm"] = abs(norm - exact) / exact
    if found_loss is not None:
        result["loss"] = abs(found_loss - expected_loss) / expected_loss
    result["update"] = update_error(case, expected)
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
        if "c10d" in name and "wait" not in name:
            kind = name.split("::")[1].strip("_")
            self.counts[kind] = self.counts.get(kind, 0) + 1
        return func(*args, **(kwargs or {}))


def count_collectives(case: Case) -> dict[str, Any]:
    with Counted() as counted:
        case.step()
    return dict(counted.counts)


def update_error(case: Case, expected: dict[str, torch.Tensor]) -> float:
    """Largest error of the parameters after one SGD update, relative to the largest update."""
    rate = 0.5
    named = [item for replica in case.all for item in replica.stage.named_parameters()]
    before = {name: whole_tensor(p.detach()).clone() for name, p in named}
    config = OptimizerConfig(name="sgd", learning_rate=rate, weight_decay=0.0)
    StageOptimizer(case.all, config).step()
    gaps = []
    for name, parameter in named:
        gradient = expected[TOKEN_TABLE if name not in expected else name]
        wanted = before[name] - rate * gradient
        gaps.append((whole_tensor(parameter.detach()) - wanted).abs().max())
    largest = max(float(gradient.abs().max()) for gradient in expected.values())
    return float(torch.stack(gaps).max()) / (rate * largest)


def main() -> None:
    from tests.executor.launch import die_with_parent, results

    die_with_parent()
    torch.set_num_threads(1)
    folder, cases = sys.argv[1], json.loads(Path(sys.argv[2]).read_text())
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    found: dict[str, Any] = {}
    for name, case in cases.items():
        try:
            found[name] = check(case)
        except Exception as error:
            raise RuntimeError(f"case {name}") from error
    results(folder, dist.get_rank(), found)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
