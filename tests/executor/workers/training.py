"""Worker: gradients of whole plans through the trainer, against one process."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist

from executor.devices.mesh import process_group, replica_index
from executor.measure.gradients import gather_gradients, max_relative_error, reference
from executor.parallel.context import replica_rows
from executor.training.build import build_trainer
from executor.training.samples import Corpus, batches
from parsim.model.reader import model_spec
from parsim.model.transformer import TransformerSpec
from parsim.plan import Plan, Recompute
from tests.executor.launch import die_with_parent, results

SMALL: dict[str, Any] = {
    "num_layers": 4,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "head_dim": 16,
    "vocab_size": 256,
    "seq_len": 32,
}
SPECS = (
    replace(
        model_spec("gpt2"),
        **SMALL,
        num_key_value_heads=4,
        ffn_hidden_size=128,
        positions=32,
        dropout=False,
    ),
    replace(
        model_spec("llama3-8b"),
        **SMALL,
        num_key_value_heads=2,
        ffn_hidden_size=96,
        window=8,
        full_every=2,
        norms_after=True,
    ),
)


def plan(**fields: object) -> Plan:
    return Plan(precision="fp32", **fields)  # type: ignore[arg-type]


PLANS = {
    2: [
        plan(dp_replicate=2, num_microbatches=2),
        plan(dp_shard=2, zero_stage=3, num_microbatches=2),
        plan(tp=2, sequence_parallel=True),
        plan(pp=2, num_microbatches=4, schedule="gpipe"),
        plan(pp=2, num_microbatches=4),
        plan(pp=2, num_microbatches=4, schedule="interleaved_1f1b", v=2),
        plan(pp=2, num_microbatches=4, schedule="zb_v", v=2),
        plan(pp=2, num_microbatches=2, schedule="naive", recompute=Recompute.FULL),
        plan(pp=2, num_microbatches=2, stage_layers=(1, 3)),
        plan(pp=2, num_microbatches=4, schedule="chimera"),
        plan(pp=2, num_microbatches=4, schedule="dualpipe", stage_layers=(1, 3)),
    ],
    4: [
        plan(pp=2, dp_replicate=2, num_microbatches=4),
        plan(pp=2, dp_shard=2, zero_stage=1, num_microbatches=4),
        plan(pp=2, dp_shard=2, zero_stage=2, num_microbatches=4),
        plan(pp=2, dp_shard=2, zero_stage=3, num_microbatches=4),
        plan(
            pp=2, tp=2, sequence_parallel=True, num_microbatches=4, schedule="interleaved_1f1b", v=2
        ),
        plan(pp=4, num_microbatches=8, schedule="chimera"),
        plan(pp=4, num_microbatches=8, schedule="dualpipe"),
        plan(pp=2, dp_shard=2, zero_stage=1, num_microbatches=4, schedule="dualpipe"),
        plan(pp=2, dp_shard=2, zero_stage=3, num_microbatches=4, schedule="chimera"),
    ],
    8: [
        plan(pp=2, dp_shard=2, zero_stage=2, tp=2, num_microbatches=4),
        plan(pp=2, dp_replicate=2, tp=2, sequence_parallel=True, num_microbatches=4),
    ],
}


def error_of(spec: TransformerSpec, which: Plan) -> float:
    trainer = build_trainer(spec, which, device=torch.device("cpu"), seed=0)
    tokens, targets = next(
        batches(
            Corpus.load(), seed=0, global_batch_size=which.global_batch_size, seq_len=spec.seq_len
        )
    )
    rows = replica_rows(
        which.global_batch_size, replica_index(which, dist.get_rank()), which.microbatches
    )
    mine = (tokens[rows], targets[rows])
    # an evaluation finds a step's losses, whether before or behind it, and changes no gradient
    evaluated = trainer.evaluate([mine, mine])
    losses = trainer.gradients(*mine)
    gathered = gather_gradients(trainer.replicas, trainer.mesh, which)
    evaluated += trainer.evaluate([mine])
    for again in evaluated:
        torch.testing.assert_close(again, losses, rtol=1e-6, atol=0.0)
    if dist.get_rank() != 0:
        return 0.0
    return max_relative_error(gathered, reference(spec, which, (tokens, targets), 0)[1]).error


def main(folder: str) -> None:
    die_with_parent()
    torch.set_num_threads(1)
    with process_group("gloo", 60.0):
        world = dist.get_world_size()
        errors = {
            f"{spec.name} {which.label()}": error_of(spec, which)
            for spec in SPECS
            for which in PLANS[world]
        }
        results(folder, dist.get_rank(), errors)


if __name__ == "__main__":
    main(sys.argv[1])
