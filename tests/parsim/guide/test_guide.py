"""The guide: a row a family, speed-ups over one device, the recommendation and its reasons."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.patches import Rectangle

from parsim.arrays import Array
from parsim.cli.app import main
from parsim.cost.job import Job
from parsim.cost.kernel.convolutions import _time_of_sizes
from parsim.cost.kernel.gemm import body_time
from parsim.cost.step.plan_layers import _priced
from parsim.guide.compare import guide
from parsim.guide.families import families, one_device, with_batches
from parsim.guide.record import OTHERWISE, FamilyRow, Guide, choose
from parsim.model.networks import Convolution
from parsim.plan import Plan
from parsim.plan.strategies import ParameterServer
from parsim.report.picture.planning.guide import draw_guide
from parsim.scenario import load_scenario
from parsim.sim import simulate
from parsim.sim.confidence.memory_fit import Fit
from parsim.sim.recurrence.evaluate import Evaluation, evaluate
from tests.commands import ROOT

SCENARIOS = ROOT / "scenarios"
RESNET = SCENARIOS / "resnet50-dgx-1v.yaml"
NAMES = (
    *("one device", "DataParallel", "DDP", "parameter server", "asynchronous server"),
    *("local SGD", "ZeRO / FSDP", "tensor", "pipeline", "hybrid"),
)


@pytest.fixture(scope="module")
def resnet() -> Guide:
    return guide(load_scenario(RESNET))


def row(guide: Guide, name: str) -> FamilyRow:
    return next(each for each in guide.rows if each.name == name)


def test_there_is_a_row_for_each_family(resnet: Guide) -> None:
    assert tuple(each.name for each in resnet.rows) == NAMES
    assert [each.name for each in resnet.rows if not each.same_training] == [
        "asynchronous server",
        "local SGD",
    ]
    assert "matrices" in row(resnet, "tensor").reason
    hybrid = row(resnet, "hybrid").prediction  # stages and replicas: no product can be split
    assert hybrid is not None
    assert (hybrid.plan.tp, hybrid.plan.pp, hybrid.plan.dp) == (1, 2, 4)


def test_a_row_is_the_prediction_of_its_plan(resnet: Guide) -> None:
    job = load_scenario(RESNET).job
    for name in ("DDP", "parameter server", "pipeline"):
        prediction = row(resnet, name).prediction
        assert prediction is not None
        again = simulate(job, prediction.plan)
        assert again.step_time == prediction.step_time
        samples = row(resnet, name).samples_per_second
        assert samples == pytest.approx(2048 / again.step_time)


def test_a_slow_worker_is_slow_in_every_family() -> None:
    """Who waits for all loses the slow worker's time; one device is none of the slow ones."""
    changes = {
        "cluster.nodes": "8",
        "cluster.devices_per_node": "1",
        "cluster.network": "{nics_per_node: 1, nic_bandwidth: 10Gb/s}",
        "plan.dp": "8",
        "training.global_batch_size": "512",
        "training.precision": "fp32",
        "plan.microbatch_size": "64",
    }
    slow = {"jitter": "{slow_ranks: {0: 2.0}, speed_spread: 0.0, noise: 0.0, hiccups: 0.0}"}
    path = Path("scenarios/resnet50-dgx-1v.yaml")
    usual, slowed = (guide(load_scenario(path, {**changes, **more})) for more in ({}, slow))
    assert (
        row(slowed, "one device").samples_per_second == row(usual, "one device").samples_per_second
    )
    for name in ("DDP", "ZeRO / FSDP", "parameter server", "local SGD"):
        assert row(slowed, name).samples_per_second < 0.8 * row(usual, name).samples_per_second
    ddp = row(slowed, "DDP")
    assert ddp.limits.startswith("waiting for the slowest device")
    assert row(slowed, "asynchronous server").samples_per_second > ddp.samples_per_second


MACHINES = {
    "cluster": "{system: aws-p2-8xlarge, nodes: 4}",
    "training.global_batch_size": "2048",
    "training.precision": "fp32",
    "plan": "null",
    "search": "{}",
}


def test_servers_of_a_guide_are_those_of_frameworks() -> None:
    """32 K80 of four machines: TensorFlow measured 26.5 times one (tensorflow_benchmarks_2017)."""
    compared = guide(load_scenario(RESNET, MACHINES))
    served = row(compared, "parameter server")
    assert served.prediction is not None
    strategy = served.prediction.plan.strategy
    assert strategy == ParameterServer(node_sums=True, overlap=True)
    assert served.speed_up == pytest.approx(26.5, rel=0.1)


def test_a_saturated_queue_reads_well_in_a_sentence() -> None:
    compared = guide(load_scenario(RESNET, MACHINES | {"model": "{name: vgg16}"}))
    limits = row(compared, "asynchronous server").limits
    assert ", saturated (" in limits
    assert " is " not in limits


def test_a_recommended_layout_says_what_it_does_better() -> None:
    """VGG-16's linear layers hold 89 % of its gradients."""
    changes = {"model": "{name: vgg16}", "software": "pytorch-ddp", "plan": "null"}
    changes |= {"search": "{}", "training.precision": "fp32", "cluster.nodes": "1"}
    compared = guide(load_scenario(RESNET, changes))
    assert compared.chosen is not None
    assert compared.chosen.name == "layout"
    assert any(reason.startswith("layout: weights of large") for reason in compared.reasons)


def test_families_share_statistics_or_say_that_they_cannot() -> None:
    scenario = load_scenario(Path("scenarios/resnet18-small-cpu.yaml"))
    assert scenario.fixed_plan().sync_batch_norm
    compared = guide(scenario)
    ddp = row(compared, "DDP").prediction
    assert ddp is not None
    assert ddp.plan.sync_batch_norm
    for name in ("parameter server", "asynchronous server", "local SGD"):
        assert "sync_batch_norm=true" in row(compared, name).reason


def test_speed_ups_are_over_one_device_with_its_share_of_the_batch(resnet: Guide) -> None:
    alone = row(resnet, "one device")
    assert alone.prediction is not None
    assert alone.prediction.plan.global_batch_size == 2048 / 8
    assert (alone.speed_up, alone.efficiency) == (1.0, 1.0)
    ddp = row(resnet, "DDP")
    assert ddp.efficiency == pytest.approx(ddp.samples_per_second / alone.samples_per_second / 8)


def test_ddp_is_recommended_where_it_is_within_three_percent(resnet: Guide) -> None:
    assert resnet.chosen is not None
    assert resnet.chosen.name == "DDP"
    fastest = max(r.samples_per_second for r in resnet.rows if r.same_training and r.fits)
    assert resnet.chosen.samples_per_second >= 0.97 * fastest
    assert resnet.reasons[0].startswith("the model fits one device")


def test_what_does_not_fit_is_not_recommended() -> None:
    guided = guide(load_scenario(SCENARIOS / "llama3-70b-dgx-h100.yaml"))
    assert not row(guided, "DDP").fits
    assert row(guided, "DDP").limits == "memory"
    assert guided.chosen is not None
    assert guided.chosen.fits
    assert "does not fit one device" in guided.reasons[0]
    assert "DDP does not fit" in guided.reasons


def test_nothing_is_chosen_of_nothing() -> None:
    assert (
        choose([FamilyRow(name="DDP", same_training=True, prediction=None, reason="why")]) is None
    )


def test_micro_batches_are_powers_of_two_that_divide_a_replicas_share() -> None:
    shapes = [(p.microbatch_size, p.num_microbatches) for p in with_batches(Plan(dp_shard=2), 24)]
    assert shapes == [(1, 12), (2, 6), (4, 3)]
    assert list(with_batches(Plan(dp_shard=5), 24)) == []


def test_one_device_is_the_first_of_the_cluster() -> None:
    job = load_scenario(RESNET).job
    alone = one_device(job)
    assert alone.cluster.num_devices == 1
    assert alone.cluster.device == job.cluster.device
    assert len(families(alone)) == len(NAMES)
    assert families(alone)[2].plan(alone, Plan()) == "there is one device"


def test_the_command_prints_draws_and_documents(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario, picture = str(SCENARIOS / "gpt2-small-cpu.yaml"), tmp_path / "guide.png"
    assert main(["guide", scenario, "-o", str(picture)]) == 0
    printed = capsys.readouterr().out
    assert "recommended: gpt2-small-cpu: " in printed
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
    assert "recommended: bare: " in capsys.readouterr().out
    assert main(["simulate", str(scenario)]) == 2


def test_layouts_are_tried_where_wide_products_stand_behind_convolutions(resnet: Guide) -> None:
    """AlexNet's three products on the devices of a node, as one mesh; ResNet has none so wide."""
    job = load_scenario(ROOT / "scenarios" / "alexnet-one-weird-trick-dgx-1v.yaml").job
    (family,) = [family for family in families(job) if family.name == "layout"]
    plan = family.plan(job, Plan(precision="fp32"))
    assert isinstance(plan, Plan)
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


TINY = """model: {family: gpt2, num_layers: 4, hidden_size: 64, num_attention_heads: 4,
  vocab_size: 512, seq_len: 64, dropout: false}
cluster: {system: cpu, nodes: 1, devices_per_node: 2}
software: executor-cpu
training: {global_batch_size: 8, precision: fp32}
plan: {pp: 2, microbatch_size: 1, schedule: 1f1b}
"""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Guide:
    file = tmp_path_factory.mktemp("tiny") / "tiny.yaml"
    file.write_text(TINY, encoding="utf-8")
    return guide(load_scenario(file))


def test_peaks_of_mebibytes_can_be_read(tiny: Guide, resnet: Guide, tmp_path: Path) -> None:
    memory = draw_guide(tiny, tmp_path / "tiny.png").axes[1]
    widths = [bar.get_width() for bar in memory.patches if isinstance(bar, Rectangle)]
    assert max(widths) > 0.5 * memory.get_xlim()[1]
    texts = [text.get_text().strip() for text in memory.texts]
    assert all(text.endswith(" MiB") for text in texts)
    assert memory.get_xlabel() == "peak memory [MiB]; 11.5 GiB usable"
    larger = draw_guide(resnet, tmp_path / "resnet.png").axes[1]
    assert "[GiB]; line: " in larger.get_xlabel()


def test_limits_are_whole_sentences(tiny: Guide) -> None:
    words = row(tiny, "parameter server").limits
    assert words.startswith("synchronisation, ")
    assert "; busiest is the wire into server 0, " in words
    assert row(tiny, "hybrid").reason == (
        "needs 4 devices or more, two stages of two each; there are 2"
    )


def test_a_faster_family_is_passed_over_with_a_reason(tiny: Guide) -> None:
    assert tiny.chosen is not None
    assert tiny.chosen.name == "DDP"
    parallel = row(tiny, "DataParallel")
    assert parallel.samples_per_second > tiny.chosen.samples_per_second
    (reason,) = [text for text in tiny.reasons if text.startswith("DataParallel is predicted")]
    assert "Python's lock between its threads: predictions do not tell 3 % apart" in reason
    assert reason.endswith("and DDP is simpler to run")


def test_stages_are_cut_as_simulate_cuts_them(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(
        "model: {name: llama3-8b}\ncluster: {system: dgx-h100, nodes: 1}\nsoftware: generic\n"
        "training: {global_batch_size: 8, precision: bf16}\n"
        "plan: {pp: 8, tp: 1, microbatch_size: 1, schedule: 1f1b}\n",
        encoding="utf-8",
    )
    scenario = load_scenario(file)
    assert scenario.plan is not None
    assert scenario.plan.stage_layers is not None
    guided = row(guide(scenario), "pipeline").prediction
    assert guided is not None
    assert guided.plan.label() == scenario.plan.label()
    assert guided.step_time == simulate(scenario.job, scenario.plan).step_time


def test_a_convolution_is_priced_once_for_all_families(monkeypatch: pytest.MonkeyPatch) -> None:
    """Families and their plans share a network; images of a micro-batch alone change its prices."""
    products: list[float] = []

    def counted(*args: Any) -> Array:
        products.append(args[1])
        return body_time(*args)

    monkeypatch.setattr("parsim.cost.kernel.convolutions.body_time", counted)
    for remembered in (_time_of_sizes, _priced):
        remembered.cache_clear()
    scenario = load_scenario(RESNET)
    guide(scenario)
    network = {
        op
        for kind in scenario.job.model.kinds
        for op in kind.operators
        if isinstance(op, Convolution)
    }
    directions = sum(3 if op.input_gradient else 2 for op in network)
    sizes = [1 << power for power in range(9)]  # 1 to the 256 images of a device
    assert len(products) == len(sizes) * directions


def test_software_that_is_not_said_is_every_stack_for_the_rows_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[str, Plan]] = []

    def counted(job: Job, plan: Plan) -> Evaluation:
        asked.append((job.software.id, plan))
        return evaluate(job, plan)

    monkeypatch.setattr("parsim.sim.plan_interval.evaluate", counted)
    scenario = load_scenario(RESNET, {"software": "generic"})
    rows = [each.prediction for each in guide(scenario).rows if each.prediction is not None]
    stacks = {name for name, _ in asked}
    assert len(stacks) > 1
    assert len(asked) <= len(rows) * len(stacks)
    assert all("any of the stacks" in each.interval.basis for each in rows)
    alone = simulate(scenario.job, rows[2].plan)
    assert rows[2].interval == alone.interval
