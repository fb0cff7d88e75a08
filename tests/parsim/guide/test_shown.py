"""A guide on the command line and as a picture."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.patches import Rectangle

from parsim.cli.app import main
from parsim.guide.families import families
from parsim.guide.record import OTHERWISE, Guide
from parsim.plan import Plan
from parsim.report.picture.planning.guide import draw_guide
from parsim.scenario import load_scenario
from parsim.sim.confidence.memory_fit import Fit
from tests.commands import ROOT
from tests.parsim.guide.guides import NAMES, SCENARIOS


def test_the_command_prints_draws_and_documents(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario, picture = str(SCENARIOS / "gpt2-small-cpu.yaml"), tmp_path / "guide.png"
    assert main(["guide", scenario, "-o", str(picture)]) == 0
    printed = capsys.readouterr().out
    assert "recommended for gpt2-small-cpu: " in printed
    assert all(name in printed for name in NAMES)
    assert picture.stat().st_size > 10_000
    assert main(["guide", scenario, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema_version"] == 1
    assert [each["family"] for each in document["families"]] == list(NAMES)
    tiers = {each["family"]: each.get("tier") for each in document["families"]}
    assert tiers["asynchronous server"] == "events"
    assert tiers["DDP"] == "recurrence"


def test_a_guide_needs_no_plan_and_no_search(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = tmp_path / "bare.yaml"
    scenario.write_text(
        "model: {name: resnet18}\ncluster: {system: dgx-1v, nodes: 1, devices_per_node: 2}\n"
        "software: pytorch-ddp\ntraining: {global_batch_size: 16, precision: fp32}\n",
        encoding="utf-8",
    )
    assert main(["guide", str(scenario)]) == 0
    assert "recommended for bare: " in capsys.readouterr().out
    assert main(["simulate", str(scenario)]) == 2


def test_layouts_are_tried_where_wide_products_stand_behind_convolutions(resnet: Guide) -> None:
    """AlexNet's three products on the devices of a node, as one mesh; ResNet has none so wide."""
    job = load_scenario(ROOT / "scenarios" / "alexnet-one-weird-trick-dgx-1v.yaml").job
    (family,) = [family for family in families(job) if family.name == "layout"]
    plans = family.plans(job, Plan(precision="fp32"))
    assert not isinstance(plans, str)
    (plan,) = plans
    assert plan.strategy.to_json() == {"name": "layout", "mesh": {"devices": 8}}
    assert plan.dp == 8
    assert all(row.name != "layout" for row in resnet.rows)


def test_the_picture_names_families_without_a_bar(resnet: Guide, tmp_path: Path) -> None:
    figure = draw_guide(resnet, tmp_path / "guide.png")
    assert figure.get_suptitle().startswith("recommended for resnet50-dgx-1v: ")
    notes = figure.get_supxlabel()
    assert OTHERWISE in notes
    assert "no plan of tensor (the table says why)" in notes


def test_tight_plans_are_hatched_and_numbers_stand_on_white(tiny: Guide, tmp_path: Path) -> None:
    first, *others = (row for row in tiny.rows if row.prediction is not None)
    assert first.prediction is not None
    tight = replace(first, prediction=replace(first.prediction, fit=Fit.TIGHT))
    figure = draw_guide(replace(tiny, rows=(tight, *others)), tmp_path / "tight.png")
    speed, memory = figure.axes
    for axes in (speed, memory):
        bars = [bar for bar in axes.patches if isinstance(bar, Rectangle)]
        assert [bool(bar.get_hatch()) for bar in bars] == [False] * len(others) + [True]
    assert speed.texts[-1].get_text().endswith(", tight")
    assert not any("tight" in text.get_text() for text in speed.texts[:-1])
    assert all(text.get_bbox_patch() is not None for text in memory.texts)


def test_peaks_of_mebibytes_can_be_read(tiny: Guide, resnet: Guide, tmp_path: Path) -> None:
    memory = draw_guide(tiny, tmp_path / "tiny.png").axes[1]
    widths = [bar.get_width() for bar in memory.patches if isinstance(bar, Rectangle)]
    assert max(widths) > 0.5 * memory.get_xlim()[1]
    texts = [text.get_text().strip() for text in memory.texts]
    assert all(text.endswith(" MiB") for text in texts)
    assert memory.get_xlabel() == "peak memory [MiB]; 11.5 GiB usable"
    larger = draw_guide(resnet, tmp_path / "resnet.png").axes[1]
    assert "[GiB]; line: " in larger.get_xlabel()
