"""How long one trains at what price: keys, units, what is refused, and written back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from parsim.errors import ScenarioError
from parsim.scenario import load_scenario, scenario_text
from tests.commands import SMALL

STATED = {
    "training.tokens": "1.4T",
    "training.usd_per_device_hour": "2.5",
    "training.pue": "1.25",
    "failures.device_mtbf": "90d",
    "failures.restart_time": "15min",
}


def test_a_whole_run() -> None:
    """Tokens with a suffix, spans of time with days and minutes; the rest has defaults."""
    goal = load_scenario(SMALL, STATED).goal
    assert (goal.tokens, goal.usd_per_device_hour, goal.pue) == (1.4e12, 2.5, 1.25)
    assert (goal.failures.device_mtbf, goal.failures.restart_time) == (90 * 86400.0, 900.0)
    assert goal.failures.stated == {"device_mtbf", "restart_time"}
    assert load_scenario(SMALL).goal.tokens is None


@pytest.mark.parametrize("tokens", ["300B", "123456789012", "1.23456789T"])
def test_written_back_it_is_the_same(tmp_path: Path, tokens: str) -> None:
    first = load_scenario(SMALL, {**STATED, "training.tokens": tokens})
    (tmp_path / "again.yaml").write_text(scenario_text(first, first.fixed_plan()), "utf-8")
    assert load_scenario(tmp_path / "again.yaml").goal == first.goal


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("training.tokens", "3Q", "'3Q' is not a number of tokens: write 300B, 1.4T or 300e9"),
        (
            "training.tokens",
            "300",
            "--set training.tokens=300 training.tokens 300 are fewer than a step's 4 x 128 = 512; "
            "K M B T are thousands to trillions, e.g. 300B",
        ),
        ("training.tokens", "0", "tokens cannot be; allowed: 1 to 1e+18"),
        ("training.usd_per_device_hour", "-1.0", "training.usd_per_device_hour"),
        ("training.pue", "0.9", "training.pue"),
        ("failures.device_mtbf", "30", "bare number 30; write it with a unit, e.g. '30d'"),
        ("failures.restart_time", "5us", "is not a span of time"),
        ("failures.device_mtbf", "0s", "failures.device_mtbf"),
        ("failures.mtbf", "3d", "failures.mtbf"),
    ],
)
def test_a_wrong_run_is_told(key: str, value: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=re.escape(message)):
        load_scenario(SMALL, {key: value})
