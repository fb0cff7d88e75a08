"""Families that are built as a described one is, but for what their notes say.

Files in `kin/` have what parsim reads of each published `config.json`. Counts are those of the
model classes of transformers 5.24 built from the same files, tied tables once.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from parsim.errors import ModelError
from parsim.model.config.families import FAMILIES, unlike_note
from parsim.model.config.file import read_config
from parsim.model.huggingface import notes_from_config, spec_from_config
from parsim.model.reader import catalog_note, model_spec
from parsim.model.transformer import build_transformer

FILES = sorted((Path(__file__).parent / "kin").glob("*.json"))

COUNTS = {
    "phi-3-mini": 3_821_079_552,
    "phi-4": 14_659_507_200,
    "gemma-7b": 8_537_680_896,
    "granite-3.1-8b": 8_170_848_256,
    "seed-oss-36b": 36_151_104_512,
    "smollm3-3b": 3_075_098_624,
    "starcoder2-7b": 7_173_923_840,
    "stablelm-2-1.6b": 1_644_515_328,
    "nemotron-4-15b": 15_628_775_424,
    "gpt-neox-20b": 20_554_567_680,
    "opt-1.3b": 1_315_758_080,
    "bloom": 176_247_271_424,
    "roberta-large": 355_412_057,
    "gemma2-9b": 9_241_705_984,
    "gemma2-27b": 27_227_128_320,
    "gemma3-12b": 11_766_034_176,
    "gemma3-27b": 27_009_346_304,
    "glm4-9b": 9_400_279_040,
    "glm-4.5-air": 106_852_245_504,
    "glm-4.5": 352_797_814_784,
    "llama-4-scout": 107_769_861_120,
    "llama-4-maverick": 400_711_848_960,
    "mistral-small-3.1": 23_572_403_200,
    "deepseek-v2-lite": 15_706_484_224,
    "moonlight-16b-a3b": 15_960_108_544,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-14b": 14_768_307_200,
    "llama3.2-1b": 1_235_814_400,
    "llama3.2-3b": 3_212_749_824,
    "mistral-nemo-12b": 12_247_782_400,
    "mistral-large-2": 122_610_069_504,
}


@pytest.mark.parametrize(("name", "parameters"), COUNTS.items())
def test_a_catalog_model_has_the_published_count(name: str, parameters: int) -> None:
    assert build_transformer(model_spec(name)).parameters == parameters


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_published_file_is_the_model_of_the_catalog(file: Path) -> None:
    known = model_spec(file.stem)
    assert spec_from_config(read_config(file), name=file.stem, seq_len=known.seq_len) == known


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_what_a_family_computes_otherwise_is_said_of_file_and_name(file: Path) -> None:
    config = read_config(file)
    family = config.get("text_config", config)["model_type"]
    assert bool(FAMILIES[family].unlike) == (unlike_note(family) in notes_from_config(config))
    assert catalog_note(file.stem) == unlike_note(family)


def test_the_text_part_of_a_model_that_sees_images_is_said() -> None:
    config = read_config(FILES[0].with_name("llama-4-scout.json"))
    assert "llama4: its text part alone is costed" in notes_from_config(config)


def test_a_model_of_several_parts_without_a_known_text_part_is_refused() -> None:
    config = {"model_type": "images", "text_config": {"model_type": "unheard-of"}}
    with pytest.raises(ModelError, match='model_type="images" is not supported'):
        spec_from_config(config, name="test")


def test_a_table_of_positions_has_rows_that_no_token_has() -> None:
    """RoBERTa's table is two rows longer than its sequence, and counts them; OPT's adds them."""
    roberta, opt = (
        spec_from_config(read_config(FILES[0].with_name(f"{name}.json")), name=name)
        for name in ("roberta-large", "opt-1.3b")
    )
    assert (roberta.seq_len, roberta.positions) == (512, 514)
    assert (opt.seq_len, opt.positions) == (2048, 2050)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("opt-1.3b", {"do_layer_norm_before": False}),
        ("opt-1.3b", {"word_embed_proj_dim": 512}),
        ("stablelm-2-1.6b", {"use_parallel_residual": True}),
        ("stablelm-2-1.6b", {"qk_layernorm": True}),
        ("bloom", {"apply_residual_connection_post_layernorm": True}),
    ],
)
def test_what_changes_the_sizes_otherwise_is_refused(name: str, changes: dict[str, object]) -> None:
    config = read_config(FILES[0].with_name(f"{name}.json")) | changes
    with pytest.raises(ModelError, match=f"{next(iter(changes))}=.* is not supported"):
        spec_from_config(config, name=name)


def test_sizes_that_published_files_leave_out_are_the_familys() -> None:
    """The text part of google/gemma-3-4b-pt, whose file says nothing of words and heads."""
    text = {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
    }
    config = {"model_type": "gemma3", "text_config": text}
    read = spec_from_config(config, name="gemma3-4b", seq_len=8192)
    assert build_transformer(read).parameters == 3_880_263_168
    assert [layer for layer in range(12) if not read.has_window(layer)] == [5, 11]
    kinds = ["sliding_attention"] * 5 + ["full_attention"]
    stated = {"model_type": "gemma3", "text_config": text | {"layer_types": kinds * 5 + kinds[:4]}}
    assert spec_from_config(stated, name="gemma3-4b", seq_len=8192) == read
    uneven = {"model_type": "gemma3", "text_config": text | {"layer_types": kinds + kinds[3:]}}
    with pytest.raises(ModelError, match="layer_types in a gemma3_text config must have"):
        spec_from_config(uneven, name="gemma3-4b", seq_len=8192)
