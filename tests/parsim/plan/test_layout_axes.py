"""Layouts of transformers: which plan of axes each is, its steps and bytes, and what is none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from parsim.cost.legal import illegal
from parsim.errors import InputError, PlanError
from parsim.plan import Plan, PlanSpace
from parsim.plan.layout_axes import axes_words, in_axes
from parsim.plan.strategies import Layout
from parsim.planner.search import search
from parsim.scenario import Scenario, load_scenario
from parsim.sim import simulate

HEAD = """\
model: {{name: {model}, seq_len: 1024}}
cluster: {{system: dgx-a100, nodes: 2}}
training: {{global_batch_size: 128, precision: bf16}}
plan: {{{plan}}}
"""
DENSE, MIXTURE = "llama2-7b", "mixtral-8x7b"
TENSOR = "heads: m, ffn: m, vocab: m"


def scenario(folder: Path, plan: str, model: str = DENSE) -> Scenario:
    path = folder / "scenario.yaml"
    path.write_text(HEAD.format(model=model, plan=plan))
    return load_scenario(path)


def laid(mesh: str, layout: str, more: str = "") -> str:
    return f"strategy: {{name: layout, mesh: {{{mesh}}}, layout: {{{layout}}}}}{more}"


EQUAL = [
    (DENSE, laid("d: 4, m: 4", f"batch: d, {TENSOR}"), "tp: 4, dp: 4, microbatch_size: 4"),
    (DENSE, laid("m: 8", TENSOR), "tp: 8, dp: 2, microbatch_size: 8"),
    (DENSE, laid("d: 16", "batch: d", ", zero_stage: 3"), "dp: 16, zero_stage: 3"),
    (DENSE, laid("d: 2, m: 2", f"batch: d, {TENSOR}", ", zero_stage: 1"),
     "tp: 2, dp: 8, zero_stage: 1, microbatch_size: 2"),
    (DENSE, laid("d: 2, m: 8", f"batch: d, sequence: m, {TENSOR}"),
     "tp: 8, dp: 2, sequence_parallel: true, microbatch_size: 8"),
    (DENSE, laid("d: 2, s: 2, m: 4", f"batch: d, sequence: s, {TENSOR}"),
     "tp: 4, cp: 2, dp: 2, microbatch_size: 8"),
    (DENSE, laid("m: 4, d: 4", f"batch: d, {TENSOR}"),
     "tp: 4, dp: 4, microbatch_size: 4, rank_order: [pp, cp, tp, dp_replicate, dp_shard]"),
    (DENSE, laid("d: 2, m: 4", f"batch: d, {TENSOR}", ", pp: 2, microbatch_size: 2"),
     "pp: 2, tp: 4, dp: 2, microbatch_size: 8"),
    (MIXTURE, laid("d: 8", "batch: d, experts: d"), "ep: 8, dp: 16"),
    (MIXTURE, laid("d: 4, m: 4", f"batch: d, experts: d, sequence: m, {TENSOR}"),
     "ep: 4, etp: 4, tp: 4, dp: 4, sequence_parallel: true, microbatch_size: 4"),
    (MIXTURE, laid("d: 4, m: 4", "batch: d, heads: m, vocab: m, experts: m, sequence: m"),
     "ep: 4, tp: 4, dp: 4, sequence_parallel: true, microbatch_size: 4"),
]  # fmt: skip


@pytest.mark.parametrize(("model", "layout", "axes"), EQUAL)
def test_a_layout_is_the_plan_of_its_axes(
    model: str, layout: str, axes: str, tmp_path: Path
) -> None:
    loaded, wanted = scenario(tmp_path, layout, model), scenario(tmp_path, axes, model)
    assert loaded.plan == wanted.plan
    assert any(" is the plan " in note for note in loaded.notes)
    mine, other = (simulate(s.job, s.fixed_plan()) for s in (loaded, wanted))
    assert mine.step_time == other.step_time
    assert mine.memory_by_rank == other.memory_by_rank
    assert mine.peak_allocated == other.peak_allocated


def test_the_simulator_takes_a_layout_as_it_stands(tmp_path: Path) -> None:
    loaded = scenario(tmp_path, "tp: 4, dp: 4, microbatch_size: 4")
    strategy = Layout(
        mesh=(("d", 4), ("m", 4)),
        layout=(("batch", "d"), ("heads", "m"), ("ffn", "m"), ("vocab", "m")),
    )
    plan = replace(loaded.fixed_plan(), tp=1, dp_replicate=16, microbatch_size=1, strategy=strategy)
    assert simulate(loaded.job, plan).plan == loaded.plan
    told = illegal(loaded.job, plan)
    assert told is not None
    assert "llama2-7b is the plan dp 4 x tp 4, 4 samples a micro-batch" in told


def test_a_network_keeps_its_layout(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    text = HEAD.format(model="alexnet", plan=laid("d: 16", "batch: d"))
    path.write_text(text.replace(", seq_len: 1024", ""))
    assert isinstance(load_scenario(path).fixed_plan().strategy, Layout)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (laid("d: 4, m: 4", "batch: d, ffn: m"),
         "heads, ffn and vocab are split together.*nearest that one is: {batch: d, heads: m, "
         "ffn: m, vocab: m}, which is dp 4 x tp 4, 4 samples a micro-batch"),
        (laid("d: 4, m: 4", "batch: d, model: m"), "width of hidden states.*which is dp 4 x tp 4"),
        (laid("d: 4, m: 4", f"{TENSOR}"), "nothing is split along d.*batch: d.*dp 4 x tp 4"),
        (laid("d: 4", "batch: d, heads: d"), "split together.*nearest that one is: {batch: d}"),
        (laid("d: 4", "batch: d, sequence: d"), "sequence has an axis of its own"),
        (laid("d: 4", "batch: d, experts: d"), "llama2-7b has no experts; leave experts out"),
        (laid("d: 4", "batch: d, lines: d"), "'lines' is no dimension of a transformer"),
        (laid("d: 4", "batch: e"), "'e' is no axis of the mesh.*axes of the mesh: d"),
        (laid("d: 3", "batch: d"), "mesh has 3 devices, which do not divide dp=16"),
        (laid("m: 2, d: 2", f"batch: d, {TENSOR}"), "a mesh that starts with d"),
        (laid("d: 4", "batch: d", ", tp: 2"), "tp=2 does too; leave tp out"),
        ("strategy: layout", "state `layout`, dimensions"),
        (laid("d: 2, m: 8", f"batch: d, {TENSOR}", ", sequence_parallel: true, cp: 2"), "cp=2"),
    ],
)  # fmt: skip
def test_what_is_no_plan_is_refused_with_the_nearest(
    plan: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        scenario(tmp_path, plan)


def test_a_nearest_layout_is_a_plan(tmp_path: Path) -> None:
    nearest = "batch: d, heads: m, ffn: m, vocab: m"
    plan = scenario(tmp_path, laid("d: 4, m: 4", nearest)).fixed_plan()
    assert axes_words(plan) == "dp 4 x tp 4, 4 samples a micro-batch"


def test_experts_inside_of_which_others_are_split_are_no_neighbours(tmp_path: Path) -> None:
    layout = laid("d: 4, s: 2, m: 2", f"batch: d, experts: d, sequence: s, {TENSOR}")
    with pytest.raises(PlanError, match="no axis inside but that of heads"):
        scenario(tmp_path, layout, MIXTURE)


def test_a_search_ranks_a_layout_as_its_plan(tmp_path: Path) -> None:
    loaded = scenario(tmp_path, "dp: 16", "gpt2")
    layout = Layout(mesh=(("m", 4),), layout=(("heads", "m"), ("ffn", "m"), ("vocab", "m")))
    space = PlanSpace(
        global_batch_size=128,
        pp=(1,), tp=(1,), cp=(1,), zero_stage=(0,), microbatch_size=(1,),
        common=Plan(precision="bf16"),
        strategies=(layout,),
    )  # fmt: skip
    job = loaded.job
    result = search(job, space)
    plan = in_axes(Plan(dp_replicate=16, strategy=layout), job.model)
    assert (plan.tp, plan.dp, plan.microbatch_size) == (4, 4, 4)
    row = next(row for row in result.plans if row.plan.tp == 4)
    assert (row.plan.dp, row.plan.microbatch_size) == (4, 4)
    assert row.step_time == simulate(job, row.plan).step_time
