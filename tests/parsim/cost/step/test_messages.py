"""The messages of a stage, counted by hand, and priced as the closed forms price them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.collective.message import Message
from parsim.cost.data.data_parallel import DataParallel
from parsim.cost.job import Job
from parsim.cost.layer.layers import LayerCoster
from parsim.cost.software import software
from parsim.cost.step.messages import gradient_messages, layer_messages, shard_messages
from parsim.cost.step.step import step_costs
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import CpCommType, Plan, PlanTable

LENGTH, WIDTH, BYTES = 2048, 4096, 2


def make_job(name: str = "llama3-8b", nodes: int = 1, **habits: object) -> Job:
    """A model of 2 layers in 16 bit: 32 heads of 128, with Llama 3 8B 8 for keys and values."""
    spec = replace(model_spec(name), num_layers=2, seq_len=LENGTH)
    return Job(
        model=build_transformer(spec),
        cluster=Cluster(system=load_catalog().system("dgx-h100"), num_nodes=nodes),
        software=replace(software("generic"), **habits),  # type: ignore[arg-type]
    )


def in_layers(job: Job, plan: Plan) -> dict[str, Message]:
    return {each.axis: each for each in layer_messages(job, PlanTable.of([plan]))}


@pytest.mark.parametrize(("sequence", "kind"), [(False, "all_reduce"), (True, "all_gather")])
def test_a_border_of_a_split_matrix(sequence: bool, kind: str) -> None:
    plan = Plan(tp=4, dp_replicate=2, microbatch_size=3, sequence_parallel=sequence)
    (border,) = in_layers(make_job(), plan).values()
    assert (border.axis, border.kind) == ("tp", kind)
    assert border.size == 3 * LENGTH * WIDTH * BYTES


def test_keys_and_values_are_those_of_the_models_own_heads() -> None:
    """8 of 32 heads have keys and values: 2 x 8 x 128 values a token, half of them on a rank."""
    messages = in_layers(make_job(), Plan(tp=2, cp=4))
    assert set(messages) == {"tp", "cp"}
    assert messages["cp"].size == LENGTH * 2 * 8 * 128 / 2 * BYTES


def test_heads_of_a_sequence_are_four_messages_of_their_mean() -> None:
    """Queries and outputs 32 x 128, keys and values 8 x 128 of 512 tokens, half on a rank."""
    plan = Plan(tp=2, cp=4, cp_comm_type=CpCommType.A2A)
    message = in_layers(make_job(), plan)["cp"]
    assert message.kind == "all_to_all"
    assert message.size == LENGTH / 4 * 2 * (32 + 8) * 128 / 2 * BYTES / 4


def test_a_copy_of_each_token_for_each_of_its_experts() -> None:
    job = make_job("qwen3-30b-a3b")
    experts = job.model.experts
    assert experts is not None
    plan = Plan(tp=2, ep=8, dp_replicate=4, sequence_parallel=True)
    copies = in_layers(job, plan)["ep"]
    assert copies.kind == "all_to_all"
    assert copies.size == LENGTH / 2 * experts.top_k * experts.width * BYTES


def test_a_plan_without_groups_sends_nothing() -> None:
    job, table = make_job(), PlanTable.of([Plan()])
    data, parameters = DataParallel.of(job, table), np.array([1e9])
    assert not list(layer_messages(job, table))
    assert not list(shard_messages(job, data, parameters))
    assert not list(gradient_messages(data, parameters))


def test_shards_are_gathered_a_layer_at_a_time_and_gradients_by_buckets() -> None:
    """8 ranks share 1e9 parameters of 2 layers, two such groups hold the same ones."""
    job = make_job(nodes=2)
    table = PlanTable.of([Plan(dp_shard=8, dp_replicate=2, zero_stage=3)])
    data = DataParallel.of(job, table)
    (gathered,) = shard_messages(job, data, np.array([1e9]))
    assert (gathered.axis, gathered.kind) == ("shard", "all_gather")
    assert gathered.size == 1e9
    scattered, reduced = gradient_messages(data, np.array([1e8]))
    assert (scattered.axis, scattered.kind) == ("shard", "reduce_scatter")
    assert (reduced.axis, reduced.kind) == ("replicate", "all_reduce")
    assert reduced.size == scattered.size / 8


def test_the_list_is_what_the_closed_forms_price() -> None:
    """Gathered keys and values, and buckets of gradients, show whole where nothing hides them."""
    job = make_job(cp_comm_type=CpCommType.ALL_GATHER)
    plan = Plan(cp=4, dp_replicate=2)
    table = PlanTable.of([plan])
    layer = LayerCoster(job, table).cost(job.model.blocks[0])
    gathered = in_layers(job, plan)["cp"].seconds(job.system)
    assert layer.core.exposed == pytest.approx(gathered, rel=1e-12)
    costs, data = step_costs(job, table), DataParallel.of(job, table)
    (bucket,) = gradient_messages(data, costs.parameters[0] / costs.buckets[0])
    assert costs.bucket_time[0] == pytest.approx(bucket.seconds(job.system), rel=1e-12)
