"""`parsim init`: files that search reads as they are, and what it refuses."""

from __future__ import annotations

import json
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


def test_the_length_of_sequences_and_the_software_are_stated(tmp_path: Path) -> None:
    file = tmp_path / "long.yaml"
    words = ["--model", "llama3-70b", "--seq-len", "32768", "--software", "megatron-bridge"]
    assert main(["init", str(file), *words]) == 0
    job = load_scenario(file).job
    assert (job.model.tokens, job.software.id) == (32768, "megatron-bridge")


@pytest.mark.parametrize(
    "words",
    [
        ["--nodes", "2"],
        ["--devices-per-node", "1"],
        ["--model", "resnet50"],
        ["--model", "gpt2", "--system", "cpu"],
        ["--model", "qwen2.5-0.5b", "--devices-per-node", "3"],
    ],
    ids=str,
)
def test_the_plan_that_is_shown_is_legal(words: list[str], tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    assert main(["init", str(file), *words]) == 0
    text = file.read_text("utf-8")
    assert "# plan: {" in text
    file.write_text(text.replace("# plan: {", "plan: {"), encoding="utf-8")
    assert load_scenario(file).plan is not None


def test_fewer_devices_of_a_node_are_said_and_counted(tmp_path: Path) -> None:
    file = tmp_path / "one.yaml"
    assert main(["init", str(file), "--devices-per-node", "1"]) == 0
    text = file.read_text("utf-8")
    assert "# 1 device in all" in text
    assert "# lora_rank: 16" in text
    scenario = load_scenario(file)
    assert scenario.job.cluster.num_devices == 1
    assert scenario.global_batch_size == SAMPLES_A_DEVICE


def test_a_config_of_hugging_face_is_named_by_its_path(tmp_path: Path) -> None:
    assert "name: sizes/config.json" in starter_text(
        Start(model="sizes/config.json", system="dgx-h100", nodes=1), tmp_path / "x.yaml"
    )


def test_a_config_is_begun_with_sequences_that_people_train_on(tmp_path: Path) -> None:
    """Llama 3.2 allows 131,072 tokens; a step of such sequences takes minutes."""
    for longest, length in ((131_072, 4096), (1024, 1024)):
        sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
        more = {"num_attention_heads": 4, "vocab_size": 512, "max_position_embeddings": longest}
        config = {"model_type": "llama", **sizes, **more}
        (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
        start = Start(model="config.json", system="dgx-h100", nodes=1)
        text = starter_text(start, tmp_path / "x.yaml")
        assert f"seq_len: {length} " in text
        assert f"the config allows {longest}" in text


def test_what_is_begun_on_a_cpu_is_what_runs_there(tmp_path: Path) -> None:
    file = tmp_path / "cpu.yaml"
    assert main(["init", str(file), "--model", "gpt2", "--system", "cpu"]) == 0
    scenario = load_scenario(file)
    assert scenario.job.software.id == "executor-cpu"
    assert "precision: fp32" in file.read_text("utf-8")


def test_images_come_in_larger_batches() -> None:
    assert "global_batch_size: 512 " in starter_text(
        Start(model="resnet50", system="dgx-h100", nodes=1), Path("x.yaml")
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["x.txt"], "x.txt: a scenario is a YAML file; allowed: .yaml, .yml"),
        (["pyproject.yaml", "--model", "lama3-8b"], "did you mean 'llama3-8b'?"),
        (["x.yaml", "--system", "dgx-h10"], "did you mean 'dgx-h100'?"),
        (["x.yaml", "--software", "megatron-bridg"], "is unknown; nearest of"),
        (["x.yaml", "--model", "resnet50", "--seq-len", "512"], "resnet50 has no such length"),
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
