"""Pictures and tables of a sweep."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from matplotlib.axes import Axes
from rich.console import Console, RenderableType

from parsim.errors import InputError
from parsim.report.picture.planning.sweep import draw_outcomes
from parsim.report.text.planning.sweep import outcomes_view
from parsim.sweeps import Outcomes, cases_of_files, cases_over, run_cases
from tests.commands import GPT3, LLAMA
from tests.parsim.sweeps.test_sweeps import BATCHES

RESNET = "resnet50-dgx-1v.yaml"


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


def printed(view: RenderableType) -> str:
    console = Console(width=240, file=StringIO())
    console.print(view)
    return str(console.file.getvalue())  # type: ignore[attr-defined]


def test_strategies_that_train_otherwise_are_marked() -> None:
    """Local steps are the fastest, but what they are worth is not known; DDP's have no mark."""
    over = ("plan.strategy", ("ddp", "local_sgd"))
    rows = tuple(run_cases(cases_over(Path(LLAMA).with_name(RESNET), (over,), {})))
    assert [row.training for row in rows] == ["", "otherwise"]
    result = Outcomes(rows=rows, keys=("plan.strategy",), total=2)
    assert "which trains otherwise" in result.headline
    told = printed(outcomes_view(result))
    assert "local_sgd *" in told
    assert "ddp *" not in told
    assert "* trains otherwise than with the whole batch; convergence is not predicted" in told
