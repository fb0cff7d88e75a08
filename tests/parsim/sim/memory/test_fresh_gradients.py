"""Peaks of stacks whose optimizer lets gradients go between steps, and lists of its update."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.data.buckets import reduced_bytes
from parsim.cost.job import OPTIMIZERS, Job
from parsim.cost.software import software
from parsim.cost.step.layer_table import LayerTable
from parsim.model.adapters import with_adapters
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer, with_options
from parsim.plan import Plan, PlanTable, Recompute
from parsim.sim import Prediction, simulate
from parsim.sim.memory.buffers import layer_moment
from parsim.sim.memory.reserved import SEGMENT
from parsim.sim.memory.update_moment import moment_lists

STACK = "torchtune"


def job_of(tokens: int, devices: int = 1, **habits: object) -> Job:
    """Eight layers of Llama 3 8B on devices of one node; logits lead where tokens are many."""
    spec = with_options(model_spec("llama3-8b"), num_layers=8, seq_len=tokens)
    system = load_catalog().system("dgx-a100").of_devices(devices)
    return Job(
        model=build_transformer(spec),
        cluster=Cluster(system=system, num_nodes=1),
        software=replace(software(STACK), **habits),  # type: ignore[arg-type]
    )


def step_of(job: Job, **fields: object) -> Prediction:
    usual = {
        "precision": "bf16_pure",
        "gradient_precision": "same",
        "reduce_precision": "same",
        "recompute": Recompute.FULL,
    }
    return simulate(job, Plan(**{**usual, **fields}))  # type: ignore[arg-type]


@pytest.mark.parametrize(("devices", "fields"), [(1, {}), (4, {"dp_shard": 4, "zero_stage": 3})])
def test_nothing_of_gradients_stands_beside_the_logits(
    devices: int, fields: dict[str, object]
) -> None:
    fresh = step_of(job_of(16384, devices), **fields)
    kept = step_of(job_of(16384, devices, frees_gradients=False), **fields)
    assert kept.memory["logits"] > 0.0
    assert fresh.memory == pytest.approx({**kept.memory, "gradients": 0.0})


def test_gradients_of_a_second_micro_batch_find_those_of_the_first() -> None:
    fresh = step_of(job_of(16384), num_microbatches=2)
    kept = step_of(job_of(16384, frees_gradients=False), num_microbatches=2)
    assert fresh.memory == kept.memory


def test_all_gradients_stand_at_the_end_where_tokens_are_few() -> None:
    """One layer of eight is kept then, and no logits."""
    fresh = step_of(job_of(64)).memory
    kept = step_of(job_of(64, frees_gradients=False)).memory
    assert fresh["gradients"] == kept["gradients"] > 0.0
    assert fresh["logits"] == 0.0
    assert fresh["activations"] < kept["activations"]
    assert sum(fresh.values()) < sum(kept.values())


def test_segments_of_gradients_stay_reserved() -> None:
    fresh = step_of(job_of(16384))
    kept = step_of(job_of(16384, frees_gradients=False))
    gradients, share = kept.memory["gradients"], software(STACK).reserved_share
    expected = fresh.peak_allocated[0] * (1.0 + share) + gradients
    assert fresh.peak_reserved[0] == pytest.approx(expected, abs=SEGMENT)
    assert kept.peak_reserved[0] - fresh.peak_reserved[0] == pytest.approx(
        share * gradients, abs=2 * SEGMENT
    )


def test_frozen_layers_of_a_sharded_backward_are_held() -> None:
    """Each layer keeps its input, and as much again of gradients, until the backward ends."""
    sharded = {"dp_shard": 4, "zero_stage": 3}
    kept = step_of(lora_job(4, holds_frozen=True, loss_kept=0.0), **sharded).memory
    let_go = step_of(lora_job(4, loss_kept=0.0), **sharded).memory
    outputs = 8 * 16384 * 4096 * 2
    assert kept["activations"] == let_go["activations"] >= outputs
    assert kept["temporary"] - let_go["temporary"] == pytest.approx(outputs, rel=0.05)
    alone = step_of(lora_job(1, holds_frozen=True, loss_kept=0.0)).memory
    assert alone == step_of(lora_job(1, loss_kept=0.0)).memory


def test_frozen_weights_of_a_gathered_layer_have_no_gradients_on_their_way() -> None:
    """The gathered layer waits alone: 2 bytes a parameter instead of 6 with two of gradients."""
    table = PlanTable.of([Plan(dp_shard=4, zero_stage=3, recompute=Recompute.FULL)])
    whole = job_of(64, 4)
    frozen = replace(whole, model=with_adapters(whole.model, 16, ("linear_qkv",)))
    difference = layer_moment(whole, table, LayerTable.of(whole, table)) - layer_moment(
        frozen, table, LayerTable.of(frozen, table)
    )
    parameters = whole.model.kinds[0].parameters
    each = 2.0 + reduced_bytes(table)
    assert difference == pytest.approx(each * parameters, rel=0.02)


def lora_job(devices: int, **habits: object) -> Job:
    """Adapters beside the frozen weights of the same layers."""
    job = job_of(16384, devices, **habits)
    return replace(job, model=with_adapters(job.model, 16, ("linear_qkv", "linear_proj")))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"precision": "bf16_pure"}, 2.0),
        ({"precision": "bf16"}, 4.0),
        ({"precision": "bf16", "dp_replicate": 4}, 4.0),
        ({"precision": "bf16", "dp_shard": 4, "zero_stage": 3}, 1.0),
    ],
)
def test_roots_of_second_moments_are_a_list(fields: dict[str, object], expected: float) -> None:
    table, ones = PlanTable.of([Plan(**fields)]), np.array([[1.0]])  # type: ignore[arg-type]
    job = job_of(64, update_lists=1.0)
    assert float(moment_lists(job, table, ones, table.shards)[0, 0]) == expected
    momentum = replace(job, optimizer=OPTIMIZERS["sgd_momentum"])
    assert float(moment_lists(momentum, table, ones, table.shards)[0, 0]) == 0.0


def test_an_update_in_lists_of_tensors_is_the_peak_where_tokens_are_few() -> None:
    """2 P of parameters, 2 P of gradients, 4 P of moments and 2 P of their roots."""
    memory = step_of(job_of(64, update_lists=1.0)).memory
    parameters = memory["parameters"] / 2
    expected = 10.0 * parameters + software(STACK).workspace
    assert sum(memory.values()) == pytest.approx(expected)
