"""Files of torchtitan: keys that it has, values that are the plan's."""

from __future__ import annotations

import ast
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parsim.cost.software import software, with_switches
from parsim.frameworks.export import export_plan
from parsim.frameworks.reading.torchtitan import torchtitan_job
from parsim.plan import Recompute
from parsim.scenario import Scenario
from tests.parsim.frameworks.export.exported import names, planned

ZB_V: dict[str, Any] = {
    "tp": 2,
    "pp": 2,
    "dp_shard": 2,
    "zero_stage": 1,
    "num_microbatches": 8,
    "schedule": "zb_v",
    "v": 2,
}
"""A pipeline that torchtitan can run, with tensor and data parallelism."""


def keywords(text: str, call: str) -> dict[str, Any]:
    """Arguments of one call of a Python text."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == call:
            return {str(word.arg): ast.literal_eval(word.value) for word in node.keywords}
    raise AssertionError(call)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"recompute": Recompute.FULL},
        ZB_V,
        {"dp_replicate": 2, "dp_shard": 4},
    ],
)
def test_torchtitan(llama: Scenario, changes: dict[str, Any]) -> None:
    plan, known = planned(llama, **changes), names("torchtitan-0.3.0.json")
    text = export_plan(llama, plan, "torchtitan")
    parallel, training = keywords(text, "ParallelismConfig"), keywords(text, "TrainingConfig")
    assert set(parallel) <= set(known["ParallelismConfig"])
    assert set(training) <= set(known["TrainingConfig"])
    degrees = [
        parallel[f"{name}_degree"]
        for name in (
            *("data_parallel_replicate", "data_parallel_shard", "tensor_parallel"),
            *("context_parallel", "pipeline_parallel"),
        )
    ]
    assert degrees == [plan.dp_replicate, plan.dp_shard, plan.tp, plan.cp, plan.pp]
    assert training["global_batch_size"] == plan.global_batch_size
    each = training["local_batch_size"]
    assert each == (plan.microbatch_size if plan.pp == 1 else plan.global_batch_size // plan.dp)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"recompute": Recompute.SELECTIVE},
        {**ZB_V, "sequence_parallel": True},
        {"dp_replicate": 2, "dp_shard": 4},
    ],
)
def test_torchtitan_before_its_python_files(
    llama: Scenario, tmp_path: Path, changes: dict[str, Any]
) -> None:
    """Every name is one of the release's, and what is read back is the plan."""
    plan, known = planned(llama, **changes), names("torchtitan-0.2.2.json")
    text = export_plan(llama, plan, "torchtitan-0.2")
    assert "# for torchtitan 0.2.2" in text
    document = tomllib.loads(text)
    for section, values in document.items():
        assert set(values) <= set(known[section])
    again = torchtitan_job(document)
    read = {name: value for name, value in again.plan.items() if name not in ("recompute", "v")}
    assert read == {name: getattr(plan, name) for name in read}
    assert again.plan["recompute"] == plan.recompute.name.lower()
    assert again.global_batch_size == plan.global_batch_size
    assert again.model["name"] == llama.job.model.name


@pytest.mark.parametrize(
    ("stack", "switches", "enabled", "overlapped"),
    [
        ("torchtitan", {}, True, False),
        ("torchtitan", {"compile": False}, False, False),
        ("torchtitan", {"tp_overlap": True}, True, True),
        ("torchtitan", {"tp_overlap": True, "compile": False}, False, False),
        ("executor-cuda", {}, False, False),
        ("generic", {}, True, False),
    ],
)
def test_torchtitan_compiles_what_was_predicted_as_compiled(
    llama: Scenario, stack: str, switches: dict[str, Any], enabled: bool, overlapped: bool
) -> None:
    """torch.compile is off in torchtitan where nothing is said."""
    job = replace(llama.job, software=with_switches(software(stack), switches))
    switched, plan = replace(llama, job=job), planned(llama, tp=2, dp_shard=4)
    plan = replace(plan, sequence_parallel=True)
    text = export_plan(switched, plan, "torchtitan")
    asked = {"enable": enabled, **({"enable_async_tensor_parallel": True} if overlapped else {})}
    assert keywords(text, "CompileConfig") == asked
    assert set(asked) <= set(names("torchtitan-0.3.0.json")["CompileConfig"])
    assert "import CompileConfig" in text
    document = tomllib.loads(export_plan(switched, plan, "torchtitan-0.2"))
    assert document["compile"] == {"enable": enabled}
    assert document["parallelism"].get("enable_async_tensor_parallel", False) is overlapped
    again = torchtitan_job(document).software
    if stack == "torchtitan":
        assert (again == "torchtitan") == (not switches)
