"""Tensor-parallel collectives beside GEMMs: what shows of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.kernel.kernels import memory_time
from parsim.cost.layer.layers import LayerCoster
from parsim.cost.layer.passes import LayerCost
from parsim.cost.layer.tensor_exchanges import TensorGroups
from parsim.cost.software import software
from parsim.cost.step.layer_table import LayerTable
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import Plan, PlanTable
from parsim.sim.memory.buffers import logit_values

JOB = Job(
    model=build_transformer(model_spec("megatron-22b")),
    cluster=Cluster(system=load_catalog().system("dgx-h100"), num_nodes=1),
    software=software("nemo"),
)
PLAN = Plan(tp=8, sequence_parallel=True)


def shown(collective: float, kernel: float, chunk: float, plan: Plan = PLAN) -> float:
    borders = TensorGroups.of(JOB, PlanTable.of([plan]))
    columns = (np.array([x]) for x in (collective, kernel, chunk))
    return float(borders.chunked(*columns)[0])


def test_the_first_chunk_shows_and_the_rest_slows_the_product() -> None:
    kept = (132 - 24) / 132
    assert shown(0.8, 8.0, 1.0) == pytest.approx(0.1 + (1.0 - kept) * 0.7)


def test_chunks_that_are_slower_than_the_whole_product() -> None:
    assert shown(0.8, 8.0, 1.02) == pytest.approx(shown(0.8, 8.0, 1.0) + 8 * 0.02)


def test_chunks_are_not_used_where_they_do_not_pay() -> None:
    assert shown(0.8, 8.0, 1.2) == 0.8


def test_a_short_product_hides_little() -> None:
    assert shown(8.0, 0.8, 0.1) == pytest.approx(8.0 - 0.7)


def test_chunks_need_sequence_parallelism() -> None:
    assert shown(0.8, 8.0, 1.0, replace(PLAN, sequence_parallel=False)) == 0.8


def ringed(
    collective: float, kernel: float, chunk: float, plan: Plan = PLAN, summed: float = 0.0
) -> float:
    borders = TensorGroups.of(JOB, PlanTable.of([plan]))
    columns = (np.array([x]) for x in (collective, kernel, chunk, summed))
    return float(borders.ringed(*columns)[0])


def test_a_ring_beside_long_products_shows_nothing() -> None:
    assert ringed(0.7, 8.0, 1.0) == 0.0
    assert shown(0.7, 8.0, 1.0) > 0.0


def test_a_ring_of_chunks_that_are_slower_than_the_whole_product() -> None:
    assert ringed(0.7, 8.0, 1.02) == pytest.approx(8 * 0.02)
    assert ringed(0.7, 8.0, 1.2) == 0.7


def test_a_ring_beside_short_products_hides_all_of_them_but_one_chunk() -> None:
    assert ringed(7.0, 0.8, 0.1) == pytest.approx(7.0 - 7 * 0.1)


def test_a_ring_adds_up_what_its_chunks_brought() -> None:
    added = float(memory_time(JOB.device, 1e9))
    assert ringed(0.7, 8.0, 1.0, summed=1e9) == pytest.approx(added)


def test_rings_need_sequence_parallelism() -> None:
    assert ringed(0.7, 8.0, 1.0, replace(PLAN, sequence_parallel=False)) == 0.7


@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_a_stack_with_rings_shows_less_of_its_layers_collectives(precision: str) -> None:
    """In 16 bit too, where the reductions of forward stay pipelined."""
    rings = replace(JOB, software=software("megatron-bridge"))
    pipelines = replace(rings, software=replace(rings.software, tp_rings=False))
    plan = replace(PLAN, precision=precision)
    carried, piped = (layer_cost(job, 1, plan) for job in (rings, pipelines))
    for name in ("forward", "backward"):
        less, more = getattr(carried, name), getattr(piped, name)
        assert 0.0 <= float(less.exposed[0]) < float(more.exposed[0])
        assert less.kernels == more.kernels


def test_a_stack_with_chunks_shows_less_of_its_layers_collectives() -> None:
    table = PlanTable.of([PLAN, replace(PLAN, sequence_parallel=False), Plan(dp_replicate=8)])
    plain = replace(JOB, software=replace(JOB.software, tp_overlap=False))
    with_chunks, without = (LayerTable.of(job, table).kinds[0] for job in (JOB, plain))
    for name in ("forward", "backward"):
        less, more = (getattr(cost, name).exposed for cost in (with_chunks, without))
        assert 0.0 < less[0] < more[0]
        assert (less[1:] == more[1:]).all()
        kernels = (getattr(cost, name).kernels for cost in (with_chunks, without))
        assert len({tuple(cost) for cost in kernels}) == 1


def llama(*, joined_inputs: bool = True, whole_logits: bool = False) -> Job:
    """A Llama on plain tensor parallelism: three matrices read one input, two the other."""
    model, usual = build_transformer(model_spec("llama3-8b")), software("generic")
    stack = replace(usual, joined_inputs=joined_inputs, whole_logits=whole_logits)
    return replace(JOB, model=model, software=stack)


def layer_cost(job: Job, at: int, plan: Plan = PLAN) -> LayerCost:
    return LayerCoster(job, PlanTable.of([plan])).cost(job.model.layers[at])


def test_matrices_that_share_no_gather() -> None:
    """5 gathers instead of 2 forward; backward 5 reductions, and no input is gathered again."""
    together, apart = (layer_cost(llama(joined_inputs=joined), 1) for joined in (True, False))
    tokens, table = np.array([8192.0]), PlanTable.of([PLAN])
    reduced, gathered = TensorGroups.of(llama(), table).exchange(tokens, 4096)
    assert apart.forward.exposed == pytest.approx(together.forward.exposed + 3 * gathered)
    more = apart.backward.exposed - together.backward.exposed
    assert more == pytest.approx(3 * reduced - 2 * gathered)
    assert apart.forward.kernels == together.forward.kernels


def test_matrices_that_share_no_sum() -> None:
    """Without sequence parallelism nothing is gathered: 5 sums backward instead of 2."""
    plain = replace(PLAN, sequence_parallel=False)
    jobs = (llama(joined_inputs=joined) for joined in (True, False))
    together, apart = (layer_cost(job, 1, plain) for job in jobs)
    table = PlanTable.of([plain])
    summed, _ = TensorGroups.of(llama(), table).exchange(np.array([8192.0]), 4096)
    assert apart.forward.exposed == together.forward.exposed
    assert apart.backward.exposed == pytest.approx(together.backward.exposed + 3 * summed)


def test_losses_of_all_words_on_every_rank() -> None:
    split, whole = llama(), llama(whole_logits=True)
    table = PlanTable.of([PLAN])
    assert logit_values(whole, table) == 8 * logit_values(split, table) == 8192 * 128_256
    less, more = (layer_cost(job, -1) for job in (split, whole))
    logits = TensorGroups.of(whole, table).message("all_gather", np.array([8192 * 128_256 * 2.0]))
    sums = TensorGroups.of(split, table).message("all_reduce", np.array([4.0 * 8192]))
    gathered, summed = (each.seconds(JOB.system) for each in (logits, sums))
    assert more.forward.exposed == pytest.approx(less.forward.exposed + gathered - 3 * summed)
    assert more.backward.exposed == less.backward.exposed
    assert more.backward.kernels > less.backward.kernels
