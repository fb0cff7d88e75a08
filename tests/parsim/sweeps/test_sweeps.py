"""Sweeps: the cases, their numbers, what is kept of an earlier run, several processes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from matplotlib.axes import Axes
from rich.console import Console, RenderableType

from parsim.errors import InputError
from parsim.report.picture.planning.sweep import draw_outcomes
from parsim.report.text.planning.sweep import outcomes_view
from parsim.report.writing import csv_text
from parsim.scenario import load_scenario
from parsim.sim import simulate
from parsim.sweeps import Outcomes, cases_of_files, cases_over, read_over, run_cases, workers
from parsim.sweeps.case import part_of
from parsim.sweeps.table_file import cells_of, read_outcomes
from parsim.sweeps.workers import read_backend
from tests.commands import GPT3, LLAMA, SMALL

BATCHES = ("training.global_batch_size", ("8", "16"))
RESNET = "resnet50-dgx-1v.yaml"
RECOMPUTED = ("plan.recompute", ("none", "full"))


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


def test_rows_of_an_earlier_run_are_kept(tmp_path: Path) -> None:
    table = tmp_path / "s.csv"
    cases = cases_over(Path(LLAMA), (BATCHES,), {})
    keys = tuple(cases[0].values)
    rows = list(run_cases(cases[:1]))
    marked = [replace(rows[0], step_time_s=123.0)]
    table.write_text(csv_text(cells_of(marked, keys)), encoding="utf-8")
    known = read_outcomes(table, keys)
    again = list(run_cases(cases, known=known))
    assert again[0].record() == marked[0].record()  # not run again
    assert again[1].step_time_s < 123.0
    # another question of the same file is another case
    changed = cases_over(Path(LLAMA), (BATCHES,), {"plan.recompute": "full"})
    assert next(run_cases(changed, known=known)).step_time_s < 123.0


def test_csv_reads_as_the_same(tmp_path: Path) -> None:
    cases = cases_over(Path(GPT3), (("plan.pp", ("8", "7")),), {})
    rows = list(run_cases(cases))
    file = tmp_path / "s.csv"
    file.write_text(csv_text(cells_of(rows, ("plan.pp",))), encoding="utf-8")
    again = read_outcomes(file, ("plan.pp",))
    assert again[rows[0].digest] == rows[0]
    assert again[rows[1].digest].error == rows[1].error != ""


def test_a_model_file_that_changed_is_another_case(tmp_path: Path) -> None:
    """Whether the scenario names it, a folder that holds it, or an override does."""
    config = tmp_path / "my model" / "config.json"
    config.parent.mkdir()
    text = "model: {file: my model/config.json}\n"
    for written, changes in (
        (text, {}),
        ("model: {file: 'my model/config.json'}\n", {}),
        ("model:\n  name: my model  # a folder\n", {}),
        ("model: {name: gpt2}\n", {"model.name": f"{tmp_path}/my model"}),
        ("cluster: {catalog: [b.yaml, ./my model/config.json]}\n", {}),
    ):
        (tmp_path / "s.yaml").write_text(written, encoding="utf-8")
        case = cases_over(tmp_path / "s.yaml", (BATCHES,), changes)[0]
        config.write_text("{}", encoding="utf-8")
        before = case.digest
        assert case.digest == before
        config.write_text('{"num_layers": 2}', encoding="utf-8")
        assert case.digest != before


def test_another_version_of_parsim_is_another_case(monkeypatch: pytest.MonkeyPatch) -> None:
    case = cases_over(Path(LLAMA), (BATCHES,), {})[0]
    before = case.digest
    monkeypatch.setattr("parsim.__version__", "0.0.0")
    assert case.digest != before


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "plan.tp,digest\nx\n"])
def test_another_table_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "s.csv"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="is no table of this sweep"):
        read_outcomes(file, ("plan.tp",))


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


def test_what_follows_the_first_field_makes_no_lines() -> None:
    """Weak scaling: the batch grows with the nodes, so that there is one line."""
    rows = list(run_cases(cases_of_files([Path(LLAMA), Path(GPT3)], {})))
    keys = ("cluster.nodes", "training.global_batch_size")
    pairs = (("1", "16"), ("2", "32"))
    weak = [
        replace(row, values=dict(zip(keys, pair, strict=True)))
        for row, pair in zip(rows, pairs, strict=True)
    ]
    seconds = draw_outcomes(Outcomes(rows=tuple(weak), keys=keys, total=2)).axes[0]
    assert len(seconds.containers) == 1
    assert seconds.get_xlabel() == "cluster.nodes (with training.global_batch_size)"
    apart = [replace(row, values={**row.values, keys[0]: "1"}) for row in weak]
    both = draw_outcomes(Outcomes(rows=tuple(apart), keys=keys, total=2)).axes[0]
    assert (len(both.containers), both.get_xlabel()) == (2, keys[0])


@pytest.mark.parametrize(
    ("values", "across"),
    [
        (("100Gb/s", "400Gb/s"), [100.0, 400.0]),
        (("1e11", "2e11", "1e12"), [1e11, 2e11, 1e12]),
        (("10GB/s", "400Gb/s"), [0.0, 1.0]),
    ],
)
def test_values_stand_where_their_numbers_are(values: tuple[str, ...], across: list[float]) -> None:
    """Whole, as they were given; numbers in several units one after another."""
    row = next(iter(run_cases(cases_of_files([Path(LLAMA)], {}))))
    rows = tuple(replace(row, values={"field": value}) for value in values)
    axes = draw_outcomes(Outcomes(rows=rows, keys=("field",), total=len(rows))).axes[0]
    assert axes.get_xticks().tolist() == across
    assert [label.get_text() for label in axes.get_xticklabels()] == list(values)


def test_plans_side_by_side_and_their_picture(tmp_path: Path) -> None:
    cases = cases_of_files([Path(LLAMA), Path(GPT3)], {})
    result = Outcomes(rows=tuple(run_cases(cases)), keys=("file",), total=2)
    assert [row.values["file"] for row in result.rows] == [LLAMA, GPT3]
    assert result.fastest is not None
    assert len(draw_outcomes(result, tmp_path / "x.png").axes) == 2
    none = Outcomes(rows=(), keys=("file",), total=2)
    with pytest.raises(InputError, match="no case can be drawn"):
        draw_outcomes(none)


def test_a_picture_says_how_its_marks_are_read() -> None:
    """Files of two models are no line, nor in proportion; node counts of one model are both."""
    rows = tuple(run_cases(cases_of_files([Path(LLAMA), Path(GPT3)], {})))
    result = Outcomes(rows=rows, keys=("file",), total=2)
    figure = draw_outcomes(result)
    title = figure.get_suptitle()
    assert title.startswith(result.headline)
    assert "80 % intervals" in title
    assert "dotted" not in title
    assert [_joins(axes) for axes in figure.axes] == [False, False]
    values = ({"cluster.nodes": "1"}, {"cluster.nodes": "2"})
    alike = [replace(row, values=value, model="a") for row, value in zip(rows, values, strict=True)]
    figure = draw_outcomes(Outcomes(rows=tuple(alike), keys=("cluster.nodes",), total=2))
    assert "dotted" in figure.get_suptitle()  # the clusters have different numbers of devices
    assert [_joins(axes) for axes in figure.axes] == [True, True]


def _joins(axes: Axes) -> bool:
    return any(line.get_linestyle() == "-" for line in axes.lines if line.get_marker() == "o")


def test_different_models_are_not_ranked() -> None:
    """More tokens a second of a smaller model say nothing, so that none is called the fastest."""
    rows = tuple(run_cases(cases_of_files([Path(LLAMA), Path(GPT3)], {})))
    result = Outcomes(rows=rows, keys=("file",), total=2)
    assert len(result.models) == 2
    assert (
        result.headline == "2 cases of different models or samples, which are not ranked by speed"
    )
    text = printed(outcomes_view(result))
    assert "speed  " not in text
    assert "llama3-8b (8,030,261,248 parameters, samples of 8192)" in text
    called = replace(rows[0], model=rows[0].model.replace("llama3-8b", "config"))
    twice = Outcomes(rows=(rows[0], called), keys=("file",), total=2)
    assert twice.models == (rows[0].model,)
    assert Outcomes(rows=rows[:1], keys=("file",), total=1).headline.startswith("1 case; ")
    twice = Outcomes(rows=(rows[0], rows[0]), keys=("file",), total=2)
    assert "fastest file=" in twice.headline
    assert twice.headline.endswith(f"{rows[0].tokens_per_s:,.0f} tokens/s")
    assert " speed " in printed(outcomes_view(twice))


def test_speeds_of_a_vision_model_are_samples_a_second() -> None:
    over = (BATCHES[0], ("2048", "4096"))
    rows = tuple(run_cases(cases_over(Path(LLAMA).with_name(RESNET), (over,), {})))
    result = Outcomes(rows=rows, keys=(BATCHES[0],), total=2)
    assert result.headline.endswith("samples/s")
    assert [axes.get_ylabel() for axes in draw_outcomes(result).axes] == [
        "step time, s",
        "samples/s",
    ]
    unsaid = replace(result, rows=tuple(replace(row, speed_unit="") for row in rows))
    assert unsaid.speed_unit == "tokens or samples/s"


def test_a_table_from_before_rows_said_their_model_is_read(tmp_path: Path) -> None:
    rows = list(run_cases(cases_over(Path(LLAMA), (BATCHES,), {})))
    older = [cells[:-2] for cells in cells_of(rows, (BATCHES[0],))]
    file = tmp_path / "s.csv"
    file.write_text(csv_text(older), encoding="utf-8")
    again = read_outcomes(file, (BATCHES[0],))
    assert again[rows[0].digest].record() == replace(rows[0], model="", speed_unit="").record()


def printed(view: RenderableType) -> str:
    console = Console(width=240, file=StringIO())
    console.print(view)
    return str(console.file.getvalue())  # type: ignore[attr-defined]
