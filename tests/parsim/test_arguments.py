"""Arguments of Python calls that are of another kind: the message names them and what they take."""

from __future__ import annotations

from collections.abc import Callable
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parsim
from tests.commands import LLAMA, SMALL, Cli, runner, write_rows

collectives: Callable[..., Any] = parsim.collectives


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kinds": "alreduce"}, r"kinds='alreduce' is unknown \(did you mean 'all_reduce'\?\)"),
        ({"kinds": ["all_reduce", "x"]}, "kinds='x' is unknown; allowed: all_reduce, broadcast"),
        ({"kinds": []}, r"kinds=\[\] is empty; kinds takes names of collectives"),
        ({"kinds": [3]}, "kinds=3 is of type int; kinds takes names"),
        ({"sizes": [0]}, "sizes: 0 is not a whole number of bytes from 1 B to 1024 TiB"),
        ({"sizes": [-5]}, "sizes: -5 is not a whole number"),
        ({"sizes": [1.5]}, "sizes: 1.5 is not a whole number"),
        ({"sizes": [nan]}, "sizes: nan is not a whole number"),
        ({"sizes": [True]}, "sizes: True is not a whole number"),
        ({"sizes": ["0B"]}, "sizes: 0B is not a whole number"),
        ({"sizes": ["1"]}, "sizes: bare number 1; write it with a unit"),
        ({"sizes": []}, r"sizes=\[\] is empty"),
        ({"sizes": None}, "sizes=None; sizes takes bytes"),
        ({"nodes": "2"}, "nodes='2' is of type str; nodes takes a whole number"),
        ({"ranks": 2.0}, "ranks=2.0 is of type float"),
        ({"algorithm": "rong"}, "algorithm='rong' is unknown"),
        ({"protocol": "LL12"}, "protocol='LL12' is unknown"),
        ({"system": 3}, "system=3 is of type int"),
    ],
)
def test_collectives_that_are_none(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(parsim.InputError, match=message):
        collectives(**{"system": "dgx-h100", **arguments})


def test_a_single_collective_and_size_are_taken_as_they_are() -> None:
    sweep = collectives("dgx-h100", kinds="All_Reduce", sizes="1MiB", algorithm="RING")
    assert [(row.collective, row.size) for row in sweep.rows] == [("all_reduce", 2**20)]
    assert (
        sweep.rows
        == collectives(
            "dgx-h100", kinds=["all_reduce"], sizes=[np.int64(2**20)], algorithm="ring"
        ).rows
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--kind", "alreduce"), "--kind 'alreduce' is unknown (did you mean 'all_reduce'?)"),
        (("--sizes", "0B"), "--sizes 0B: 0B is not a whole number of bytes from 1 B"),
    ],
)
def test_the_command_checks_the_same(
    words: tuple[str, str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cli: Cli = runner(capsys)
    done = cli("collectives", "--system", "dgx-h100", *words)
    assert (done.code, message in done.err) == (2, True)


ANY: Any = parsim
"""The module without its types: what a notebook may hand over."""


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ANY.load_scenario(SMALL, ["plan.tp=2"]), r"overrides=\['plan.tp=2'\] is of type"),
        (lambda: ANY.load_scenario(SMALL, "plan.tp=2"), "overrides takes a mapping of dotted keys"),
        (lambda: ANY.load_scenario(SMALL, {5: 1}), "a key of overrides=5 is of type int; "),
        (lambda: ANY.search(SMALL, progress=3), "progress=3 is of type int; progress takes a func"),
        (lambda: ANY.load_scenario(None), "path=None; path takes the path of a scenario file"),
        (lambda: ANY.search(SMALL, top="3"), "top='3' is of type str; top takes a whole number"),
        (lambda: ANY.search(SMALL, top=2.5), "top=2.5 is of type float"),
        (lambda: ANY.search(SMALL, top=True), "top=True is of type bool"),
        (lambda: ANY.search(SMALL, time_limit=nan), "time_limit=nan: allowed are 0 seconds and"),
        (lambda: ANY.search(SMALL, time_limit="3"), "time_limit='3' is of type str"),
        (lambda: ANY.search(SMALL, {"tp": [1]}), "space takes a PlanSpace"),
        (lambda: ANY.simulate({"model": 1}), "scenario={'model': 1} is of type dict"),
        (lambda: ANY.simulate(None), "scenario=None; scenario takes a scenario, its file, or a"),
        (lambda: ANY.simulate(SMALL, {"tp": 2}), "plan={'tp': 2} is of type dict; plan takes a"),
        (lambda: ANY.simulate(SMALL, tier="c"), "tier='c' is unknown; allowed: evaluate, events"),
        (lambda: ANY.whole_run(3), "scenario=3 is of type int"),
        (lambda: ANY.timeline(None), "source=None; source takes a scenario, its file"),
        (lambda: ANY.compare(3, 4), "predicted=3 is of type int; predicted takes a prediction"),
        (lambda: ANY.compare(SMALL, SMALL, tolerance="1"), "tolerance='1' is of type str"),
        (lambda: ANY.validate("nope.csv"), r"nope\.csv: no such file"),
        (lambda: ANY.validate(3), "tables=3 is of type int; tables takes the path of a CSV file"),
        (lambda: ANY.validate([]), r"tables=\[\] is empty"),
    ],
)
def test_what_is_of_another_kind(call: Callable[[], object], message: str) -> None:
    with pytest.raises(parsim.InputError, match=message):
        call()


def test_whole_numbers_of_numpy_are_whole_numbers() -> None:
    assert len(ANY.search(LLAMA, top=np.int64(2)).plans) == 2


def test_a_single_table_is_taken_as_it_is(tmp_path: Path) -> None:
    table = write_rows(tmp_path / "mine.csv", {})
    assert parsim.validate(table).rows == parsim.validate([str(table)]).rows
