"""`parsim simulate --jitter-steps`: the document, the text, and the same bytes for a seed."""

from __future__ import annotations

import pytest

from tests.commands import SMALL, Cli, settings

STEPS = ("--jitter-steps", "50")
KEYS = {
    "steps",
    "seed",
    "without_jitter_s",
    "mean_s",
    "p50_s",
    "p99_s",
    "std_s",
    "std_within_cluster_s",
    "slowdown_mean",
    "loss_s",
    "loss_alone_s",
    "slow_ranks",
    "straggler_replaced",
    "assumptions",
}


def test_the_document_has_a_jitter_object_where_asked(cli: Cli) -> None:
    plain = cli("simulate", SMALL, "--json").document
    late = cli("simulate", SMALL, "--json", *STEPS, "--seed", "3").document
    result = late.pop("jitter")
    assert late == plain
    assert set(result) == KEYS
    assert (result["steps"], result["seed"]) == (50, 3)
    assert result["p50_s"] < result["p99_s"]
    assert result["slowdown_mean"] == pytest.approx(result["mean_s"] / result["without_jitter_s"])


def test_the_same_seed_gives_the_same_bytes(cli: Cli) -> None:
    for form in ((), ("--json",)):
        first, again, other = (
            cli("simulate", SMALL, *STEPS, "--seed", seed, *form).out for seed in (3, 3, 4)
        )
        assert first == again != other


def test_the_text_says_how_long_and_why(cli: Cli) -> None:
    done = cli("simulate", SMALL, *STEPS, *settings("jitter.slow_ranks.1=1.5"))
    lines = [line.strip() for line in done.out.splitlines()]
    assert "jitter: 50 steps, seed 0" in lines
    for name in ("mean", "p50", "p99", "std"):
        assert any(line.startswith(f"{name} ") for line in lines)
    assert any(line.startswith("slow rank") and "rank 1 (pp " in line for line in lines)
    assert any(line.startswith("listed slow ranks") for line in lines)
    assert "assumed: noise 0.01: assumption" in lines
    bars = lines[lines.index("histogram") + 2 :]
    counts = [int(bar.split()[2]) for bar in bars[: bars.index("")]]
    assert (len(counts), sum(counts)) == (12, 50)


def test_no_jitter_at_all_is_a_step_of_one_length(cli: Cli) -> None:
    off = settings("jitter.noise=0", "jitter.speed_spread=0", "jitter.hiccups=0")
    document = cli("simulate", SMALL, *STEPS, *off, "--json").document["jitter"]
    assert document["mean_s"] == pytest.approx(document["without_jitter_s"], rel=1e-12)
    assert document["p99_s"] == document["without_jitter_s"]
    assert document["std_s"] == pytest.approx(0.0, abs=1e-12)
    assert document["loss_s"] == {}
    assert cli("simulate", SMALL, *STEPS, *off).code == 0


def test_a_block_without_steps_is_left_aside_and_said_so(cli: Cli) -> None:
    done = cli("simulate", SMALL, *settings("jitter.noise=0.1"))
    note = "note: spreads of the jitter block are left aside; --jitter-steps 1000 simulates them"
    assert note in done.err
    assert done.out == cli("simulate", SMALL).out


def test_what_uses_the_block_says_nothing_of_leaving_it(cli: Cli) -> None:
    """Slow ranks are in every step, all of it where it matters who comes first."""
    slow = cli("simulate", SMALL, *settings("jitter.slow_ranks={0: 2.0}"))
    assert "left aside" not in slow.err
    assert slow.out != cli("simulate", SMALL).out
    loose = settings("plan.strategy={name: asynchronous_gossip, updates: 40}", "jitter.noise=0.1")
    assert "left aside" not in cli("simulate", "resnet50-dgx-1v.yaml", *loose).err


@pytest.mark.parametrize(
    "words", [("--jitter-steps", "0"), ("--jitter-steps", "5", "--seed", "-1")]
)
def test_numbers_out_of_range_are_the_users_error(cli: Cli, words: tuple[str, ...]) -> None:
    assert cli("simulate", SMALL, *words).code == 2
