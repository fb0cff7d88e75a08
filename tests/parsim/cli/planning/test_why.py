"""`parsim why`: documents and tables."""

from __future__ import annotations

import pytest

from tests.commands import LLAMA, Cli

NARROW = ("--set", "search={pp: 1, microbatch_size: 1, cp: 1}", "--set", "plan=null")


def test_a_wish_and_what_it_costs(cli: Cli) -> None:
    done = cli("why", LLAMA, *NARROW, "--not", "tp=8")
    assert done.code == 0
    assert "best with tp=8: tp8 pp1 dp1" in done.out
    assert "exposed: tensor" in done.out
    document = cli("why", LLAMA, *NARROW, "--not", "tp=8", "--json").document
    assert document["wished"]["plan"]["tp"] == 8
    assert sum(document["wished_parts_s"].values()) == pytest.approx(
        document["wished"]["step_time_s"]
    )


def test_a_wish_that_no_rule_allows_is_an_answer(cli: Cli) -> None:
    done = cli("why", LLAMA, *NARROW, "--not", "tp=3")
    assert done.code == 0
    assert "no plan with tp=3: tp=3 does not divide num_attention_heads=32" in done.out


def test_what_it_depends_on(cli: Cli) -> None:
    done = cli("why", LLAMA, *NARROW)
    assert done.code == 0
    assert "where its step goes: backward" in done.out
    assert "links in a node -20 %" in done.out
    changes = cli("why", LLAMA, *NARROW, "--json").document["changes"]
    assert {"change", "plan", "step_time_s", "tokens_per_s"} <= set(changes[0])


def test_a_wish_that_is_none(cli: Cli) -> None:
    done = cli("why", LLAMA, "--not", "tp")
    assert done.code == 2
    assert "'tp' must be FIELD=VALUE, e.g. tp=4,pp=2" in done.err
