"""Bytes that softmax, dropout and eager kernels beside them move over the scores of attention."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.layer.operator_kernels import OperatorKernels
from parsim.cost.layer.operator_parts import Exchange
from parsim.cost.software import software
from parsim.model.operators import Attention
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import Plan, PlanTable

HEADS, TOKENS, BATCH = 16, 1024, 2
SCORES = BATCH * HEADS * TOKENS**2


def moved(stack: str, *, dropout: bool) -> list[float]:
    """Bytes forward and backward."""
    op = Attention(
        tokens=TOKENS, heads=HEADS, kv_heads=HEADS, head_dim=64,
        causal=True, fused=False, dropout=dropout,
    )  # fmt: skip
    job = Job(
        model=build_transformer(model_spec("gpt2")),
        cluster=Cluster(system=load_catalog().system("dgx-a100"), num_nodes=1),
        software=replace(software(stack), scores_traffic=1.0),
    )
    table = PlanTable.of([Plan(microbatch_size=BATCH, dp_replicate=8)])
    parts = list(OperatorKernels(job, table).of(op, None))
    kernels = [kernel for part in parts if not isinstance(part, Exchange) for kernel in part]
    return [float(np.ravel(kernel.shape[0])[0]) for kernel in kernels if kernel.kind == ""]


@pytest.mark.parametrize("dropout", [False, True])
def test_softmax_and_dropout(dropout: bool) -> None:
    """Read and write, 4 bytes, backward 6; dropout 5 more with its mask."""
    forward, backward = moved("megatron-2021", dropout=dropout)
    assert (forward, backward) == (SCORES * (4 + 5 * dropout), SCORES * (6 + 5 * dropout))


def test_eager_kernels_move_scores_for_scale_and_masks_too() -> None:
    """Hugging Face's GPT-2: three kernels forward, two backward, 4 bytes a score each."""
    plain, eager = (
        moved(stack, dropout=True) for stack in ("megatron-2021", "deepspeed-huggingface")
    )
    assert eager[0] - plain[0] == 12.0 * SCORES
    assert eager[1] - plain[1] == 8.0 * SCORES
