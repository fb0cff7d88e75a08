"""Worker: records a step of whole plans, and counts the collectives that another step posts."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from executor.devices.mesh import process_group
from executor.measure.record import record_steps
from executor.model.loss import Batch
from executor.parallel.context import rank_part
from executor.training.build import build_trainer
from executor.training.samples import Corpus, batches
from executor.training.trainer import Trainer
from parsim.model.reader import model_spec
from parsim.plan import Plan
from tests.executor.launch import die_with_parent, results

CPU = torch.device("cpu")
SPEC = replace(
    model_spec("gpt2"),
    num_layers=4,
    hidden_size=64,
    num_attention_heads=4,
    head_dim=16,
    num_key_value_heads=4,
    ffn_hidden_size=128,
    vocab_size=256,
    seq_len=32,
    positions=32,
    dropout=False,
)

MIXTURE = replace(SPEC, num_experts=4, experts_per_token=2, expert_ffn_hidden_size=64)


def plan(**fields: Any) -> Plan:
    return Plan(precision="fp32", bucket_bytes=1e5, **fields)


PLANS = {
    2: {
        "ddp": plan(dp_replicate=2, num_microbatches=2),
        "zero 1": plan(dp_shard=2, zero_stage=1, num_microbatches=2),
        "zero 3": plan(dp_shard=2, zero_stage=3, num_microbatches=2),
        "tp": plan(tp=2, num_microbatches=2),
        "tp + sp": plan(tp=2, sequence_parallel=True),
        "pp": plan(pp=2, num_microbatches=4),
        "ep": plan(dp_replicate=2, ep=2, num_microbatches=2),
        "pp, v": plan(pp=2, num_microbatches=4, schedule="interleaved_1f1b", v=2),
        "cp": plan(cp=2, num_microbatches=2),
    },
    4: {
        "pp x ddp": plan(pp=2, dp_replicate=2, num_microbatches=4),
        "pp x zero 1": plan(pp=2, dp_shard=2, zero_stage=1, num_microbatches=2),
        "pp x zero 2": plan(pp=2, dp_shard=2, zero_stage=2, num_microbatches=2),
        "pp x tp": plan(pp=2, tp=2, num_microbatches=2, schedule="interleaved_1f1b", v=2),
        "ep x tp": plan(
            dp_shard=2, zero_stage=1, tp=2, ep=2, sequence_parallel=True, num_microbatches=2
        ),
        "pp x ep": plan(pp=2, dp_replicate=2, ep=2, num_microbatches=2),
        "dp x tp": plan(dp_replicate=2, tp=2, sequence_parallel=True, num_microbatches=2),
        "pp x cp": plan(pp=2, cp=2, num_microbatches=2),
        "cp x tp": plan(cp=2, tp=2, num_microbatches=2),
        "bpipe": plan(pp=4, num_microbatches=6, schedule="bpipe"),
    },
}


class Collectives(TorchDispatchMode):  # type: ignore[misc]  # torch has no types here
    """Counts the operators that communicate, posted by Python or by C++."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func)
        if name.startswith(("c10d.", "_c10d_functional.")):
            others = ("wait_tensor", "_wrap_tensor", "send", "recv", "barrier")
            self.count += not any(word in name for word in others)
        return func(*args, **(kwargs or {}))


def shares(which: Plan) -> Iterator[Batch]:
    for batch in batches(
        Corpus.load(), seed=0, global_batch_size=which.global_batch_size, seq_len=SPEC.seq_len
    ):
        tokens, targets = rank_part(SPEC, which, dist.get_rank(), batch)
        yield tokens, targets


def ring_messages(trainer: Trainer) -> int:
    """Each layer's ring has cp - 1 messages in a forward and cp in a backward."""
    plan = trainer.plan
    if plan.cp == 1:
        return 0
    layers = sum(len(replica.stage.layers) for replica in trainer.replicas)
    return layers * plan.num_microbatches * (2 * plan.cp - 1)


def recorded_run(which: Plan) -> dict[str, Any]:
    spec = MIXTURE if which.ep > 1 else SPEC
    trainer = build_trainer(spec, which, device=CPU, seed=0)
    mine = shares(which)
    for _ in range(2):  # the buckets of DistributedDataParallel settle in the first
        trainer.step(*next(mine))
    with Collectives() as mode:
        trainer.step(*next(mine))
    timeline = record_steps(trainer, mine, CPU, typical=math.nan, pairs=1)
    after = len(trainer.step(*next(mine)))
    return {
        "collectives": mode.count + ring_messages(trainer),
        "losses": after,
        "timeline": None if timeline is None else timeline.to_json(),
    }


def main(folder: str) -> None:
    die_with_parent()
    torch.set_num_threads(1)
    with process_group("gloo", 120.0):
        rank, world = dist.get_rank(), dist.get_world_size()
        results(folder, rank, {name: recorded_run(which) for name, which in PLANS[world].items()})


if __name__ == "__main__":
    main(sys.argv[1])
