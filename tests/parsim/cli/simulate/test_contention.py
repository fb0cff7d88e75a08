"""`--contention` of simulate and search: the document, the text, what-if, and the same bytes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands import GPT3, LLAMA, SMALL, Cli, settings

FLAG = "--contention"
FEW = settings(
    "cluster.nodes=16",
    "cluster.network.nodes_per_leaf=4",
    "plan.dp=2",
    "training.global_batch_size=64",
)
"""GPT-3 on 128 devices in leaf groups of 4 nodes, 32 micro-batches."""


def test_the_document_has_a_contention_object_where_asked(cli: Cli) -> None:
    plain = cli("simulate", GPT3, "--json", *FEW).document
    shared = cli("simulate", GPT3, "--json", FLAG, *FEW).document
    result = shared.pop("contention")
    # a run's steps are those on shared links
    whole, longer = plain.pop("training_run"), shared.pop("training_run")
    expected = whole["device_hours_h"] * result["slowdown"]
    assert longer["device_hours_h"] == pytest.approx(expected, rel=1e-6)
    assert shared == plain
    assert set(result) == {"step_time_s", "slowdown", "bottleneck", "classes"}
    assert result["slowdown"] == pytest.approx(result["step_time_s"] / plain["step_time_s"])
    assert {"link", "class", "saturated_s"} <= set(result["bottleneck"])
    assert {links["class"] for links in result["classes"]} >= {"nvlink", "nic"}
    for links in result["classes"]:
        assert set(links) == {"class", "busy_s", "saturated_s"}
        assert 0.0 <= links["saturated_s"] <= links["busy_s"] <= result["step_time_s"]


def test_the_text_says_both_times_and_the_bottleneck(cli: Cli) -> None:
    text = cli("simulate", LLAMA, FLAG).out
    assert "alone (tier B)" in text
    assert "on shared links" in text
    assert "bottleneck" in text
    assert "nvlink" in text


def test_the_same_input_gives_the_same_bytes(cli: Cli) -> None:
    assert cli("simulate", SMALL, FLAG).out == cli("simulate", SMALL, FLAG).out


def test_a_failed_interface_slows_the_step_and_is_named_beside(cli: Cli) -> None:
    words = (*FEW, "--set", "cluster.failed=[nic:0.3]")
    document = cli("simulate", GPT3, FLAG, "--json", *words).document["contention"]
    assert document["slowdown"] > 1.01
    assert document["bottleneck"]["class"] in ("nic", "pcie")
    assert document["bottleneck"]["saturated_s"] > 0.0


def test_a_thin_spine_is_the_bottleneck(cli: Cli) -> None:
    """Tier B's messages know of it, so that both tiers' steps are longer than with a full one."""
    words = (*FEW, "--set", "cluster.network.oversubscription=8")
    usual = cli("simulate", GPT3, FLAG, "--json", *FEW).document
    thin = cli("simulate", GPT3, FLAG, "--json", *words).document
    assert thin["contention"]["step_time_s"] > 1.002 * usual["contention"]["step_time_s"]
    assert thin["step_time_s"] > 1.002 * usual["step_time_s"]
    assert thin["contention"]["bottleneck"]["class"] == "spine"
    assert thin["contention"]["bottleneck"]["saturated_s"] > 0.0


def test_search_runs_its_best_plans_on_shared_links(cli: Cli) -> None:
    words = ("search", LLAMA, "--top", "6", "--json")
    plain, shared = cli(*words).document, cli(*words, FLAG)
    document = shared.document.pop("contention")
    assert [entry["place"] for entry in document["plans"]] == [1, 2, 3, 4, 5]
    assert sorted(document["order"]) == [1, 2, 3, 4, 5]
    assert document["order_changes"] == (document["order"] != sorted(document["order"]))
    assert ("contention changes the order" in shared.err) == document["order_changes"]
    assert plain["plans"] == shared.document["plans"]


def test_the_trace_has_a_counter_for_each_class_of_links(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    assert cli("timeline", LLAMA, "-o", path, FLAG).code == 0
    events = json.loads(path.read_text("utf-8"))["traceEvents"]
    counters = {event["name"] for event in events if event["ph"] == "C"}
    document = cli("simulate", LLAMA, FLAG, "--json").document["contention"]
    assert counters == {links["class"] for links in document["classes"]}
    assert all(0 <= e["args"]["percent"] <= 100 for e in events if e["ph"] == "C")


def test_a_picture_of_contention_is_refused(cli: Cli, tmp_path: Path) -> None:
    done = cli("timeline", LLAMA, "-o", tmp_path / "x.png", FLAG)
    assert done.code == 2
    assert "write a .json" in done.err
