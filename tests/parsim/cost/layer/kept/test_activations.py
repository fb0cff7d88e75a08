"""Activation memory against Korthikanti et al. 2022, "Reducing Activation Recomputation in Large
Transformer Models" (arXiv:2205.05198): equations 1, 2 and 4, figures 1 and 7.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest

from parsim.cost.layer.kept.activations import (
    kept_bytes,
    kept_parts,
    kept_policy,
    whole_bytes,
    whole_parts,
)
from parsim.cost.layer.kept.policy import KeptPolicy
from parsim.cost.software import software
from parsim.model.graph.build import build_graph
from parsim.model.graph.catalog import network
from parsim.model.model import Model
from parsim.model.reader import model_spec
from parsim.model.transformer import TransformerSpec, build_transformer, with_options
from parsim.plan import CpCommType, Plan, PlanTable, Recompute
from parsim.schedule import build_schedule
from parsim.sim.memory.in_flight import in_flight_at_peak
from parsim.sim.step.schedule_costs import on_ranks
from parsim.units import GIB

NONE, SELECTIVE, FULL = Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL


def of_2022(name: str) -> TransformerSpec:
    """The paper's layer: attention scores are kept, dropout is on."""
    return with_options(model_spec(name), fused_attention=False, dropout=True)


@pytest.mark.parametrize("t", [1, 2, 4, 8])
@pytest.mark.parametrize("b", [1, 3, 4])
@pytest.mark.parametrize("name", ["megatron-22b", "megatron-530b", "gpt3-175b"])
def test_a_layer_keeps_sbh_10_24_5(name: str, b: int, t: int) -> None:
    """Equation 2: s b h (10 + 24/t + 5 a s / (h t)), every term a whole number of bytes here."""
    spec = of_2022(name)
    s, h, a = spec.seq_len, spec.hidden_size, spec.num_attention_heads
    table = PlanTable.of([Plan(tp=t, microbatch_size=b)])
    kept = whole_bytes(build_transformer(spec).blocks[0], table)
    assert kept[0] == s * b * (10 * h + 24 * h // t) + 5 * a * s * s * b // t


@pytest.mark.parametrize("t", [2, 4, 8])
@pytest.mark.parametrize("name", ["megatron-22b", "megatron-530b", "gpt3-175b"])
def test_sequence_parallelism_divides_everything(name: str, t: int) -> None:
    """Equation 4: s b h / t (34 + 5 a s / h); selective recomputation leaves the 34."""
    spec = of_2022(name)
    s, h, a = spec.seq_len, spec.hidden_size, spec.num_attention_heads
    layer = build_transformer(spec).blocks[0]
    plans = [
        Plan(tp=t, sequence_parallel=True, recompute=recompute)
        for recompute in (NONE, SELECTIVE, FULL)
    ]
    kept = kept_bytes(layer, PlanTable.of(plans))
    assert kept.tolist() == [34 * s * h // t + 5 * a * s * s // t, 34 * s * h // t, 2 * s * h // t]


class Paper(NamedTuple):
    """Layout of a model in the paper: tensor, pipeline, chunks, micro-batch, layers a stage."""

    name: str
    t: int
    p: int
    v: int
    b: int

    def model(self) -> Model:
        return build_transformer(of_2022(self.name))

    def kept(self, sequence_parallel: bool, recompute: Recompute) -> float:
        """Bytes of one layer and one micro-batch."""
        plan = Plan(
            tp=self.t,
            microbatch_size=self.b,
            sequence_parallel=sequence_parallel,
            recompute=recompute,
        )
        model = self.model()
        kept_here = kept_bytes(model.blocks[0], PlanTable.of([plan]))
        return float(kept_here[0])


GPT_22B = Paper("megatron-22b", t=8, p=1, v=1, b=4)
GPT_530B = Paper("megatron-530b", t=8, p=35, v=3, b=1)


@pytest.mark.parametrize(
    ("paper", "sequence_parallel", "recompute", "percent"),
    [
        (GPT_22B, False, NONE, 100.0),
        (GPT_22B, True, NONE, 66.84),
        (GPT_22B, False, SELECTIVE, 49.42),
        (GPT_22B, True, SELECTIVE, 16.18),
        (GPT_22B, False, FULL, 7.64),
        (GPT_530B, False, NONE, 100.0),
        (GPT_530B, True, NONE, 58.31),
        (GPT_530B, False, SELECTIVE, 62.04),
        (GPT_530B, True, SELECTIVE, 20.27),
        (GPT_530B, False, FULL, 9.42),
    ],
)
def test_share_of_the_tensor_parallel_baseline(
    paper: Paper, sequence_parallel: bool, recompute: Recompute, percent: float
) -> None:
    """Figure 7: the paper's own figures include a little outside the layers, hence the percent."""
    share = 100 * paper.kept(sequence_parallel, recompute) / paper.kept(False, NONE)
    assert share == pytest.approx(percent, rel=0.012)


def first_stage(paper: Paper, kept: float) -> float:
    """Bytes in flight on the first pipeline rank; a micro-batch count as in the paper's step."""
    model = paper.model()
    name = "interleaved_1f1b" if paper.v > 1 else "1f1b"
    schedule = build_schedule(name, pp=paper.p, num_microbatches=8 * paper.p, v=paper.v)
    layers = model.num_layers // (paper.p * paper.v)
    stages = np.full((paper.p * paper.v, 1), layers * kept)
    kept_bytes = on_ranks(in_flight_at_peak(stages, schedule) * stages, schedule)
    return float(kept_bytes[0, 0])


@pytest.mark.parametrize(
    ("paper", "sequence_parallel", "recompute", "gib"),
    [
        (GPT_22B, False, NONE, 59.25),
        (GPT_22B, True, SELECTIVE, 9.5625),
        (GPT_530B, False, NONE, 114.023),
        (GPT_530B, True, SELECTIVE, 23.0762),
    ],
)
def test_activations_on_the_first_stage(
    paper: Paper, sequence_parallel: bool, recompute: Recompute, gib: float
) -> None:
    """Figure 1: layers alone, with 1 + (p - 1)/(p v) for the interleaved schedule."""
    memory = first_stage(paper, paper.kept(sequence_parallel, recompute))
    assert memory / GIB == pytest.approx(gib, rel=1e-5)


@pytest.mark.parametrize(("paper", "gib"), [(GPT_22B, 45.5625), (GPT_530B, 31.6406)])
def test_parameters_and_optimizer_on_the_first_stage(paper: Paper, gib: float) -> None:
    """Figure 1: 12 h^2 parameters a layer over t, 18 bytes each; norms and biases are 0.1 %."""
    model = paper.model()
    layer = model.blocks[0]
    count = layer.split_parameters / paper.t + layer.repeated_parameters
    states = 18 * count * model.num_layers / paper.p
    assert states / GIB == pytest.approx(gib, rel=0.002)


@pytest.mark.parametrize("name", ["megatron-22b", "gpt3-175b", "llama3-8b", "llama3-70b"])
@pytest.mark.parametrize("recompute", [NONE, SELECTIVE, FULL])
def test_parts_are_the_whole(name: str, recompute: Recompute) -> None:
    spec = model_spec(name)
    layer = build_transformer(spec).blocks[0]
    table = PlanTable.of([Plan(tp=4, sequence_parallel=True, recompute=recompute)])
    for half in (False, True):
        parts = kept_parts(layer, table, KeptPolicy(half_products=half))
        whole = kept_bytes(layer, table, KeptPolicy(half_products=half))
        assert sum(float(part[0]) for part in parts.values()) == float(whole[0])


@pytest.mark.parametrize("name", ["multi-task-3-16", "u-net-2-4", "alexnet"])
def test_half_of_a_network_s_products_is_of_all_its_kinds(name: str) -> None:
    table = PlanTable.of([Plan(recompute=SELECTIVE)])
    for layer in build_graph(network(name)).layers:
        parts = kept_parts(layer, table, KeptPolicy(half_products=True))
        assert all(float(part[0]) >= 0 for part in parts.values())


def test_parts_of_korthikanti_s_layer() -> None:
    """Section 4.1: attention 11 s b h + 5 a s^2 b, MLP 19 s b h, norms 4 s b h; masks apart."""
    spec = of_2022("megatron-22b")
    s, h, a = spec.seq_len, spec.hidden_size, spec.num_attention_heads
    parts = whole_parts(build_transformer(spec).blocks[0], PlanTable.of([Plan()]))
    assert {name: float(part[0]) for name, part in parts.items()} == {
        "norms": 4 * s * h,
        "attention": 10 * s * h,
        "attention_scores": 5 * a * s * s,
        "mlp": 18 * s * h,
        "dropout_masks": 2 * s * h,
    }


def test_products_that_are_kept_in_8_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs of the four products take a byte a value; a fused kernel keeps its 16-bit output."""
    spec = model_spec("llama3-8b")
    layer, table = build_transformer(spec).blocks[0], PlanTable.of([Plan()])
    s, h, f, kv = spec.seq_len, 4096, 14336, 1024
    wide = whole_parts(layer, table)
    quantized = SimpleNamespace(activation=2, quantization=SimpleNamespace(kept=1.0))
    monkeypatch.setattr(PlanTable, "precision", property(lambda table: quantized))
    kept = whole_parts(layer, table)
    assert kept["attention"][0] == s * (h + 2 * (h + 2 * kv) + 2 * h + h)
    assert kept["mlp"][0] == s * (h + 2 * 2 * f + f)
    assert kept["norms"][0] == wide["norms"][0]


def test_context_parallelism_keeps_the_attention_s_output_twice() -> None:
    spec = model_spec("llama3-8b")
    layer = build_transformer(spec).blocks[0]
    whole, ring = (whole_bytes(layer, PlanTable.of([Plan(cp=cp)]))[0] for cp in (1, 4))
    assert ring == whole / 4 + 2 * spec.seq_len / 4 * 4096


def test_all_to_alls_of_the_software_keep_what_those_of_the_plan_do() -> None:
    layer = build_transformer(model_spec("llama2-7b")).blocks[0]
    silent, named = (
        PlanTable.of([Plan(cp=4, cp_comm_type=kind)])
        for kind in (CpCommType.DEFAULT, CpCommType.A2A)
    )
    policy = kept_policy(software("xtuner"))._replace(ring_output=False)
    assert kept_bytes(layer, silent, policy)[0] == kept_bytes(layer, named, policy)[0]
    other = policy._replace(cp_comm_type=CpCommType.P2P)
    assert kept_bytes(layer, silent, other)[0] != kept_bytes(layer, named, other)[0]


def test_plain_pytorch_keeps_what_each_of_its_kernels_reads() -> None:
    """Llama-2 7B of transformers, bytes a token and width, tensor by tensor.

    Norms: 4 (fp32 input) + 2 (normalised), twice; products' inputs: 2 + 2 + 2 beside the last one;
    queries, keys, values: 6; gate, up, SiLU's result and the last product's input: 2 f each.
    """
    layer = build_transformer(model_spec("llama2-7b")).blocks[0]
    table, values = PlanTable.of([Plan(zero_stage=2, dp_shard=8)]), 4096 * 4096
    kept = {
        name: kept_bytes(layer, table, kept_policy(software(name)))[0] / values
        for name in ("deepspeed-zero3", "deepspeed-huggingface")
    }
    wide = 11008 / 4096
    sums = 4.0 * 32 / 4096  # log-sum-exps of attention
    assert kept["deepspeed-huggingface"] == pytest.approx(12 + 6 + 6 + 8 * wide + sums)
    assert kept["deepspeed-zero3"] == pytest.approx(4 + 6 + 6 + 6 * wide + sums)


@pytest.mark.parametrize(("name", "each"), [("fp8", 1.0), ("mxfp8", 33 / 16), ("bf16", 2.0)])
def test_attention_in_8_bit_keeps_its_operands_in_8_bit(name: str, each: float) -> None:
    """One scale: a byte a value; blocks of 32: both orientations with their scales."""
    spec = model_spec("llama3-8b")
    layer = build_transformer(spec).blocks[0]
    table = PlanTable.of([Plan(precision=name)])
    plain, narrow = (
        kept_parts(layer, table, KeptPolicy(narrow_attention=switch))["attention"][0]
        for switch in (False, True)
    )
    operands = spec.seq_len * (4096 + 1024 + 1024)
    assert narrow - plain == pytest.approx((each - 2.0) * operands)
