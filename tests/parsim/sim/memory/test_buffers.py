"""Buffers of a backward's highest moment, by hand for stages that were measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.data.static_bytes import static_bytes
from parsim.cost.job import Job
from parsim.cost.layer.kept.activations import kept_parts
from parsim.cost.layer.kept.policy import KeptPolicy
from parsim.cost.software import software
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.stages import layer_counts, stage_weights
from parsim.cost.step.step import stage_cut
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer, with_options
from parsim.plan import Plan, PlanTable, Recompute
from parsim.schedule import build_schedule
from parsim.sim import simulate
from parsim.sim.memory.buffers import (
    LIVE,
    embedding_moment,
    gathered_at_once,
    gathered_bytes,
    head_moment,
    placeholder_bytes,
)
from parsim.sim.step.kept_bytes import stage_kept
from parsim.units import GIB


def trimmed(
    layers: int,
    *,
    width: int = 8192,
    inner: int = 28672,
    seq_len: int = 4096,
    heads: int = 64,
    kv_heads: int = 8,
) -> Job:
    """Llama 3 with fewer layers on one node, as SimuMax measured it."""
    spec = with_options(
        model_spec("llama3-70b"),
        num_layers=layers,
        hidden_size=width,
        ffn_hidden_size=inner,
        seq_len=seq_len,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
    )
    return Job(
        model=build_transformer(spec),
        cluster=Cluster(system=load_catalog().system("dgx-b200"), num_nodes=1),
        software=software("megatron-te-2025"),
    )


def test_stages_of_a_pipeline_by_hand() -> None:
    """12 layers of 70B over two stages: both within 0.1 % of 66.55 and 62.97 GiB."""
    h, f, tokens, vocab = 8192, 28672, 4096, 128_256
    weights = {"qkv": h * 10240, "projection": h * h, "fc1": 2 * h * f, "fc2": h * f}
    placeholders = 2 * sum(weights.values())
    layer = sum(weights.values()) + 2 * h
    kept = tokens * (8 * h + 2 * (64 + 16) * 128 + 2 * h + 6 * f + 4 * 64)
    static = (6 * layer + vocab * h) * (2 + 4 + 12 / 4)
    first = static + 12 * kept + tokens * (4 * f + 4 * h) + placeholders
    last = static + h * 9 + 6 * kept + tokens * 4 * h  # the final norm; its and the head's input
    last += 2 * tokens * vocab + 2 * vocab * h + 6 * tokens * h + placeholders
    plan = Plan(pp=2, dp_shard=4, zero_stage=1, num_microbatches=4, overlap_p2p=False)
    actual = simulate(trimmed(12), plan)
    workspace = software("megatron-te-2025").workspace
    assert actual.peak_allocated == pytest.approx((first + workspace, last + workspace), rel=1e-12)
    assert [x / GIB for x in actual.peak_allocated] == pytest.approx([66.55, 62.97], rel=0.001)


@pytest.mark.parametrize(
    ("tp", "cp", "seq_len", "layers", "inner", "width", "gib"),
    [
        (2, 4, 32768, 12, 28672, 8192, 68.43),
        (1, 8, 32768, 12, 28672, 8192, 104.51),
        (2, 4, 32768, 4, 53248, 16384, 87.03),
        (1, 8, 32768, 4, 53248, 16384, 139.22),
        (2, 4, 131072, 12, 28672, 8192, 112.67),
        (1, 8, 131072, 12, 28672, 8192, 147.99),
        (2, 4, 131072, 4, 53248, 16384, 118.13),
    ],
)
def test_context_parallel_runs(
    tp: int, cp: int, seq_len: int, layers: int, inner: int, width: int, gib: float
) -> None:
    """Seven B200 runs (SimuMax): states shared out over cp, one more attention output kept."""
    job = trimmed(
        layers,
        width=width,
        inner=inner,
        seq_len=seq_len,
        heads=width // 128,
        kv_heads=width // 1024,
    )
    plan = Plan(tp=tp, cp=cp, zero_stage=1, num_microbatches=4, sequence_parallel=tp > 1)
    table = PlanTable.of([plan])
    counts = layer_counts(job.model, stage_cut(job, table))
    kept = stage_kept(job, table, LayerTable.of(job, table), counts)
    static = sum(static_bytes(job, table, stage_weights(job.model, table, counts)))
    assert job.model.loss is not None
    logits = seq_len / cp * job.model.loss.vocab_size / tp * job.software.loss_kept
    above = logits + head_moment(job, table) + placeholder_bytes(job, table)
    actual = float((static + kept + above + job.software.workspace)[0, 0])
    assert actual / GIB == pytest.approx(gib, rel=0.005)


def test_zero_3_gathers_ends_where_they_are() -> None:
    job = replace(trimmed(4), software=software("torchtitan"))
    table = PlanTable.of([Plan(pp=2, dp_shard=4, zero_stage=3)])
    two = build_schedule("1f1b", pp=2, num_microbatches=1)
    actual = gathered_bytes(job, table, two, np.array([True, True]))[:, 0]
    layer = job.model.blocks[0].parameters
    assert actual[0] == 2 * (layer + job.model.layers[0].parameters)
    assert actual[1] == 2 * (layer + job.model.layers[-1].parameters)
    alone = gathered_bytes(job, PlanTable.of([Plan(pp=2)]), two, np.array([True, True]))
    assert (alone == 0).all()


@pytest.mark.parametrize(
    ("width", "parameters"),
    [(12288, LIVE), (20480, 20480 * 4 * 20480), (2048, 2048 * (12 * 2048 + 13))],
)
def test_deepspeed_gathers_weights_and_not_layers(width: int, parameters: float) -> None:
    """Gradients that may live; one weight that is larger; all of a small layer with its biases."""
    spec = with_options(
        model_spec("gpt3-175b"), hidden_size=width, ffn_hidden_size=4 * width,
        num_attention_heads=width // 128, num_key_value_heads=width // 128,
    )  # fmt: skip
    job = replace(trimmed(4), model=build_transformer(spec))
    table = PlanTable.of([Plan(dp_shard=8, zero_stage=3)])
    deepspeed = replace(job, software=software("deepspeed-zero3"))
    assert gathered_at_once(deepspeed, table)[0] == pytest.approx(parameters)
    whole = gathered_at_once(replace(job, software=software("torchtitan")), table)[0]
    assert whole == job.model.blocks[0].parameters >= parameters


def test_only_fused_accumulation_needs_placeholders() -> None:
    table = PlanTable.of([Plan(tp=2)])
    assert placeholder_bytes(replace(trimmed(4), software=software("generic")), table)[0] == 0.0
    weights = 8192 * (10240 + 8192 + 3 * 28672)
    assert placeholder_bytes(trimmed(4), table)[0] == weights  # 2 bytes over two ranks


def test_the_token_table_s_gradient_is_highest_on_a_thin_stage() -> None:
    """One recomputed layer keeps less than the dense gradient of a large vocabulary."""
    job = trimmed(2)
    plan = Plan(pp=2, dp_replicate=4, num_microbatches=4, recompute=Recompute.FULL)
    table = PlanTable.of([plan])
    layers = LayerTable.of(job, table)
    counts = layer_counts(job.model, stage_cut(job, table))
    kept = stage_kept(job, table, layers, counts)[0]
    actual = simulate(job, plan).memory_by_rank[0]["temporary"]
    lasting = placeholder_bytes(job, table) + job.software.workspace
    assert actual == pytest.approx(float((embedding_moment(job, table) - kept + lasting)[0]))


def test_operator_level_checkpointing_keeps_every_second_product() -> None:
    """Kept are q, v, gate (of q k v o gate up down), and down where nobody drops the output."""
    layer = build_transformer(model_spec("llama3-8b")).blocks[0]
    table = PlanTable.of([Plan(recompute=Recompute.SELECTIVE)])
    h, kv, f, tokens = 4096, 1024, 14336, 8192
    for keeps_output in (False, True):
        actual = kept_parts(layer, table, KeptPolicy(half_products=True, keeps_output=keeps_output))
        sizes = {name: float(size[0]) for name, size in actual.items() if size[0]}
        assert sizes == {
            "layer_inputs": 2 * tokens * h,
            "attention": 2 * tokens * (h + kv + h),
            "mlp": 2 * tokens * (f + h * keeps_output),
        }


def test_unfused_attention_that_is_recomputed_alone_is_no_more_than_its_scores() -> None:
    """The MLP's gradients are gone by then: never dearer than keeping the scores of one layer."""
    spec = with_options(model_spec("gpt-1.7b"), num_layers=1, fused_attention=False, dropout=True)
    job = replace(trimmed(1), model=build_transformer(spec), software=software("megatron-2022"))
    peaks = [
        max(simulate(job, Plan(dp_replicate=8, recompute=mode)).peak_allocated)
        for mode in (Recompute.NONE, Recompute.SELECTIVE)
    ]
    assert peaks[1] <= peaks[0]
    assert np.isfinite(peaks).all()
