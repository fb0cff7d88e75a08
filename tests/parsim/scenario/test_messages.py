"""Every way to get a scenario file wrong, and the message it earns, to the letter."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsim.cluster.reader import load_catalog
from parsim.cost.software import software_catalog
from parsim.errors import InputError, PlanError, ScenarioError, alternatives
from parsim.model.config.families import FAMILIES
from parsim.model.graph.catalog import NETWORKS
from parsim.model.reader import load_model_catalog
from parsim.scenario import load_scenario
from parsim.scenario.schema.file import BLOCKS

# Line numbers in the messages below count in this text.
SCENARIO = """\
description: eight A100s
model:
  name: gpt2
cluster:
  system: dgx-a100
  nodes: 1
training:
  global_batch_size: 16
plan:
  tp: 4
search:
"""
SIZES = "allowed units are B, KB, MB, GB, TB, KiB, MiB, GiB, TiB; e.g. '80GiB'"
BUCKETS = SIZES.replace("80GiB", "25MiB")
NO_KEY = (
    "no 'key: value' can stand here; indent the keys of a block alike, write each on a line of its "
    "own, and a space behind its ':'"
)
START = "a scenario has the blocks model, cluster, training, and plan or search"
BLOCK = "must be a block of 'key: value' lines"
NEAREST = (
    "nearest of 23: 1f1b, eager_1f1b, interleaved_1f1b, zb_h1, zb_1p (all of them: parsim catalog "
    "schedules)"
)


def keys(*path: str) -> str:
    return ", ".join(BLOCKS[path].model_fields)


def of_keys(word: str, *path: str) -> str:
    return alternatives(word, BLOCKS[path].model_fields)


def of_models(word: str) -> str:
    names = (*load_model_catalog(), *NETWORKS)
    return alternatives(word, names, listing="parsim catalog models")


def of_systems(word: str) -> str:
    return alternatives(word, load_catalog().systems, listing="parsim catalog systems")


def of_devices(word: str) -> str:
    return alternatives(word, load_catalog().devices, listing="parsim catalog devices")


def of_software(word: str) -> str:
    return alternatives(word, sorted(software_catalog()), listing="parsim catalog software")


def wrong(
    folder: Path, content: str | bytes, overrides: dict[str, str] | None = None
) -> InputError:
    """The error of a file, its folder cut off."""
    path = folder / "s.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError) as caught:
        load_scenario(path, overrides or {})
    assert caught.value.exit_code == 2
    return type(caught.value)(str(caught.value).replace(f"{folder}/", ""))


def changed(old: str, new: str) -> str:
    assert SCENARIO.count(old) == 1
    return SCENARIO.replace(old, new)


def test_the_scenario_is_right_before_it_is_made_wrong(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(SCENARIO, encoding="utf-8")
    assert load_scenario(tmp_path / "s.yaml").plan is not None


# ------------------------------------------------------------------------------------- the file


def test_missing_file(tmp_path: Path) -> None:
    (tmp_path / "gpt3-175b-dgx-a100.yaml").touch()
    (tmp_path / "notes.txt").touch()
    with pytest.raises(ScenarioError) as caught:
        load_scenario(tmp_path / "gpt3-175b-dgx-h100.yaml")
    assert str(caught.value) == (
        f"{tmp_path}/gpt3-175b-dgx-h100.yaml: no such file "
        f"(did you mean 'gpt3-175b-dgx-a100.yaml'?)"
    )


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(tmp_path / "nowhere" / "s.yaml")
    assert str(caught.value) == f"{tmp_path}/nowhere/s.yaml: no such file"


@pytest.mark.parametrize(("inside", "text"), [((), ""), (("b.yaml", "a.yml"), ": a.yml, b.yaml")])
def test_folder_instead_of_a_file(tmp_path: Path, inside: tuple[str, ...], text: str) -> None:
    for name in inside:
        (tmp_path / name).touch()
    with pytest.raises(ScenarioError) as caught:
        load_scenario(tmp_path)
    assert str(caught.value) == f"{tmp_path}: is a folder; give one file{text}"


def test_path_through_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ScenarioError) as caught:
        load_scenario(tmp_path / "file" / "s.yaml")
    assert str(caught.value) == f"{tmp_path}/file/s.yaml: cannot be read: Not a directory"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", f"s.yaml is empty; {START}"),
        ("# nothing\n", f"s.yaml is empty; {START}"),
        (
            "- 1\n",
            f"s.yaml:1:1 must be a mapping with the blocks {START.partition('blocks ')[2]}, "
            "not a list",
        ),
        (
            "hello\n",
            f"s.yaml:1:1 must be a mapping with the blocks "
            f"{START.partition('blocks ')[2]}, not 'hello'",
        ),
        (b"\xff\xfe\x00", "s.yaml: is not UTF-8 text: byte 0xff at 0"),
        ("a: b: c\n", f"s.yaml:1:5 is not YAML: {NO_KEY}"),
        ("a:\n  b: 1\n   c: 2\n", f"s.yaml:3:5 is not YAML: {NO_KEY}"),
        ("a:\n  b:1\n  c: 2\n", f"s.yaml:3:4 is not YAML: {NO_KEY}"),
        (
            "a:\n  b: 1\n c: 2\n",
            "s.yaml:3:2 is not YAML: this line is indented otherwise than the block around it",
        ),
        (
            "\tmodel: 1\n",
            "s.yaml:1:1 is not YAML: a tab stands here; indent with spaces",
        ),
        ("[" * 5000, "s.yaml is not YAML that can be read: brackets are nested too deeply"),
        (
            "a: &x [1]\nb: *x\n",
            "s.yaml:1:4 b aliases (*name) are not supported; write the value out",
        ),
        ("a: !foo 3\n", "s.yaml:1:4 a '3' cannot be read as !foo"),
        ("model:\n  ? [1]\n  : 2\n", "s.yaml:2:5 model a key must be one word, not a sequence"),
    ],
)
def test_not_a_scenario_at_all(tmp_path: Path, content: str | bytes, message: str) -> None:
    error = wrong(tmp_path, content)
    assert (type(error), str(error)) == (ScenarioError, message)


# ------------------------------------------------------------------------------- keys and values


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        # keys
        (
            "  tp: 4",
            "  microbatch_sizes: 4",
            "s.yaml:10:3 plan.microbatch_sizes is an unknown key"
            + of_keys("microbatch_sizes", "plan"),
        ),
        (
            "  nodes: 1",
            "  nods: 1",
            "s.yaml:4:1 cluster.nodes is missing; e.g. 'nodes: 1'\n"
            f"s.yaml:6:3 cluster.nods is an unknown key (did you mean 'nodes'?); "
            f"allowed: {keys('cluster')}, groups",
        ),
        (
            "plan:",
            "tp: 4\nplan:",
            f"s.yaml:9:1 tp is an unknown key (did you mean 'plan.tp'?); allowed: {keys()}",
        ),
        (
            "  name: gpt2",
            "  name: gpt2\n  layers: 3",
            f"s.yaml:4:3 model.layers is an unknown key{of_keys('layers', 'model')}",
        ),
        (
            "  tp: 4",
            "  tp: 4\n  pp: 1\n  tp: 2",
            "s.yaml:12:3 plan.tp is written twice; first on line 10",
        ),
        (
            "training:\n  global_batch_size: 16\n",
            "",
            "s.yaml:1:1 training is missing; e.g. 'training: {global_batch_size: 1536}'",
        ),
        (
            "  global_batch_size: 16",
            "  # later",
            "s.yaml:7:1 training.global_batch_size is missing; give the sequences of one step, "
            "e.g. 1536",
        ),
        (
            "plan:\n  tp: 4\nsearch:\n",
            "",
            "s.yaml:1:1 has no plan block and no search block; add 'search: {}' to search every "
            "legal plan",
        ),
        # kinds
        ("  tp: 4", "  tp: '4'", "s.yaml:10:3 plan.tp must be a whole number, got '4'"),
        ("  tp: 4", "  tp: 4.0", "s.yaml:10:3 plan.tp must be a whole number, got 4.0; write 4"),
        ("  tp: 4", "  tp: true", "s.yaml:10:3 plan.tp must be a whole number, got true"),
        ("  tp: 4", "  tp:", "s.yaml:10:3 plan.tp must be a whole number, got null"),
        ("  tp: 4", "  tp: [4]", "s.yaml:10:3 plan.tp must be a whole number, got a list"),
        ("  tp: 4", "  tp: 0", "s.yaml:10:3 plan.tp must be at least 1, got 0"),
        (
            "  nodes: 1",
            "  nodes: 1000000000000",
            "s.yaml:6:3 cluster.nodes must be at most 1000000000, got 1000000000000",
        ),
        (
            "  tp: 4",
            "  sequence_parallel: yes",
            "s.yaml:10:3 plan.sequence_parallel must be true or false, got 'yes'",
        ),
        (
            "  tp: 4",
            "  sequence_parallel: 1",
            "s.yaml:10:3 plan.sequence_parallel must be true or false, got 1",
        ),
        ("  name: gpt2", "  name: 2", "s.yaml:3:3 model.name must be text, got 2"),
        (
            "  name: gpt2",
            "  name: ''",
            "s.yaml:3:3 model.name must be a text that is not empty, got ''",
        ),
        (
            "model:\n  name: gpt2",
            "model: gpt2",
            f"s.yaml:2:1 model {BLOCK}, got 'gpt2'; e.g. 'model: {{name: gpt3-175b}}'",
        ),
        ("plan:\n  tp: 4", "plan: [tp, 4]", f"s.yaml:9:1 plan {BLOCK}, got a list"),
        ("  tp: 4", "  stage_layers: 3", "s.yaml:10:3 plan.stage_layers must be a list, got 3"),
        (
            "  tp: 4",
            "  stage_layers: [6,\n    x]",
            "s.yaml:11:5 plan.stage_layers.1 must be a whole number, got 'x'",
        ),
        (
            "  tp: 4",
            "  recompute: ful",
            "s.yaml:10:3 plan.recompute 'ful' is unknown (did you mean 'full'?); "
            "allowed: none, selective, full",
        ),
        (
            "  tp: 4",
            "  recompute: true",
            "s.yaml:10:3 plan.recompute true is unknown; allowed: none, selective, full",
        ),
        # units
        (
            "  tp: 4",
            "  bucket_size: 25000000",
            "s.yaml:10:3 plan.bucket_size bare number 25000000; write it with a unit, "
            "e.g. '25000000B'",
        ),
        (
            "  tp: 4",
            "  bucket_size: 25ms",
            f"s.yaml:10:3 plan.bucket_size '25ms' is not a size: {BUCKETS}",
        ),
        (
            "  tp: 4",
            "  bucket_size: 25mb",
            "s.yaml:10:3 plan.bucket_size '25mb' is not a size (did you mean 'MB'?): " + BUCKETS,
        ),
        ("  tp: 4", "  bucket_size: 0MB", "s.yaml:10:3 plan.bucket_size '0MB' must be above 0"),
        (
            "  nodes: 1",
            "  nodes: 1\n  network:\n    latency: 3",
            "s.yaml:8:5 cluster.network.latency bare number 3; write it with a unit, e.g. '3us'",
        ),
        (
            "  nodes: 1",
            "  nodes: 1\n  network: {oversubscription: 0.5}",
            "s.yaml:7:13 cluster.network.oversubscription must be at least 1, got 0.5",
        ),
        (
            "  nodes: 1",
            "  nodes: 1\n  intra: {efficiency: .nan}",
            "s.yaml:7:11 cluster.intra.efficiency must be a finite number, got nan",
        ),
        (
            "  nodes: 1",
            "  nodes: 1\n  intra: {efficiency: 0}",
            "s.yaml:7:11 cluster.intra.efficiency must be above 0, got 0",
        ),
        (
            "  nodes: 1",
            "  nodes: 1\n  intra: {efficiency: high}",
            "s.yaml:7:11 cluster.intra.efficiency must be a plain number, got 'high'",
        ),
        # the search
        (
            "search:",
            "search: {tp: []}",
            "s.yaml:11:10 search.tp must be a list of at least one value, got an empty list",
        ),
        ("search:", "search: {tp: }", "s.yaml:11:10 search.tp must be a list, got null"),
        (
            "search:",
            "search: {v: [1, x]}",
            "s.yaml:11:17 search.v.1 must be a whole number, got 'x'",
        ),
        (
            "search:",
            "search: {schedule: 1f1}",
            "s.yaml:11:10 search.schedule '1f1' is unknown (did you mean '1f1b'?); "
            + NEAREST.replace("23", "20"),
        ),
        (
            "search:",
            "search: {zero_stage: 4}",
            "s.yaml:11:10 search.zero_stage must be at most 3, got 4",
        ),
        (
            "search:",
            "search: {memory_margin: 1.5}",
            "s.yaml:11:10 search.memory_margin must be below 1, got 1.5",
        ),
    ],
)
def test_keys_and_values(tmp_path: Path, old: str, new: str, message: str) -> None:
    error = wrong(tmp_path, changed(old, new))
    assert str(error) == message
    assert type(error) is ScenarioError


def test_every_mistake_is_told_at_once(tmp_path: Path) -> None:
    text = changed("  tp: 4", "  tp: four\n  pp: 0").replace("nodes: 1", "nodes: -1")
    assert str(wrong(tmp_path, text)) == (
        "s.yaml:6:3 cluster.nodes must be at least 1, got -1\n"
        "s.yaml:10:3 plan.tp must be a whole number, got 'four'\n"
        "s.yaml:11:3 plan.pp must be at least 1, got 0"
    )


# ------------------------------------------------------------------------------ names and models


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


# -------------------------------------------------------------------------------------- the plan


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "  tp: 4",
            "  tp: 8",
            "s.yaml:10:3 plan tp=8 does not divide num_attention_heads=12; "
            "allowed: 1, 2, 3, 4, 6, 12",
        ),
        (
            "  tp: 4",
            "  tp: 4\n  dp: 4",
            "s.yaml:9:1 plan world size mismatch: pp=1 x dp=4 x cp=1 x tp=4 = 16, but the "
            "cluster has "
            "8 devices; use dp=2",
        ),
        (
            "  tp: 4",
            "  tp: 3",
            "s.yaml:9:1 plan world size mismatch: pp=1 x dp=2 x cp=1 x tp=3 = 6, but the "
            "cluster has "
            "8 devices; pp x cp x tp = 3 must divide 8",
        ),
        (
            "nodes: 1",
            "nodes: 2\nplan: {pp: 16}",
            "s.yaml:7:1 plan more stages than layers: pp=16 x v=1 = 16 stages for 12 layers, "
            "embedding, head; use pp x v <= 14",
        ),
        (
            "global_batch_size: 16",
            "global_batch_size: 15",
            "s.yaml:8:3 training global_batch_size=15 is not divisible by microbatch_size=1 x dp=2 "
            "= 2; use a multiple of 2, or a microbatch_size x dp that divides 15",
        ),
        (
            "  tp: 4",
            "  num_microbatches: 3",
            "s.yaml:10:3 plan num_microbatches=3 x microbatch_size=1 x dp=8 = 24, but "
            "global_batch_size=16; use num_microbatches=2",
        ),
        (
            "  tp: 4",
            "  pp: 8\n  schedule: interleaved_1f1b\n  v: 2",
            "s.yaml:9:1 plan more stages than layers: pp=8 x v=2 = 16 stages for 12 layers, "
            "embedding, head; use pp x v <= 14",
        ),
        (
            "  tp: 4",
            "  pp: 2\n  v: 2\n  microbatch_size: 4\n  schedule: interleaved_1f1b",
            "s.yaml:13:3 plan schedule='interleaved_1f1b': pp=2 does not divide "
            "num_microbatches=1; "
            "allowed: multiples of 2",
        ),
        (
            "  tp: 4",
            "  schedule: 1f1",
            "s.yaml:10:3 plan schedule='1f1' is unknown (did you mean '1f1b'?); " + NEAREST,
        ),
        (
            "global_batch_size: 16",
            "global_batch_size: 16\n  precision: fp8",
            "s.yaml:9:3 training precision='fp8' has no peak on device a100-sxm-80gb; "
            "allowed: fp32, tf32, bf16, fp16, bf16_amp, fp16_amp",
        ),
        (
            "  tp: 4",
            "  zero_stage: 4\n  tp: 2",
            "s.yaml:10:3 plan zero_stage=4 is unknown; allowed: 0, 1, 2, 3",
        ),
        (
            "  tp: 4",
            "  dp_shard: 8",
            "s.yaml:9:1 plan zero_stage=0 shards nothing, but dp_shard=8; use dp_replicate=8 or "
            "zero_stage 1, 2 or 3",
        ),
    ],
)
def test_plans_that_are_not_legal(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = changed(old, new)
    if "plan: {" in new:  # the short plan stands for the default one
        text = text.replace("plan:\n  tp: 4\n", "")
    error = wrong(tmp_path, text)
    assert str(error) == message
    assert type(error) is PlanError


def test_two_ways_to_write_replicas(tmp_path: Path) -> None:
    error = wrong(tmp_path, changed("  tp: 4", "  dp: 2\n  dp_shard: 4"))
    assert (type(error), str(error)) == (
        ScenarioError,
        "s.yaml:10:3 plan.dp cannot stand beside dp_shard; give dp, or dp_replicate and dp_shard "
        "(--set plan.dp=null takes dp out)",
    )


def test_precision_of_a_search_that_the_device_lacks(tmp_path: Path) -> None:
    text = changed("plan:\n  tp: 4\n", "").replace("dgx-a100", "dgx-1v")
    error = wrong(tmp_path, text.replace("batch_size: 16", "batch_size: 16\n  precision: bf16"))
    assert (type(error), str(error)) == (
        PlanError,
        "s.yaml:9:3 training precision='bf16' has no peak on device v100-sxm-32gb; "
        "allowed: fp32, fp16, fp16_amp",
    )


def test_what_the_plans_of_a_search_share(tmp_path: Path) -> None:
    text = changed("search:", "search:\n  common:\n    reduce_precision: fp16")
    error = wrong(tmp_path, text)
    assert (type(error), str(error)) == (
        PlanError,
        "s.yaml:13:5 search.common reduce_precision='fp16' is unknown; allowed: fp32, same",
    )


# --------------------------------------------------------------------------------- the overrides


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "plan.tp",
            "8",
            "--set plan.tp=8 plan tp=8 does not divide num_attention_heads=12; "
            "allowed: 1, 2, 3, 4, 6, 12",
        ),
        ("plan.tp", "x", "--set plan.tp=x plan.tp must be a whole number, got 'x'"),
        (
            "plan.tpp",
            "2",
            f"--set plan.tpp=2 plan.tpp is an unknown key{of_keys('tpp', 'plan')}",
        ),
        (
            "plan.tp",
            "3",
            "s.yaml:9:1 plan world size mismatch: pp=1 x dp=2 x cp=1 x tp=3 = 6, but the "
            "cluster has "
            "8 devices; pp x cp x tp = 3 must divide 8 (with --set plan.tp=3)",
        ),
        ("search.v", "[1, 0]", "--set search.v=[1, 0] search.v.1 must be at least 1, got 0"),
        ("search", "{v: 0}", "--set search={v: 0} search.v must be at least 1, got 0"),
        (
            "plan.tp",
            "[1",
            "--set plan.tp=[1 value:1:3 is not YAML: expected ',' or ']', but got '<stream end>'",
        ),
        (
            "plan.tp",
            "{a: 1, a: 2}",
            "--set plan.tp={a: 1, a: 2} value:1:8 a is written twice; first on line 1",
        ),
        (
            "model.name.x",
            "1",
            "--set model.name.x=1 model.name is 'gpt2', so nothing in it can be set",
        ),
        (
            "cluster.failed",
            "nic:0.0",
            "--set cluster.failed=nic:0.0 cluster.failed must be a list, got 'nic:0.0'; e.g. "
            "'failed: [nic:0.0, gpu:3]'",
        ),
        ("plan.", "1", "--set plan.=1 needs a key such as plan.tp in front of the '='"),
        (
            "training",
            "null",
            "s.yaml:1:1 training is missing; e.g. 'training: {global_batch_size: 1536}'",
        ),
        (
            "cluster.network.nic_bandwidth",
            "400",
            "--set cluster.network.nic_bandwidth=400 cluster.network.nic_bandwidth bare number "
            "400; write it with a unit, e.g. '400Gb/s'",
        ),
        (
            "plan.bucket_size",
            "25",
            "--set plan.bucket_size=25 plan.bucket_size bare number 25; write it with a unit, "
            "e.g. '25MiB'",
        ),
        (
            "cluster.network.latency",
            "5",
            "--set cluster.network.latency=5 cluster.network.latency bare number 5; write it "
            "with a "
            "unit, e.g. '5us'",
        ),
        *(
            (key, value, f"--set {key}={value} {key} {words}, without separators between digits")
            for key, value, words in (
                ("plan.tp", "1,024", "must be a whole number, got '1,024'; write 1024"),
                ("plan.bucket_size", "1,024MiB", "'1,024MiB' is not a size; write 1024MiB"),
                ("training.tokens", "3,000", "'3,000' is not a number of tokens; write 3000"),
            )
        ),
        ("search.tp", "0", "--set search.tp=0 search.tp must be at least 1, got 0"),
        ("search.tp", "[2, 0]", "--set search.tp=[2, 0] search.tp.1 must be at least 1, got 0"),
        (
            "search.tp",
            "<= 0",
            "--set search.tp=<= 0 search.tp '<= 0' leaves no value: they begin at 1",
        ),
        (
            "search.tp",
            ">= 4 and <= 2",
            "--set search.tp=>= 4 and <= 2 search.tp '>= 4 and <= 2' leaves no value: 4 is above 2",
        ),
    ],
)
def test_overrides(tmp_path: Path, name: str, value: str, message: str) -> None:
    assert str(wrong(tmp_path, SCENARIO, {name: value})) == message


@pytest.mark.parametrize("name", ["tensor_parallel", "tensor_model_parallel_size"])
def test_names_of_other_frameworks(tmp_path: Path, name: str) -> None:
    message = str(wrong(tmp_path, SCENARIO, {f"search.{name}": "2"}))
    assert f"search.{name} is an unknown key (did you mean 'tp'?)" in message


def test_a_key_that_is_taken_away_must_be_one(tmp_path: Path) -> None:
    message = str(wrong(tmp_path, SCENARIO, {"plan.tpp": "null"}))
    assert message.startswith("--set plan.tpp=null plan.tpp is an unknown key (did you mean 'tp'?)")
    (tmp_path / "s.yaml").write_text(SCENARIO, encoding="utf-8")
    assert load_scenario(tmp_path / "s.yaml", {"plan.pp": None, "search.v": "null"}).plan
