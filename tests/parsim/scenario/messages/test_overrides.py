"""What is told of overrides that are wrong, character by character."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsim.scenario import load_scenario
from tests.parsim.scenario.messages.wrong_scenarios import SCENARIO, of_keys, wrong


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
