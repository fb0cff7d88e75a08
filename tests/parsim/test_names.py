"""Names that users write: found whatever their case, told by the nearest where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsim.cluster.reader import load_catalog
from parsim.cost.software import software
from parsim.errors import alternatives, matching
from parsim.plan import Recompute
from parsim.scenario import load_scenario
from tests.commands import ROOT

LETTERS = [f"letter-{letter}" for letter in "abcdefghijklmn"]


@pytest.mark.parametrize(
    ("word", "name"),
    [("bf16", "bf16"), ("BF16", "bf16"), ("MINE", None), ("Mine", "Mine"), ("bf", None)],
)
def test_a_name_is_found_whatever_its_case_where_only_one_fits(word: str, name: str | None) -> None:
    assert matching(word, ["bf16", "fp32", "Mine", "mine"]) == name


def test_few_names_are_all_listed() -> None:
    assert alternatives("TPP", ["tp", "pp"]) == " (did you mean 'tp'?); allowed: tp, pp"


def test_of_many_names_the_five_nearest_are_told() -> None:
    told = alternatives("letter-C", LETTERS, listing="parsim catalog letters")
    assert told.startswith(" (did you mean 'letter-c'?); nearest of 14: letter-c, ")
    assert told.endswith(" (all of them: parsim catalog letters)")
    assert told.count("letter-") == 6


def test_names_that_hold_the_word_are_nearest() -> None:
    told = alternatives("h100", load_catalog().devices)
    assert ": h100-sxm-80gb, h100-pcie-80gb, h100-sxm-96gb-500w, " in told


def test_a_scenario_may_spell_every_name_in_capitals(tmp_path: Path) -> None:
    text = """
model: {name: Llama3-8B, seq_len: 8192, head: LM}
cluster: {system: DGX-H100, nodes: 2, device: H200-SXM, network: {fabric: Rail-Optimised}}
software: NeMo
training: {global_batch_size: 16, precision: BF16}
plan: {pp: 2, tp: 8, schedule: 1F1B, recompute: Full, gradient_precision: FP32}
search: {schedule: [GPipe], recompute: ['NONE', FULL]}
"""
    (tmp_path / "s.yaml").write_text(text)
    scenario = load_scenario(tmp_path / "s.yaml")
    job, plan, space = scenario.job, scenario.fixed_plan(), scenario.plan_space()
    assert (job.model.name, job.software) == ("llama3-8b", software("nemo"))
    assert (job.system.id, job.device.id) == ("dgx-h100", "h200-sxm")
    assert job.system.network is not None
    assert job.system.network.fabric == "rail-optimised"
    assert (plan.precision, plan.schedule, plan.gradient_precision) == ("bf16", "1f1b", "fp32")
    assert plan.recompute is Recompute.FULL
    assert (space.schedule, space.recompute) == (("gpipe",), (Recompute.NONE, Recompute.FULL))


def test_a_catalog_of_the_users_own_may_too(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        "systems:\n  Mine: {from: dgx-a100, device: H100-SXM-80GB}\n", encoding="utf-8"
    )
    catalog = load_catalog([tmp_path / "c.yaml"])
    assert catalog.system("mine").id == "Mine"
    assert catalog.system("MINE").device.id == "h100-sxm-80gb"


def test_a_shipped_scenario_takes_capitals_on_the_command_line() -> None:
    file = ROOT / "scenarios" / "llama3-8b-dgx-h100.yaml"
    capitals = load_scenario(file, {"cluster.system": "DGX-H100", "training.precision": "BF16_AMP"})
    assert capitals.job == load_scenario(file).job
