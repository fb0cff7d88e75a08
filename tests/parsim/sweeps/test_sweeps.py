"""Sweeps: the cases, their numbers, what is kept of an earlier run, several processes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from parsim.errors import InputError
from parsim.scenario import load_scenario
from parsim.sim import simulate
from parsim.sweeps import cases_over, read_over, run_cases, workers
from parsim.sweeps.case import part_of
from parsim.sweeps.workers import read_backend
from tests.commands import GPT3, LLAMA, SMALL

RECOMPUTED = ("plan.recompute", ("none", "full"))

BATCHES = ("training.global_batch_size", ("8", "16"))


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("cluster.nodes=1,2,4", ("1", "2", "4")),
        ("plan.stage_layers=[1,2],[2,1]", ("[1,2]", "[2,1]")),
        ("a.b= x , y ", ("x", "y")),
    ],
)
def test_values_of_a_field(text: str, values: tuple[str, ...]) -> None:
    assert read_over(text)[1] == values


@pytest.mark.parametrize("text", ["a", "a=", "=1", "a=1,,2", "a=1,1"])
def test_what_is_no_field(text: str) -> None:
    with pytest.raises(InputError, match="--over"):
        read_over(text)


def test_a_case_has_the_jitter_of_its_scenario() -> None:
    """The spreads of the block, where it matters who comes first, and slow ranks everywhere."""
    slow = {"jitter": "{slow_ranks: {0: 3.0}}"}
    (row,) = run_cases(cases_over(Path(SMALL), (("training.precision", ("fp32",)),), slow))
    scenario = load_scenario(Path(SMALL), {"training.precision": "fp32", **slow})
    plan = scenario.fixed_plan()
    assert row.step_time_s == simulate(scenario.job, plan, jitter=scenario.jitter).step_time
    assert row.step_time_s > simulate(scenario.job, plan).step_time


def test_every_combination_has_the_numbers_of_simulate() -> None:
    cases = cases_over(Path(LLAMA), (BATCHES, RECOMPUTED), {})
    rows = list(run_cases(cases))
    assert [tuple(row.values.values()) for row in rows] == [
        *(("8", "none"), ("8", "full"), ("16", "none"), ("16", "full"))
    ]
    for case, row in zip(cases, rows, strict=True):
        scenario = load_scenario(case.path, case.overrides)
        predicted = simulate(scenario.job, scenario.fixed_plan())
        assert row.step_time_s == predicted.step_time
        assert (row.step_time_low_s, row.step_time_high_s) == (
            predicted.interval.low,
            predicted.interval.high,
        )


def test_what_cannot_be_is_a_row_with_the_reason() -> None:
    cases = cases_over(Path(LLAMA), (("plan.tp", ("1", "3")),), {"plan.dp": "null"})
    first, second = run_cases(cases)
    assert first.error == ""
    assert "tp=3 does not divide" in second.error
    assert second.step_time_s != second.step_time_s


def test_several_processes_give_the_same_rows() -> None:
    cases = cases_over(Path(SMALL), (BATCHES,), {})
    both = [[row.record() for row in run_cases(cases, jobs=jobs)] for jobs in (1, 2)]
    assert both[0] == both[1]


def test_joblib_gives_the_same_rows() -> None:
    pytest.importorskip("joblib")
    cases = cases_over(Path(SMALL), (BATCHES,), {})
    here = [row.record() for row in run_cases(cases)]
    assert [row.record() for row in run_cases(cases, jobs=2, backend=read_backend("loky"))] == here


def test_a_list_at_a_time_where_a_backend_gives_lists_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ray: all results, in order, from calls of joblib of four times the jobs each."""
    sizes = []

    def run(calls: list[Callable[[], str]]) -> list[str]:
        sizes.append(len(calls))
        return [call() for call in calls]

    fake = SimpleNamespace(
        Parallel=lambda return_as, batch_size: nullcontext(run if return_as == "list" else None),
        delayed=lambda work: lambda argument: lambda: work(argument),
        effective_n_jobs=lambda jobs: jobs,
        parallel_config=lambda backend, n_jobs: nullcontext(),
    )
    ray = SimpleNamespace(init=lambda **options: nullcontext())
    register = SimpleNamespace(register_ray=lambda: None)
    modules = {"joblib": fake, "ray": ray, "ray.util.joblib": register}
    monkeypatch.setattr(workers, "extra_module", lambda module, *_: modules[module])
    numbers = range(10)
    assert [*workers.in_order(str, numbers, jobs=1, backend="ray")] == [*map(str, numbers)]
    assert sizes == [4, 4, 2]


def test_weak_scaling() -> None:
    nodes = ("cluster.nodes", ("2", "4"))
    cases = cases_over(Path(GPT3), (nodes,), {}, best=True, weak=True)
    assert [case.values["training.global_batch_size"] for case in cases] == ["1536", "3072"]
    with pytest.raises(InputError, match="needs node counts"):
        cases_over(Path(GPT3), (("cluster.nodes", ("9" * 5000,)),), {}, weak=True)
    with pytest.raises(InputError, match="needs node counts"):
        cases_over(Path(GPT3), (RECOMPUTED,), {}, weak=True)
    with pytest.raises(InputError, match="is not divisible by"):
        cases_over(Path(GPT3), (("cluster.nodes", ("5", "10")),), {}, weak=True)


def test_parts_make_the_whole() -> None:
    cases = cases_over(Path(LLAMA), (BATCHES, RECOMPUTED), {})
    parts = [part_of(cases, f"{number}/3") for number in (1, 2, 3)]
    assert sorted(case.digest for part in parts for case in part) == sorted(
        case.digest for case in cases
    )
    for text in ("0/3", "4/3", "x"):
        with pytest.raises(InputError, match="--part"):
            part_of(cases, text)


def test_too_many_cases() -> None:
    many = ("plan.tp", tuple(str(n) for n in range(101)))
    with pytest.raises(InputError, match="10,201 cases are more than 10,000"):
        cases_over(Path(LLAMA), (many, ("plan.pp", many[1])), {})
    with pytest.raises(InputError, match="names a field twice"):
        cases_over(Path(LLAMA), (many, many), {})
