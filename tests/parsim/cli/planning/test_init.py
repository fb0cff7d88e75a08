"""`parsim init`: files that search reads as they are, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsim.cli.app import main
from parsim.cluster.reader import load_catalog
from parsim.scenario import load_scenario
from parsim.scenario.starter import SAMPLES_A_DEVICE, Start, starter_text
from tests.commands import ROOT


@pytest.mark.parametrize("system", sorted(load_catalog().systems))
def test_a_first_scenario_of_every_system_is_legal(system: str, tmp_path: Path) -> None:
    file = tmp_path / "scenario.yaml"
    start = Start(model="gpt2", system=system, nodes=1)
    file.write_text(starter_text(start, file), encoding="utf-8")
    scenario = load_scenario(file)
    devices = load_catalog().system(system).devices_per_node
    assert scenario.global_batch_size == SAMPLES_A_DEVICE * devices
    assert scenario.plan is None
    assert scenario.space is not None


def test_the_command_states_what_was_asked(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    words = ["--model", "ResNet50", "--system", "dgx-1v", "--nodes", "2", "--batch", "512"]
    assert main(["init", str(file), *words]) == 0
    scenario = load_scenario(file)
    assert scenario.job.model.name == "resnet50"
    assert scenario.job.cluster.num_nodes == 2
    assert scenario.global_batch_size == 512


def test_a_config_of_hugging_face_is_named_by_its_path(tmp_path: Path) -> None:
    assert "name: sizes/config.json" in starter_text(
        Start(model="sizes/config.json", system="dgx-h100", nodes=1), tmp_path / "x.yaml"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["x.txt"], "x.txt: a scenario is a YAML file; allowed: .yaml, .yml"),
        (["pyproject.yaml", "--model", "lama3-8b"], "did you mean 'llama3-8b'?"),
        (["x.yaml", "--system", "dgx-h10"], "did you mean 'dgx-h100'?"),
        ([str(ROOT / "scenarios" / "gpt2-small-cpu.yaml")], "is there already; name another file"),
    ],
)
def test_wrong_words_write_nothing(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", *words]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
