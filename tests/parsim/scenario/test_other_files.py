"""What is no scenario is told as what it is, with the command that takes it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from parsim.errors import ScenarioError
from parsim.scenario import load_scenario
from parsim.validation.tables import shipped_tables
from tests.commands import ROOT

CONFIG = Path(__file__).parent.parent / "model" / "configs" / "llama3-8b.json"


def told(path: Path) -> str:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    return message.removeprefix(f"{path}: ")


def test_a_models_config() -> None:
    assert told(CONFIG) == (
        f"a model's config.json, not a scenario; name it in one (model.name), e.g. "
        f"`parsim simulate SCENARIO --set model.name={CONFIG}`"
    )
    scenario = ROOT / "scenarios" / "llama3-8b-dgx-h100.yaml"
    named = load_scenario(scenario, {"model.name": str(CONFIG), "model.seq_len": 4096})
    assert named.job.model.parameters == 8_030_261_248


@pytest.mark.parametrize(
    ("kind", "option"), [("", ""), ("kernels", "--kernels "), ("collectives", "--collectives ")]
)
def test_tables_of_measurements(kind: str, option: str) -> None:
    for table in shipped_tables(kind) if kind else shipped_tables():
        message = told(table)
        assert message.startswith("a table")
        assert message.endswith(f"`parsim validate {option}{table}`")


def test_a_schedule(tmp_path: Path) -> None:
    assert told(ROOT / "scenarios" / "gpt2-zero-bubble-cpu.csv").startswith("a schedule, not a")
    (tmp_path / "my own.csv").write_text("0F0,0F1,0B0,0B1\n", encoding="utf-8")
    assert told(tmp_path / "my own.csv").endswith(f"--set plan.schedule='{tmp_path}/my own.csv'`")
    (tmp_path / "empty.CSV").write_text("", encoding="utf-8")
    assert told(tmp_path / "empty.CSV").startswith("a table, not a scenario; if it holds measured")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            {"kind": "timeline", "schema_version": 1},
            "a saved timeline, not a scenario; use `parsim",
        ),
        ({"traceEvents": []}, "a trace, not a scenario; open it in Perfetto"),
        ({"systems": {"mine": {"from": "dgx-a100"}}}, "a catalog of devices and systems, not a"),
    ],
)
def test_other_documents(tmp_path: Path, document: dict[str, object], message: str) -> None:
    (tmp_path / "x.json").write_text(json.dumps(document), encoding="utf-8")
    assert told(tmp_path / "x.json").startswith(message)


def test_a_scenario_with_a_strange_key_is_a_scenario(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("model: {name: gpt2}\nmodel_type: llama\n", encoding="utf-8")
    with pytest.raises(ScenarioError, match="model_type is an unknown key"):
        load_scenario(tmp_path / "s.yaml")
