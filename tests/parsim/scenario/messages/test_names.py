"""What is told of unknown names and models, character by character."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsim.cluster.reader import load_catalog
from parsim.cost.software import software_catalog
from parsim.errors import ScenarioError, alternatives
from parsim.model.config.families import FAMILIES
from parsim.model.graph.catalog import NETWORKS
from parsim.model.reader import load_model_catalog
from tests.parsim.scenario.messages.wrong_scenarios import changed, wrong


def of_models(word: str) -> str:
    names = (*load_model_catalog(), *NETWORKS)
    return alternatives(word, names, listing="parsim catalog models")


def of_systems(word: str) -> str:
    return alternatives(word, load_catalog().systems, listing="parsim catalog systems")


def of_devices(word: str) -> str:
    return alternatives(word, load_catalog().devices, listing="parsim catalog devices")


def of_software(word: str) -> str:
    return alternatives(word, sorted(software_catalog()), listing="parsim catalog software")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "name: gpt2",
            "name: gpt3-175",
            f"s.yaml:3:3 model.name model 'gpt3-175' is not in the catalog{of_models('gpt3-175')}",
        ),
        (
            "dgx-a100",
            "dgx-a10",
            f"s.yaml:5:3 cluster.system unknown system 'dgx-a10'{of_systems('dgx-a10')}",
        ),
        (
            "  nodes: 1",
            "  nodes: 1\n  device: a100-sxm-80",
            f"s.yaml:7:3 cluster.device unknown device 'a100-sxm-80'{of_devices('a100-sxm-80')}",
        ),
        (
            "plan:",
            "software: nemoo\nplan:",
            f"s.yaml:9:1 software 'nemoo' is unknown{of_software('nemoo')}",
        ),
        (
            "  nodes: 1",
            "  nodes: 1\n  devices_per_node: 9",
            "s.yaml:7:3 cluster.devices_per_node is 9, more than the 8 of a dgx-a100 node; "
            "allowed: 1 to 8",
        ),
        (
            "dgx-a100\n  nodes: 1",
            "cpu\n  nodes: 2",
            "s.yaml:6:3 cluster.nodes system cpu has no network, so nodes=2 cannot be joined; use "
            "nodes=1 or a system with a network",
        ),
        (
            "dgx-a100\n  nodes: 1",
            "cpu\n  nodes: 1\n  network: {latency: 1us}",
            "s.yaml:7:3 cluster.network system cpu has no network to change",
        ),
        (
            "name: gpt2",
            "seq_len: 128",
            "s.yaml:2:1 model needs 'name' (of the catalog), 'config' (a config.json), "
            "'file' (a graph) or 'family' "
            "(with all sizes inline)",
        ),
        (
            "name: gpt2",
            "name: gpt2\n  seq_len: 2048",
            "s.yaml:4:3 model seq_len=2048 is longer than the 1024 learned positions; use "
            "seq_len <= 1024",
        ),
        (
            "name: gpt2",
            "name: gpt2\n  num_key_value_heads: 5",
            "s.yaml:4:3 model num_key_value_heads=5 does not divide num_attention_heads=12",
        ),
        (
            "name: gpt2",
            "family: gpt3",
            "s.yaml:3:3 model.family 'gpt3' is unknown (did you mean 'gpt2'?); "
            "nearest of 29: gpt2, opt, gpt_oss, gpt_neox, phi3",
        ),
        (
            "name: gpt2",
            "family: gpt2\n  num_layers: 2\n  seq_len: 8",
            "s.yaml:2:1 model with family 'gpt2' also needs hidden_size, num_attention_heads, "
            "vocab_size",
        ),
        (
            "name: gpt2",
            "{family: gpt2, num_layers: 2, seq_len: 8, vocab_size: 9,\n"
            "  hidden_size: 10, num_attention_heads: 4}",
            "s.yaml:4:20 model num_attention_heads=4 does not divide hidden_size=10; give head_dim",
        ),
    ],
)
def test_names_and_models(tmp_path: Path, old: str, new: str, message: str) -> None:
    error = wrong(tmp_path, changed(old, new))
    assert str(error) == message
    assert type(error) is ScenarioError


def test_missing_config(tmp_path: Path) -> None:
    assert str(wrong(tmp_path, changed("name: gpt2", "config: x.json"))) == (
        "s.yaml:3:3 model.config x.json: no such file; give the path of a Hugging Face config.json"
    )


def test_config_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"model_type": "xlnet"}', encoding="utf-8")
    assert str(wrong(tmp_path, changed("name: gpt2", "config: x.json"))) == (
        's.yaml:3:3 model.config model_type="xlnet" is not supported; '
        f"supported: {', '.join(sorted(FAMILIES))}; of another family write the sizes into the "
        "model block, or `parsim profile` the module"
    )


def test_mistake_in_a_catalog_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("systems:\n  x: {form: dgx-a100}\n", encoding="utf-8")
    text = str(wrong(tmp_path, changed("  nodes: 1", "  nodes: 1\n  catalog: [mine.yaml]")))
    assert text.startswith(
        "s.yaml:7:3 cluster.catalog mine.yaml:2:7 systems.x.form unknown field 'form'"
    )
