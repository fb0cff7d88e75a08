"""What `import parsim` offers: its table of contents, and what its results can do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from matplotlib.figure import Figure

import parsim
from parsim.comparison.compared import TimelineComparison
from parsim.results import Result
from parsim.schedule import schedule_of
from parsim.sim import simulate as simulate_plan
from parsim.sim.benchmark.collective_sweep import Sweep
from parsim.validation.validate import Validation
from tests.commands import GPT3, LLAMA, ROOT, SMALL, write_rows

CLASSES = {
    "Cluster",
    "Model",
    "Plan",
    "Prediction",
    "Scenario",
    "Schedule",
    "SearchResult",
    "Timeline",
    "TrainingRun",
}
FUNCTIONS = {
    "collectives",
    "compare",
    "load_scenario",
    "search",
    "simulate",
    "timeline",
    "validate",
    "whole_run",
}
ERRORS = {
    "CatalogError",
    "DeadlockError",
    "InputError",
    "ModelError",
    "NoFeasiblePlan",
    "ParsimError",
    "PlanError",
    "ScenarioError",
    "ScheduleError",
    "TableError",
    "ToleranceExceeded",
    "UnitError",
}
RESULTS = ("scenario", "prediction", "ranked", "timeline", "validation", "comparison", "sweep")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    """One result of every kind, made as a user makes it."""
    table = write_rows(tmp_path_factory.mktemp("tables") / "mine.csv", {})
    scenario = parsim.load_scenario(SMALL)
    prediction = parsim.simulate(scenario)
    timeline = parsim.timeline(scenario)
    return {
        "scenario": scenario,
        "prediction": prediction,
        "ranked": parsim.search(parsim.load_scenario(LLAMA), top=3),
        "timeline": timeline,
        "validation": parsim.validate([table]),
        "comparison": parsim.compare(prediction, timeline),
        "sweep": parsim.collectives("dgx-h100", 2, kinds=["all_reduce"], sizes=["1MiB", 2**30]),
    }


# --------------------------------------------------------------------------- the names


def test_the_table_of_contents() -> None:
    assert set(parsim.__all__) == CLASSES | FUNCTIONS | ERRORS | {"__version__"}
    assert set(parsim.__all__) <= set(dir(parsim))


def test_every_name_is_what_it_says_and_is_documented() -> None:
    for name in CLASSES | ERRORS:
        assert isinstance(getattr(parsim, name), type)
    for name in CLASSES | ERRORS | FUNCTIONS:
        assert callable(getattr(parsim, name))
        assert getattr(parsim, name).__name__ == name
        assert getattr(parsim, name).__doc__
    assert all(issubclass(getattr(parsim, name), parsim.ParsimError) for name in ERRORS)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'parsim' has no attribute 'find_plans'"):
        getattr(parsim, "find_plans")  # noqa: B009 - a type checker would refuse the plain form


def python(script: str, folder: Path) -> list[str]:
    """What a script prints that another process runs."""
    command = [sys.executable, "-c", script]
    return subprocess.run(
        command,
        cwd=folder,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()


@pytest.mark.parametrize("first", ["parsim", "parsim.cli.app", "parsim.planner", "parsim.report"])
def test_a_function_stays_a_function_whatever_was_imported_first(
    first: str, tmp_path: Path
) -> None:
    kinds = f"(type(getattr(parsim, name)).__name__ for name in {sorted(FUNCTIONS)})"
    script = f"import {first}, parsim; print(*{kinds})"
    assert python(script, tmp_path) == ["function"] * len(FUNCTIONS)


def test_names_are_loaded_at_first_use(tmp_path: Path) -> None:
    script = "import sys, parsim; print(*(m for m in sys.modules if m.startswith('parsim')))"
    assert sorted(python(script, tmp_path)) == ["parsim", "parsim.results"]


def test_a_search_of_a_transformer_loads_only_what_it_needs(tmp_path: Path) -> None:
    """Each of these costs every command 10 to 30 ms."""
    heavy = (
        *("numpy.ma", "rich.progress", "matplotlib", "simpy", "pandas", "torch"),
        *("parsim.model.graph.images", "parsim.model.graph.catalog", "parsim.layout.candidates"),
    )
    words = ["search", LLAMA, "--set", "plan=null"]
    script = (
        f"import sys; from parsim.cli.app import main; code = main({words}); "
        f"print('loaded', code, *(m for m in {heavy} if m in sys.modules))"
    )
    assert python(script, tmp_path)[-2:] == ["loaded", "0"]


# --------------------------------------------------------------------------- results


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_prints(results: dict[str, Result], name: str) -> None:
    result = results[name]
    assert "\n" not in repr(result)
    assert repr(result) == f"<{type(result).__name__} {result.headline}>"
    assert len(repr(result)) < 250
    assert "\n" in str(result)
    assert "\x1b" not in str(result)


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_shows_itself_in_a_notebook(results: dict[str, Result], name: str) -> None:
    html = results[name]._repr_html_()
    assert "<table>" in html or name == "scenario"
    assert html.count("<table>") == html.count("</table>")
    assert ("data:image/png;base64," in html) == (name == "timeline")


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_converts_to_plain_data(results: dict[str, Result], name: str) -> None:
    result = results[name]
    assert result.to_dict() == result.to_json()
    assert "schema_version" in result.to_dict()
    assert len(result.records()) >= 1
    assert all(isinstance(key, str) for record in result.records() for key in record)


def test_a_result_becomes_a_data_frame(
    results: dict[str, Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    def frame(records: Sequence[object]) -> Sequence[object]:
        return records

    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=frame))
    for result in results.values():
        assert result.to_pandas() == result.records()


def test_without_pandas_the_error_says_how_to_install_it(
    results: dict[str, Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(parsim.InputError, match=r"pip install pandas$"):
        results["prediction"].to_pandas()


def test_results_with_a_picture_draw(results: dict[str, Result], tmp_path: Path) -> None:
    prediction, validation, sweep = results["prediction"], results["validation"], results["sweep"]
    assert isinstance(prediction, parsim.Prediction)
    assert prediction.timeline is not None
    assert isinstance(prediction.timeline.plot(memory=True, critical=True), Figure)
    assert isinstance(validation, Validation)
    assert isinstance(validation.plot(), Figure)
    assert isinstance(sweep, Sweep)
    assert isinstance(sweep.plot(tmp_path / "sweep.svg"), Figure)
    assert (tmp_path / "sweep.svg").exists()


def test_what_a_scenario_holds_fits_on_a_line() -> None:
    scenario = parsim.load_scenario(GPT3)
    job = scenario.job
    assert repr(job.model) == (
        "<Model gpt3-175b: 174,615,846,912 parameters, 96 layers, 2048 tokens>"
    )
    assert repr(job.cluster) == "<Cluster 128 x dgx-a100: 1024 devices>"
    schedule = schedule_of(scenario.fixed_plan())
    expected = "<Schedule interleaved_1f1b: 8 ranks, 24 stages, 96 micro-batches>"
    assert repr(schedule) == expected


# --------------------------------------------------------------------------- functions


def test_a_scenario_stands_for_its_job_and_plan() -> None:
    scenario = parsim.load_scenario(SMALL)
    expected = simulate_plan(scenario.job, scenario.fixed_plan(), timeline=True)
    assert parsim.simulate(scenario) == expected
    assert parsim.simulate(scenario.job, scenario.plan) == expected
    assert parsim.simulate(scenario, timeline=False).timeline is None
    assert parsim.timeline(scenario) == parsim.timeline(SMALL) == expected.timeline


def test_another_plan_than_the_scenario_s() -> None:
    scenario = parsim.load_scenario(SMALL)
    other = parsim.search(scenario, top=1).plans[0].plan
    assert parsim.simulate(scenario, other).plan == other


def test_a_saved_timeline_is_read_and_compared(tmp_path: Path) -> None:
    prediction = parsim.simulate(parsim.load_scenario(SMALL))
    assert prediction.timeline is not None
    prediction.timeline.save(tmp_path / "saved.json")
    assert parsim.timeline(tmp_path / "saved.json") == prediction.timeline
    both = parsim.compare(tmp_path / "saved.json", prediction.timeline)
    assert isinstance(both, TimelineComparison)
    assert both.within_tolerance


def test_what_is_missing_is_told() -> None:
    scenario = parsim.load_scenario(SMALL)
    prediction = parsim.simulate(scenario, timeline=False)
    with pytest.raises(parsim.InputError, match="needs a plan"):
        parsim.simulate(scenario.job)
    with pytest.raises(parsim.InputError, match="needs a space"):
        parsim.search(scenario.job)
    with pytest.raises(parsim.InputError, match="top=0"):
        parsim.search(scenario, top=0)
    with pytest.raises(parsim.InputError, match="without a timeline"):
        parsim.compare(prediction, prediction)  # type: ignore[arg-type]


def test_a_search_says_why_plans_are_illegal() -> None:
    ranked = parsim.search(parsim.load_scenario(GPT3, {"search.tp": "[7, 8]"}), top=1)
    reasons = ranked.to_dict()["illegal_reasons"]
    assert sum(reasons.values()) == ranked.counts["illegal"] > 0
    assert max(reasons, key=reasons.__getitem__).startswith("schedule='interleaved_1f1b': pp=")
    illegal = f"{sum(reasons.values()):,}"
    assert f"illegal, {illegal} plans: schedule='interleaved_1f1b': pp=... does not divide" in str(
        ranked
    )


def test_a_scenario_is_taken_by_its_file(results: dict[str, Result]) -> None:
    read = parsim.simulate(SMALL, timeline=False)
    assert read.step_time == results["prediction"].to_dict()["step_time_s"]
    assert parsim.search(Path(LLAMA), top=1).plans
    with pytest.raises(parsim.InputError, match=r"nosuch\.yaml: no such file"):
        parsim.whole_run("nosuch.yaml")
    with pytest.raises(parsim.InputError, match="a job alone states no tokens"):
        parsim.whole_run(parsim.load_scenario(SMALL).job)  # type: ignore[arg-type]
