"""`parsim search` on good input: documents, words and saved plans."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import GPT3, LLAMA, SMALL, Cli


def test_the_document_of_search_is_the_contract(cli: Cli) -> None:
    done = cli("search", SMALL, "--json", "--top", 200)
    result, counts = done.document, done.document["counts"]
    assert (done.code, done.err) == (0, "")
    told = {"counts", "illegal_reasons", "optimality", "left_out", "usable_memory_bytes", "axes"}
    assert set(result) - {"apart"} == {"schema_version", "plans", "faster_tight_plan", *told}
    assert sum(result["illegal_reasons"].values()) == counts["illegal"]
    kinds = {"illegal", "out_of_memory", "tight", "slower", "evaluated"}
    assert set(counts) == {"enumerated", *kinds}
    assert counts["enumerated"] == sum(counts[kind] for kind in kinds)
    # a plan is looked at with two cuts, and shown with the better one
    assert 20 < len(result["plans"]) <= min(counts["evaluated"], 200)
    for plan in result["plans"]:
        assert type(plan["plan"]) is dict
        for name in ("step_time_s", "mfu", "bubble_fraction", "peak_allocated_bytes"):
            assert type(plan[name]) is float
    times = [plan["step_time_s"] for plan in result["plans"]]
    assert times == sorted(times)
    assert type(result["optimality"]) is str


def test_more_plans_than_anybody_prints(cli: Cli) -> None:
    done = cli("search", SMALL, "--top", 10**30)
    assert (done.code, done.out) == (2, "")
    assert "less than or equal to 1000000" in done.err


def test_search_in_words(cli: Cli) -> None:
    done = cli("search", SMALL, "--top", 3)
    counts = cli("search", SMALL, "--json", "--top", 3).document["counts"]
    assert done.code == 0
    # nothing was measured of this device, so that its plans cannot be told apart
    head = [line.split()[0] for line in done.out.split("\n\n")[0].splitlines()]
    assert head[0] == "#"
    assert set(head[1:]) <= {"1=", "also"}  # twins are folded into a line of their own
    assert "1= marks 3 plans in one another's 80 % interval" in " ".join(done.out.split())
    assert f"{counts['enumerated']} plans: {counts['illegal']} illegal; of the others" in done.out
    assert f"{counts['evaluated']} ranked" in done.out
    words = "stage_layers (cuts other than as even as possible and balanced by seconds)"
    assert words in " ".join(done.out.split())


def test_the_main_job_in_a_small_space(cli: Cli) -> None:
    space = {
        "tp": "8",
        "pp": "8",
        "microbatch_size": "[1, 2]",
        "zero_stage": "[0, 1]",
        "schedule": "[1f1b, interleaved_1f1b]",
        "v": "[1, 3]",
    }
    words = [word for key, value in space.items() for word in ("--set", f"search.{key}={value}")]
    document = cli("search", GPT3, "--json", "--top", 1000, *words).document
    counts = document["counts"]
    # mb 2 x (1f1b, interleaved v3) x zero 2 x recompute 3 x sequence parallelism 2
    assert counts["enumerated"] == 2 * 2 * 2 * 3 * 2
    assert counts["illegal"] == 0
    assert counts["out_of_memory"] > 0
    assert {plan["memory_fit"] for plan in document["plans"]} == {"fits"}
    assert len(document["plans"]) == counts["evaluated"] > 0
    published = cli("simulate", GPT3, "--json").document
    assert document["plans"][0]["step_time_s"] <= published["step_time_s"]


def test_the_main_job_is_recommended_what_its_stack_can_run(cli: Cli) -> None:
    """Megatron-LM of 2022 has no zero-bubble schedules, which would be faster."""
    space = {"tp": "8", "pp": "8", "microbatch_size": "4", "zero_stage": "1", "v": "[1, 2, 12]"}
    words = [word for key, value in space.items() for word in ("--set", f"search.{key}={value}")]
    done = cli("search", GPT3, *words)
    told = " ".join(done.out.split())
    assert "tp8 pp8 dp16 mb4 m24 interleaved_1f1b v12" in done.out.splitlines()[1]
    assert "zb_v" not in told.partition("not looked at")[0]
    assert "megatron-2022 has no naive, gpipe, " in told
    assert "zb_v, v_half, v_min; seldom used are eager_1f1b" in told
    assert "search.schedule names them if wanted" in told
    named = ("--set", "search.schedule=[interleaved_1f1b, zb_v]")
    both = cli("search", GPT3, *words, *named).out
    assert "zb_v v2" in both.splitlines()[1]
    assert "megatron-2022 has no" not in both


def test_a_saved_plan_is_the_one_that_was_found(cli: Cli, tmp_path: Path) -> None:
    saved = tmp_path / "new" / "best.yaml"
    result = cli("search", LLAMA, "--json", "--save", saved, "--set", "search.tp=[1, 2]")
    best = result.document["plans"][0]
    again = cli("simulate", saved, "--json").document
    assert result.err == f"best plan written to {saved}\n"
    assert again["plan"] == best["plan"]
    assert again["step_time_s"] == pytest.approx(best["step_time_s"], rel=1e-12)
    assert again["bubble_fraction"] == pytest.approx(best["bubble_fraction"], abs=1e-12)
    peak = max(again["peak_allocated_bytes"])
    assert peak == pytest.approx(best["peak_allocated_bytes"], rel=1e-12)


def test_a_scenario_without_a_space_is_searched_whole(cli: Cli) -> None:
    whole = cli("search", SMALL, "--json", "--set", "search=null").document
    assert whole == cli("search", SMALL, "--json").document


def test_a_time_limit_is_told(cli: Cli) -> None:
    document = cli("search", SMALL, "--json", "--time-limit", 0).document
    assert document["optimality"].startswith("stopped by time limit after ")
    assert document["plans"]
