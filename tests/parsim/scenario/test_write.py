"""A scenario written back reads as the same records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.plan import Recompute
from parsim.scenario import Scenario, load_scenario, scenario_text
from parsim.scenario.writing.values import quantity_text
from parsim.sim import simulate
from parsim.units import parse_quantity

CONFIGS = Path(__file__).parent.parent / "model" / "configs"
HEAD = """\
description: "a: b # c"
cluster: {system: dgx-a100, nodes: 1}
training: {global_batch_size: 16, precision: bf16}
plan: {tp: 2}
"""


def load(path: Path, text: str) -> Scenario:
    path.write_text(text, encoding="utf-8")
    return load_scenario(path)


def assert_same_again(first: Scenario, folder: Path) -> None:
    """Written into another folder, so that relative paths would be found out."""
    folder.mkdir()
    assert first.plan is not None
    again = load(folder / "again.yaml", scenario_text(first, first.plan))
    assert again.plan == first.plan
    assert again.spec == first.spec
    assert again.job == first.job
    assert again.global_batch_size == first.global_batch_size
    assert again.description == first.description
    assert again.space is None


@pytest.mark.parametrize(
    "model",
    [
        "{name: gpt2}",
        "{name: gpt2, seq_len: 128, dropout: false, fused_attention: false, head: none}",
        "{name: gpt3-175b, padded_vocab_size: null}",
        f"{{config: {CONFIGS}/llama3-8b.json, seq_len: 512}}",
        "{family: llama, num_layers: 2, hidden_size: 64, num_attention_heads: 8, vocab_size: 100, "
        "seq_len: 32}",
    ],
)
def test_models(tmp_path: Path, model: str) -> None:
    assert_same_again(load(tmp_path / "s.yaml", f"{HEAD}model: {model}\n"), tmp_path / "other")


@pytest.mark.parametrize("software", ["generic", "megatron-2021", "nemo"])
def test_software(tmp_path: Path, software: str) -> None:
    text = f"{HEAD}model: {{name: gpt2}}\nsoftware: {software}\n"
    assert_same_again(load(tmp_path / "s.yaml", text), tmp_path / "other")


@pytest.mark.parametrize(
    "cluster",
    [
        "{system: dgx-a100, nodes: 4, devices_per_node: 2}",
        "{system: dgx-a100, nodes: 4, devices_per_node: 2, network: {nics_per_node: 8}}",
        "{system: dgx-h100, nodes: 1, device: a100-sxm-40gb, intra: {latency: 3.7us, nvls: false}}",
        "{system: dgx-a100, nodes: 1, network: {nic_bandwidth: 123.4567Gb/s, oversubscription: 3}}",
        "{system: mine, nodes: 1, catalog: [mine.yaml]}",
    ],
)
def test_clusters(tmp_path: Path, cluster: str) -> None:
    mine = "systems: {mine: {from: dgx-a100, devices_per_node: 4}}\n"
    (tmp_path / "mine.yaml").write_text(mine, encoding="utf-8")
    text = f"{HEAD}model: {{name: gpt2}}\n"
    text = text.replace("cluster: {system: dgx-a100, nodes: 1}", f"cluster: {cluster}")
    assert_same_again(load(tmp_path / "s.yaml", text), tmp_path / "other")


@pytest.mark.parametrize("precision", ["fp8", "fp8_rowwise", "fp8_amp", "mxfp8", "nvfp4", "mxfp4"])
def test_precisions_of_8_bit_and_context_parallelism(tmp_path: Path, precision: str) -> None:
    system = "mi355x-node" if precision == "mxfp4" else "gb300-nvl72"
    text = (
        f"cluster: {{system: {system}, nodes: 1, devices_per_node: 8}}\n"
        "model: {name: llama3-8b}\nsoftware: megatron-bridge\n"
        "training: {global_batch_size: 16, precision: bf16}\n"
        f"plan: {{cp: 2, cp_comm_type: A2A, zero_stage: 3, precision: {precision}}}\n"
    )
    first = load(tmp_path / "s.yaml", text)
    assert first.plan is not None
    assert (first.plan.precision, first.plan.cp) == (precision, 2)
    document = first.plan.to_json()
    assert (document["precision"], document["cp"]) == (precision, 2)
    assert document["cp_comm_type"] == "a2a"
    assert_same_again(first, tmp_path / "other")


def test_another_plan_than_the_scenario_s_own(tmp_path: Path) -> None:
    first = load(tmp_path / "s.yaml", f"{HEAD}model: {{name: gpt2}}\nsearch: {{}}\n")
    plan = (
        "{pp: 2, v: 3, schedule: interleaved_1f1b, zero_stage: 2, recompute: selective, "
        "stage_layers: [1, 3, 2, 2, 3, 1], bucket_size: 33.3MiB}"
    )
    better = load_scenario(tmp_path / "s.yaml", {"plan": plan}).plan
    assert better is not None
    again = load(tmp_path / "best.yaml", scenario_text(first, better))
    assert again.plan == better
    assert better.recompute is Recompute.SELECTIVE
    assert (again.job, again.space) == (first.job, None)


def test_the_text(tmp_path: Path) -> None:
    first = load(tmp_path / "s.yaml", f"{HEAD}model: {{name: gpt2}}\nsoftware: generic\n")
    assert first.plan is not None
    assert scenario_text(first, first.plan) == (
        "description: 'a: b # c'\n"
        "model:\n  name: gpt2\n"
        "cluster:\n  system: dgx-a100\n  nodes: 1\n"
        "software: generic\n"
        "training:\n  global_batch_size: 16\n  precision: bf16\n"
        "plan:\n"
        "  # dp: 4 and num_microbatches: 4 follow from the devices and the batch\n"
        "  tp: 2\n  pp: 1\n  cp: 1\n  ep: 1\n  etp: 1\n"
        "  microbatch_size: 1\n  schedule: 1f1b\n"
        "  zero_stage: 0\n  sequence_parallel: false\n  recompute: none\n"
        "  gradient_precision: fp32\n  reduce_precision: fp32\n"
        "  overlap_grad_reduce: true\n  overlap_param_gather: true\n  overlap_p2p: true\n"
        "  scatter_p2p: false\n  rank_order: [pp, dp_replicate, dp_shard, cp, tp]\n"
    )


@pytest.mark.parametrize(
    "plan",
    [
        "{tp: 2}",
        "{zero_stage: 2}",
        "{zero_stage: 3, dp_shard: 4}",
        "{zero_stage: 1, cp: 2, dp_shard: 1, dp_replicate: 4}",
        "{pp: 2, schedule: zb_v}",
        "{pp: 2, v: 3, schedule: interleaved_1f1b}",
        "{tp: 4, replica_microbatches: [10, 6]}",
    ],
)
def test_what_follows_from_a_plan_s_choices_is_not_written(tmp_path: Path, plan: str) -> None:
    model = "model: {name: llama3-8b, seq_len: 512}\n"
    first = load(tmp_path / "s.yaml", f"{HEAD.replace('{tp: 2}', plan)}{model}")
    assert first.plan is not None
    text = scenario_text(first, first.plan)
    keys = {line.partition(":")[0] for line in text.splitlines()}
    assert not keys & {"  num_microbatches", "  dp_replicate", "  dp"}
    assert f"# dp: {first.plan.dp} and num_microbatches" in text
    assert_same_again(first, tmp_path / "other")


def test_a_saved_plan_takes_another_degree(tmp_path: Path) -> None:
    first = load(tmp_path / "s.yaml", f"{HEAD}model: {{name: gpt2}}\n")
    assert first.plan is not None
    saved = tmp_path / "best.yaml"
    saved.write_text(scenario_text(first, first.plan), encoding="utf-8")
    for key, value, dp, count in (
        ("plan.tp", "4", 2, 8),
        ("plan.pp", "2", 2, 8),
        ("plan.microbatch_size", "2", 4, 2),
        ("plan.zero_stage", "2", 4, 4),
        ("cluster.nodes", "2", 8, 2),
    ):
        changed = load_scenario(saved, {key: value}).fixed_plan()
        assert (changed.dp, changed.num_microbatches) == (dp, count), key


AMOUNTS = st.one_of(
    st.tuples(st.floats(min_value=1e-9, max_value=1e9), st.just("time")),
    st.tuples(st.floats(min_value=1.0, max_value=1e15), st.sampled_from(["bytes", "bandwidth"])),
)


@given(AMOUNTS)
def test_a_quantity_reads_as_exactly_what_was_written(amount: tuple[float, str]) -> None:
    value, dimension = amount
    assert parse_quantity(quantity_text(value, dimension), dimension) == value


def test_an_even_cut_that_is_slower_stays_the_plans(tmp_path: Path) -> None:
    """A plan that says no cut gets the balanced one where that is faster."""
    text = f"{HEAD}model: {{name: gpt2}}\nsoftware: generic\n".replace("tp: 2", "pp: 4")
    chosen = load(tmp_path / "s.yaml", text)
    assert chosen.plan is not None
    assert chosen.plan.stage_layers is not None
    even = replace(chosen.plan, stage_layers=None)
    again = load(tmp_path / "again.yaml", scenario_text(chosen, even))
    before, after = simulate(chosen.job, even), simulate(again.job, again.fixed_plan())
    assert after.step_time == before.step_time
    assert after.peak_allocated == before.peak_allocated
    assert before.step_time > simulate(chosen.job, chosen.plan).step_time
