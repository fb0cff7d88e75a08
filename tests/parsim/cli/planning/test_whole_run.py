"""`simulate` and `search` of whole runs: days, dollars, cluster sizes, limits."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from parsim.report.text.planning.choices import MOST_OF_FRONT
from parsim.scenario import load_scenario
from tests.commands import GPT3, LLAMA, ROOT, SMALL, Cli, settings

NARROW = ("--set", "search={tp: [1, 8], pp: 1, microbatch_size: 1, cp: 1}", "--set", "plan=null")
RUN = ("--set", "training.tokens=1T", *NARROW)


def test_simulate_prints_the_whole_run(cli: Cli) -> None:
    done = cli("simulate", GPT3, "--price", "2.5")
    assert (done.code, done.err) == (0, "")
    run = done.out[done.out.index("the whole run") :]
    assert run.startswith("the whole run: 300B tokens, 95,368 steps")
    for words in ("days ", "goodput ", "device-hours ", "2.50 a device-hour (stated)", "kWh"):
        assert words in run
    document = cli("simulate", GPT3, "--price", "2.5", "--json").document["training_run"]
    assert document["usd_per_device_hour"] == 2.5
    low, high = document["cost_interval_usd"]
    assert low < document["cost_usd"] < high
    assert document["cost_usd"] == pytest.approx(2.5 * document["device_hours_h"])


def test_a_run_takes_as_long_as_its_steps_on_shared_links(cli: Cli) -> None:
    words = (ROOT / "scenarios" / "llama2-7b-shared-fabric.yaml", "--set", "training.tokens=1T")
    broken = (*words, *settings("cluster.failed=[nic:0.0]"))
    whole, slow = (cli("simulate", *each, "--json").document for each in (words, broken))
    times = slow["contention"]["slowdown"] / whole.get("contention", {"slowdown": 1.0})["slowdown"]
    assert times > 1.05
    for name in ("device_hours_h", "cost_usd"):
        before, after = (document["training_run"][name] for document in (whole, slow))
        assert after == pytest.approx(times * before, rel=0.01)
    assert "as long as on shared links" in cli("simulate", *broken).out


def test_without_tokens_nothing_is_made_up(cli: Cli) -> None:
    assert "whole run" not in cli("simulate", SMALL).out
    assert "training_run" not in cli("simulate", SMALL, "--json").document
    assert "training.tokens is not stated" in cli("simulate", SMALL, "--price", "2").err


def test_search_has_days_and_dollars(cli: Cli) -> None:
    done = cli("search", LLAMA, *RUN, "--top", "2")
    assert "days  cost, USD" in done.out
    assert "where the step of 1 goes: " in done.out
    plan = cli("search", LLAMA, *RUN, "--json").document["plans"][0]
    assert plan["training_run"]["cost_usd"] > 0
    assert sum(plan["breakdown_s"].values()) == pytest.approx(plan["step_time_s"])


def test_cluster_sizes_the_front_and_its_picture(cli: Cli, tmp_path: Path) -> None:
    picture, best = tmp_path / "front.png", tmp_path / "best.yaml"
    words = ("--nodes", "1,2", "--front", str(picture), "--save", str(best))
    done = cli("search", LLAMA, *RUN, "--objective", "cost", *words)
    assert done.code == 0
    assert "least cost first, of " in done.out
    assert picture.read_bytes().startswith(b"\x89PNG")
    document = cli(
        "search", LLAMA, *RUN, "--objective", "cost", "--nodes", "1,2", "--json"
    ).document
    first = document["choices"][0]
    costs = [choice["training_run"]["cost_usd"] for choice in document["choices"]]
    assert costs == sorted(costs)
    saved = load_scenario(best)
    assert saved.job.cluster.num_nodes == first["nodes"]
    assert saved.goal.tokens == 1e12


def test_a_long_front_is_printed_in_part_and_drawn_whole(cli: Cli, tmp_path: Path) -> None:
    words = ("search", LLAMA, "--nodes", "1,2", "--front", str(tmp_path / "front.png"))
    done, choices = cli(*words), cli(*words, "--json").document["choices"]
    best = sum(choice["on_front"] for choice in choices)
    assert best > MOST_OF_FRONT
    rows = [line for line in done.out.splitlines() if re.match(r" *\d+ +[12]  tp", line)]
    assert len(rows) == MOST_OF_FRONT
    assert f"{best - MOST_OF_FRONT} more like them are in the picture" in " ".join(done.out.split())


def test_limits(cli: Cli) -> None:
    never = cli("search", LLAMA, *RUN, "--deadline", "1d")
    assert never.code == 3
    assert "more than the deadline of 24 h" in never.err
    dear = cli("search", LLAMA, *RUN, "--budget", "10")
    assert dear.code == 3
    assert "US dollars, more than 10" in dear.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--nodes", "1,x"),
            "--nodes '1,x' must be node counts from 1 to 1,000,000 with commas between",
        ),
        (("--objective", "speed"), "objective 'speed' is unknown; allowed: time, cost"),
        (("--objective", "cost"), "training.tokens is not stated"),
        (("--objective", "devices"), "needs a deadline"),
        (("--deadline", "3"), "--deadline: bare number 3; write it with a unit, e.g. '3d'"),
        (("--front", "x.gif"), "suffix '.gif'; allowed: .png, .svg"),
        (("--nodes", "1", "--contention"), "--contention is for the plans of one cluster"),
    ],
)
def test_what_is_refused(cli: Cli, words: tuple[str, ...], message: str) -> None:
    done = cli("search", LLAMA, *NARROW, *words)
    assert done.code == 2
    assert message in done.err


def test_a_machine_without_a_network_has_one_size(cli: Cli) -> None:
    done = cli("search", SMALL, "--set", "plan=null", "--nodes", "1,2")
    assert done.code == 2
    assert "has no network" in done.err


@pytest.mark.parametrize(
    ("command", "changes"),
    [
        ("search", ["plan.recompute=full"]),
        ("search", ["plan.gradient_precision=same"]),
        ("why", ["plan.recompute=full"]),
    ],
)
def test_a_search_refuses_fields_of_the_plan(cli: Cli, command: str, changes: list[str]) -> None:
    """It reads none of them: a plan that was meant to be fixed would be searched all the same."""
    done = cli(command, GPT3, *settings(*changes))
    name = changes[0].partition("=")[0].removeprefix("plan.")
    block = "search" if name == "recompute" else "search.common"
    assert done.code == 2
    assert f"set {block}.{name} instead" in done.err


def test_a_sweep_of_best_plans_refuses_them_too(cli: Cli) -> None:
    done = cli("sweep", GPT3, "--over", "plan.recompute=none,full", "--best")
    assert done.code == 2
    assert "set search.recompute instead" in done.err


@pytest.mark.parametrize(
    ("scenario", "changes"),
    [
        (GPT3, ["software=megatron-2021", "plan.recompute=full", "plan.sequence_parallel=false"]),
        (ROOT / "scenarios" / "deepseek-v3-hgx-h800.yaml", []),
    ],
)
def test_the_page_about_searches_prints_what_the_command_does(
    cli: Cli, scenario: str | Path, changes: list[str]
) -> None:
    run = cli("simulate", scenario, *settings(*changes)).out.partition("the whole run")[2]
    lines = [" ".join(line.split()) for line in run.splitlines() if line.strip()]
    page = " ".join((ROOT / "docs" / "search.md").read_text().split())
    for line in lines:
        if line.startswith(("days ", "device-hours ")):
            assert line in page
