"""Bytes and launches of what is bound by memory, by hand: lookups, elementwise passes, the loss."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.layer.operator_kernels import OperatorKernels
from parsim.cost.layer.operator_parts import Exchange, Kernel, PassPart
from parsim.cost.software import software
from parsim.model.operators import Elementwise, Lookup, Loss, Operator
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import Plan, PlanTable

TOKENS, WIDTH, VOCAB = 1024, 768, 50304
HABITS = {"traffic": 1.25, "loss_bytes": 20.0, "lookup_gradient": 4.0}
SPLIT = Plan(tp=4, dp_replicate=2, microbatch_size=2)


def kernels_of(
    op: Operator, plan: Plan = SPLIT
) -> tuple[dict[str, tuple[PassPart, Kernel]], list[Exchange]]:
    """By kind, and the collectives behind them."""
    job = Job(
        model=build_transformer(model_spec("gpt2")),
        cluster=Cluster(system=load_catalog().system("dgx-a100"), num_nodes=1),
        software=replace(software("generic"), **HABITS),  # type: ignore[arg-type]
    )
    parts = list(OperatorKernels(job, PlanTable.of([plan])).of(op, None))
    kernels = [kernel for part in parts if not isinstance(part, Exchange) for kernel in part]
    exchanges = [part for part in parts if isinstance(part, Exchange)]
    return {kernel.kind: (kernel.part, kernel) for kernel in kernels}, exchanges


def moved(kernel: Kernel) -> float:
    (count,) = kernel.shape
    return float(np.ravel(count)[0])


def test_a_loss_moves_two_fifths_forward() -> None:
    """20 bytes for each of 2 x 1024 tokens' logits of a rank; three sums of fp32 values."""
    kernels, exchanges = kernels_of(Loss(tokens=TOKENS, vocab_size=VOCAB))
    whole = 2 * TOKENS * VOCAB / 4 * 20.0
    assert moved(kernels["loss_forward"][1]) == pytest.approx(0.4 * whole, rel=1e-12)
    assert moved(kernels["loss_backward"][1]) == pytest.approx(0.6 * whole, rel=1e-12)
    assert [float(x.launches) for _, x in kernels.values()] == [8, 4]
    assert [part for part, _ in kernels.values()] == [PassPart.FORWARD, PassPart.BACKWARD]
    (summed,) = exchanges
    assert (summed.part, float(summed.exposed[0]) > 0.0) == (PassPart.FORWARD, True)


@pytest.mark.parametrize(("positions", "tables"), [(0, 1), (1024, 2)])
def test_a_lookup_reads_and_writes_each_row(positions: int, tables: int) -> None:
    """2 bytes a value, read and written, 1.25 times; backward half as much again, and the table."""
    op = Lookup(tokens=TOKENS, vocab_size=VOCAB, width=WIDTH, positions=positions, token_types=0)
    kernels, _ = kernels_of(op)
    rows = 2 * TOKENS * WIDTH * 2 * 2.0 * tables * 1.25
    assert moved(kernels["lookup_forward"][1]) == pytest.approx(rows, rel=1e-12)
    assert moved(kernels["lookup_backward"][1]) == pytest.approx(1.5 * rows, rel=1e-12)
    assert moved(kernels["accumulate"][1]) == pytest.approx(VOCAB * WIDTH / 4 * 4.0, rel=1e-12)


def test_an_elementwise_pass_moves_what_it_reads_and_writes() -> None:
    """Reads and writes of 2 bytes a value, a mask of 1; on a part of the sequence."""
    op = next(
        op
        for layer in build_transformer(model_spec("gpt2")).layers
        for op in layer.operators
        if isinstance(op, Elementwise)
    )
    values = 2 * op.tokens * op.width * 1.25
    for sequence, split in ((False, 1), (True, 4)):
        kernels, _ = kernels_of(op, replace(SPLIT, sequence_parallel=sequence))
        forward, backward = (
            moved(kernels[f"{op.kind}_{way}"][1]) for way in ("forward", "backward")
        )
        assert forward == pytest.approx(values * (op.forward * 2 + op.mask) / split, rel=1e-12)
        assert backward == pytest.approx(values * (op.backward * 2 + op.mask) / split, rel=1e-12)
