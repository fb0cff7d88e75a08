"""Ranges, exclusions and presets of a search block."""

from __future__ import annotations

import re

import pytest

from parsim.errors import ScenarioError
from parsim.plan import PlanSpace
from parsim.plan.space import FEWEST, Between, chosen
from parsim.scenario import load_scenario
from tests.commands import GPT3, SMALL


def space_of(text: str, file: str = GPT3) -> PlanSpace:
    space = load_scenario(file, {"search": text, "plan": None}).space
    assert space is not None
    return space


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ('"<= 8"', (1, 2, 4, 8)),
        ('">= 8"', (8, 16)),
        ('"2..8"', (2, 4, 8)),
        ('"not 4, 8"', (1, 2, 16)),
        ('"<= 8 and not 2 and >= 2"', (4, 8)),
        ("4", (4,)),
        ("[1, 3]", (1, 3)),
    ],
)
def test_values_of_an_axis(text: str, values: tuple[int, ...]) -> None:
    assert chosen(space_of(f"{{tp: {text}}}").tp, (1, 2, 4, 8, 16)) == values


def test_numbers_of_recomputed_layers_and_the_fewest() -> None:
    assert space_of("{recompute_layers: fewest}").recompute_layers == (FEWEST,)
    assert space_of("{recompute_layers: [0, 2]}").recompute_layers == (0, 2)
    assert space_of('{recompute_layers: "<= 2"}').recompute_layers == Between(most=2)
    assert space_of("{space: full}").recompute_layers == (FEWEST,)
    assert space_of("{}").recompute_layers is None


def test_every_legal_value_where_none_is_named() -> None:
    assert chosen(None, (1, 2)) == (1, 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{tp: "8..4"}', "search.tp '8..4' leaves no value: 8 is above 4"),
        ('{tp: "<8"}', "search.tp '<8' is no range; write a number, a list such as [1, 2, 4]"),
        ("{recompute_layers: few}", "search.recompute_layers 'few' is no range; write a number"),
        ("{recompute_layers: few}", "or fewest, as few as fit"),
        ("{recompute_layers: -1}", "search.recompute_layers"),
        ("{recompute_layers: [fewest]}", "search.recompute_layers"),
        ('{tp: "<= 4, 8"}', "has several numbers; allowed: one"),
        ('{tp: "<= 2 and >= 4"}', "leaves no value: 4 is above 2"),
        ("{tp: 0}", "search.tp"),
        ("{space: huge}", "search.space"),
        ("{max_bubble: 2.0}", "search.max_bubble"),
        ("{memory_cap: 40}", "bare number 40; write it with a unit"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=re.escape(message)):
        space_of(text)


def test_presets() -> None:
    quick = space_of("{space: quick}")
    assert quick.tp == Between(most=8)
    assert quick.schedule == ("1f1b", "interleaved_1f1b")
    assert space_of("{space: quick, tp: 16}").tp == (16,)
    assert space_of("{space: standard}") == space_of("{}")
    full = space_of("{space: full}")
    assert full.dp_shard == Between()
    assert full.schedule is not None
    assert "zb_v" in full.schedule
    executor = space_of("{space: full}", SMALL).schedule
    assert executor == load_scenario(SMALL).job.software.schedules


def test_how_a_range_is_shown() -> None:
    assert str(Between(least=2, most=8, excluded=(4,))) == "2..8 and not 4"
    assert str(Between(least=2)) == ">= 2"
