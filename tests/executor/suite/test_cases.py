"""The suite's cases: every scenario is legal, and the calibrated hardware gets into it."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest

from executor.suite.cases import (
    CPU,
    CUDA,
    EXPERT_FAMILIES,
    FAMILIES,
    QUICK,
    SuiteCase,
    before_calibration,
    calibrated,
    choose,
    scenario_text,
)
from executor.suite.machine import Machine
from executor.suite.models import RESNET, VGG
from executor.suite.suite import _sharing
from parsim.cluster.reader import load_catalog
from parsim.errors import InputError
from parsim.scenario import Scenario, load_scenario

SUITES = {"quick": ("cpu", QUICK), "cpu": ("cpu", CPU), "cuda": ("cuda", CUDA)}
CATALOG = """
devices:
  h200-sxm-mine: {from: h200-sxm, calibrated: true}
"""
ONE_GPU = Machine(
    kind="cuda",
    backend="nccl",
    count=1,
    names=("NVIDIA H200",),
    torch="2.13.0",
    cuda="13.0",
    nccl=(2, 28, 9),
    python="3.12.3",
    load=0.1,
)


def case(name: str) -> SuiteCase:
    return next(entry for entry in chain(CPU, CUDA, QUICK) if entry.name == name)


def loaded(case: SuiteCase, kind: str, folder: Path) -> Scenario:
    path = folder / f"{case.name}.yaml"
    path.write_text(scenario_text(case, before_calibration(kind)))
    return load_scenario(path)


@pytest.mark.parametrize("suite", SUITES)
def test_every_case_is_a_legal_plan_of_its_ranks(suite: str, tmp_path: Path) -> None:
    kind, cases = SUITES[suite]
    assert len({case.name for case in cases}) == len(cases)
    for case in cases:
        scenario = loaded(case, kind, tmp_path)
        plan = scenario.fixed_plan()
        assert plan.world_size == case.world_size
        assert plan.global_batch_size == case.batch
        assert plan.precision == case.precision
        assert case.model in (RESNET, VGG) or not scenario.spec.dropout


def test_the_cpu_has_every_family_in_two_sizes() -> None:
    families = [entry.family for entry in CPU]
    assert {families.count(title) for title, _ in FAMILIES.values()} == {2}
    assert {families.count(title) for title, _ in EXPERT_FAMILIES.values()} == {1}
    assert {entry.world_size for entry in CPU} == {1, 2}


def test_models_of_other_kinds_are_on_the_cpu_and_on_one_gpu(tmp_path: Path) -> None:
    """LoRA, windows, parallel blocks and latent attention have twins of a billion parameters."""
    pairs = {
        "llama-15m-lora-one": "llama-1b-lora-mb4",
        "gemma-7m-one": "gemma3-1b-mb2",
        "neox-7m-one": "pythia-1b-mb4",
        "latent-15m-ep": "deepseek-1b-mb2",
    }
    telling = ("lora_rank", "window", "qk_norm", "parallel_block", "kv_lora_rank", "num_experts")
    for small, large in pairs.items():
        mine = loaded(case(small), "cpu", tmp_path).spec
        twin = loaded(case(large), "cuda", tmp_path)
        assert [bool(getattr(mine, key)) for key in telling] == [
            bool(getattr(twin.spec, key)) for key in telling
        ]
        assert 0.8e9 < twin.job.model.parameters < 1.3e9


def test_one_gpu_has_the_models_and_variants_that_are_promised(tmp_path: Path) -> None:
    alone = [entry for entry in CUDA if entry.world_size == 1]
    sizes = {entry.family: loaded(entry, "cuda", tmp_path).job.model.parameters for entry in alone}
    assert round(sizes["GPT-2 124M"] / 1e6) == 124
    assert round(sizes["GPT-2 774M"] / 1e6) == 774
    assert 1.0e9 < sizes["Llama 1B"] < 1.2e9
    assert {"BERT-large", "ResNet-50", "VGG-16"} <= sizes.keys()
    for family in ("GPT-2 124M", "GPT-2 774M", "Llama 1B"):
        mine = [entry for entry in alone if entry.family == family]
        assert {entry.plan["recompute"] for entry in mine} >= {"none", "full"}
        assert len({entry.plan["microbatch_size"] for entry in mine}) >= 2
        assert {entry.precision for entry in mine} == {"bf16", "bf16_amp"}
        assert any(entry.batch > entry.plan["microbatch_size"] for entry in mine)


def test_a_device_without_links_stands_in_the_system_it_is_from(tmp_path: Path) -> None:
    (tmp_path / "device.yaml").write_text(CATALOG)
    document = {"device": {"id": "h200-sxm-mine", "from": "h200-sxm"}, "system": None}
    platform = calibrated("cuda", document, load_catalog([tmp_path / "device.yaml"]))
    folder = tmp_path / "case"
    folder.mkdir()
    (folder / "scenario.yaml").write_text(scenario_text(case("gpt2-mb8"), platform))
    job = load_scenario(folder / "scenario.yaml").job
    assert (job.system.id, job.device.id, job.cluster.num_devices) == (
        "hgx-h200",
        "h200-sxm-mine",
        1,
    )
    assert job.device.calibrated


def test_a_calibrated_system_brings_its_device(tmp_path: Path) -> None:
    document = {"device": {"id": "my-cpu", "from": "cpu"}, "system": {"id": "my-cpu-node"}}
    platform = calibrated("cpu", document, load_catalog())
    assert (platform.system, platform.device) == ("my-cpu-node", None)


def test_an_unknown_case_is_refused() -> None:
    assert choose(CPU, ["gpt-7m-tp"]) == (case("gpt-7m-tp"),)
    assert choose(QUICK, []) == QUICK
    with pytest.raises(InputError, match=r"case 'gpt-7m-tb' is unknown \(did you mean 'gpt-7m-"):
        choose(CPU, ["gpt-7m-tb"])


def test_ranks_that_share_a_gpu() -> None:
    alone, ddp, pipeline = case("gpt2-mb8"), case("gpt2-ddp"), case("gpt2-1f1b")
    assert _sharing(alone, ONE_GPU) == ("", None, "")
    label, backend, refused = _sharing(ddp, ONE_GPU)
    assert (backend, refused) == ("gloo", "")
    assert "ranks share one GPU: correctness is real, speed is not that of N GPUs" in label
    refused = _sharing(pipeline, ONE_GPU)[2]
    assert refused.startswith("2 ranks on 1 GPU: NCCL 2.28.9 refuses it (allowed from 2.30 on")
    newer = replace(ONE_GPU, nccl=(2, 30, 7))
    assert _sharing(pipeline, newer) == (f"{label.partition(';')[0]}; NCCL", None, "")
    assert _sharing(pipeline, replace(ONE_GPU, count=2)) == ("", None, "")
    assert _sharing(case("gpt-7m-ddp"), replace(ONE_GPU, kind="cpu", count=1))[0]
