"""What the model block makes: of the catalog, of a config, or written out."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest

from parsim.errors import ScenarioError
from parsim.model.config.file import read_config
from parsim.model.huggingface import spec_from_config
from parsim.model.reader import model_spec
from parsim.model.transformer import TransformerSpec
from parsim.scenario.schema.model import ModelBlock
from tests.parsim.scenario.blocks.written import load

CONFIGS = Path(__file__).parents[2] / "model" / "configs"


def test_fields_of_a_catalog_model_can_be_overridden(tmp_path: Path) -> None:
    spec = load(tmp_path, model={"name": "gpt2", "seq_len": 128, "dropout": False}).spec
    assert (spec.seq_len, spec.positions, spec.dropout) == (128, 1024, False)


def test_the_model_block_has_every_field_of_a_spec() -> None:
    names = {field.name for field in fields(TransformerSpec)}
    assert set(ModelBlock.model_fields) == names | {
        "config",
        "family",
        "file",
        "image_size",
        "num_classes",
    }


def test_another_number_of_heads_has_as_many_keys_and_values_where_each_had_its_own(
    tmp_path: Path,
) -> None:
    alone = load(tmp_path, model={"name": "gpt2", "num_attention_heads": 24})
    assert alone.job.model.attention is not None
    assert (alone.job.model.attention.heads, alone.job.model.attention.kv_heads) == (24, 24)
    shared = load(tmp_path, model={"name": "llama3-8b", "num_attention_heads": 64})
    assert shared.job.model.attention is not None
    assert shared.job.model.attention.kv_heads == 8
    assert "num_key_value_heads=8" in " ".join(shared.notes)


@pytest.mark.parametrize(
    ("name", "key", "value", "needed"),
    [
        ("gpt2", "experts_per_token", 2, "num_experts"),
        ("gpt2", "shared_expert_ffn_hidden_size", 512, "num_experts"),
        ("llama3-8b", "value_head_dim", 64, "kv_lora_rank"),
        ("llama3-8b", "q_lora_rank", 64, "kv_lora_rank"),
        ("llama3-8b", "full_every", 2, "window"),
        ("gpt2", "rope_factor", 8.0, "rope_scaling"),
        ("llama3-8b", "mamba_heads", 8, "layer_pattern"),
        ("mixtral-8x7b", "groups_per_token", 1, None),
        ("mistral-7b", "full_every", 2, None),
        ("qwen3-30b-a3b", "num_experts", 0, None),
    ],
)
def test_a_key_without_effect_names_the_one_it_needs(
    tmp_path: Path, name: str, key: str, value: float, needed: str | None
) -> None:
    if needed is None:
        load(tmp_path, model={"name": name, key: value})
        return
    with pytest.raises(ScenarioError, match=rf"model\.{key} has no effect without {needed}"):
        load(tmp_path, model={"name": name, key: value})


def test_widths_that_stay_are_noted(tmp_path: Path) -> None:
    scenario = load(tmp_path, model={"name": "gpt2", "hidden_size": 1536})
    assert scenario.notes == (
        "model gpt2 with another hidden_size; as before: ffn_hidden_size=3072, head_dim=64, "
        "num_attention_heads=12",
    )


def test_a_config_is_found_beside_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    text = (CONFIGS / "llama3-8b.json").read_text(encoding="utf-8")
    (tmp_path / "models" / "mine.json").write_text(text, encoding="utf-8")
    spec = load(tmp_path, model={"config": "models/mine.json", "seq_len": 2048}).spec
    config = read_config(CONFIGS / "llama3-8b.json")
    assert spec == spec_from_config(config, name="mine", seq_len=2048)


def test_a_model_can_be_named_by_its_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relative to the scenario; in an override, to where one is."""
    (tmp_path / "models" / "mine").mkdir(parents=True)
    text = (CONFIGS / "llama3-8b.json").read_text(encoding="utf-8")
    (tmp_path / "models" / "mine" / "config.json").write_text(text, encoding="utf-8")
    expected = spec_from_config(read_config(CONFIGS / "llama3-8b.json"), name="mine", seq_len=2048)
    for name in ("models/mine/config.json", "models/mine"):
        assert load(tmp_path, model={"name": name, "seq_len": 2048}).spec == expected
    monkeypatch.chdir(tmp_path / "models")
    for key in ("model.name", "model.config"):
        model = {"name": "gpt2", "seq_len": 2048} if key == "model.name" else {"seq_len": 2048}
        assert load(tmp_path, {key: "mine/config.json"}, model=model).spec == expected
    with pytest.raises(ScenarioError, match=r"model\.name .*no\.json: no such file"):
        load(tmp_path, model={"name": "no.json"})


def test_a_config_keeps_its_notes_and_takes_a_name(tmp_path: Path) -> None:
    config = json.loads((CONFIGS / "qwen2-7b.json").read_text())
    changed = config | {"use_sliding_window": True, "sliding_window": 4096}
    (tmp_path / "windowed.json").write_text(json.dumps(changed))
    named = {"config": str(tmp_path / "windowed.json"), "name": "m", "seq_len": 8192}
    scenario = load(tmp_path, model=named)
    assert scenario.spec.name == "m"
    assert scenario.notes == (
        "sliding_window=4096 is not modelled: attention is costed over all 8192 tokens of a "
        "sequence",
    )


def test_an_inline_model_fills_in_like_the_catalog(tmp_path: Path) -> None:
    sizes = {
        "num_layers": 12,
        "hidden_size": 768,
        "num_attention_heads": 12,
        "vocab_size": 50257,
        "seq_len": 1024,
        "dropout": True,
    }
    spec = load(tmp_path, model={"family": "gpt2", "name": "gpt2", **sizes}).spec
    assert spec == model_spec("gpt2")


def test_an_inline_llama_has_the_switches_of_its_family(tmp_path: Path) -> None:
    sizes = {
        "num_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 8,
        "vocab_size": 100,
        "seq_len": 32,
        "num_key_value_heads": 4,
        "head_dim": 16,
    }
    spec = load(tmp_path, model={"family": "llama", **sizes}).spec
    assert (spec.name, spec.rope, spec.gated_mlp, spec.positions) == ("s", True, True, 0)
    assert (spec.head_dim, spec.num_key_value_heads, spec.ffn_hidden_size) == (16, 4, 256)
