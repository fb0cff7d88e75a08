"""How much wider a new model, device or kind of plan makes an interval, and that it then holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from parsim.fitting.constants.fit import Values
from parsim.fitting.constants.influence import LeaveOut
from parsim.fitting.intervals.figures import figures, residuals_of
from parsim.fitting.intervals.levels import FOLDS, LEVELS, beyond, by, folds, stacks, widest
from parsim.fitting.intervals.novelty import NOT_BELOW, LeftOutRun, Novelty, with_level, without
from parsim.fitting.intervals.residuals import Residual
from parsim.sim.confidence.known_errors import LEVELS as FACTORS
from parsim.sim.confidence.known_errors import Errors, errors_of
from parsim.validation.step.case import Case
from parsim.validation.tables import shipped_tables
from parsim.validation.validate import validate

BY_NAME = {level.name: level for level in LEVELS}


class Unmoved(LeaveOut):
    """Constants that stay, whatever is left out."""

    def __init__(self) -> None:
        super().__init__(fits=())

    def values(self, cases: Sequence[Case]) -> Values:
        return {}


@cache
def published() -> tuple[Residual, ...]:
    tables = [path for path in shipped_tables() if "simumax" in path.stem or "sc21" in path.stem]
    return tuple(residuals_of(validate(tables)))


def made(errors: dict[str, list[float]], kinds: tuple[str, ...] = ()) -> list[Residual]:
    """Runs with these errors, by the trunk of their model."""
    run = next(run for run in published() if not run.standing.kinds)
    return [
        replace(
            run,
            error=error,
            cell=f"{model} {number}",
            standing=replace(run.standing, model=model, kinds=kinds),
        )
        for model, values in errors.items()
        for number, error in enumerate(values)
    ]


def figured(runs: Sequence[Residual]) -> tuple[Novelty, Errors]:
    novelty = Novelty(runs, figures(runs, errors_of()), Unmoved())
    return novelty, novelty.figures()


def test_models_that_differ_widen_a_new_one() -> None:
    alike = made({str(model): [0.01, -0.01, 0.012, -0.012] for model in range(6)})
    apart = made({"a": [0.01, -0.01, 0.012, -0.012], "b": [0.7, 0.71, 0.69, 0.7]})
    assert figured(alike)[1].factors["model"] == pytest.approx(1.0, abs=0.1)
    assert figured(apart)[1].factors["model"] > 3.0


def test_what_is_new_is_never_surer_than_what_is_known() -> None:
    runs = made({"a": [0.2, -0.2, 0.01, -0.3, 0.1, 0.25], "b": [0.01, 0.01]})
    factors = figured(runs)[1].factors
    assert min(factors[name] for name in ("model", "mixture", "kind", "device")) >= factors["known"]


def test_a_level_is_judged_by_runs_whose_bar_it_decides() -> None:
    kind = BY_NAME["kind of plan"]
    assert kind.decides(("model", "kind"))
    assert not kind.decides(("kind", "software"))  # all its runs are of that kind: nothing is left
    assert not kind.decides(("model",))
    assert BY_NAME["scale"].decides(("model",))
    assert not BY_NAME["nothing"].decides(("model",))


@pytest.mark.parametrize(
    ("figure", "below"),
    [("software", "known"), ("size", "model"), ("mixture", "model")],
)
def test_no_factor_is_below_that_of_what_is_new_in_less(figure: str, below: str) -> None:
    runs = made({"a": [0.2, -0.2, 0.01, -0.3, 0.1, 0.25], "b": [0.01, 0.01]})
    rows = [
        replace(row, half=replace(row.half, base=10.0))
        for row in figured(runs)[0].judged["nothing"]
    ]
    surer = {**errors_of().factors, "known": 1.0, below: 1.7}
    errors = replace(errors_of(), factors=surer)
    assert with_level(errors, figure, rows).factors[figure] == pytest.approx(1.7)


def test_a_release_leans_on_what_is_known_where_few_releases_say_so() -> None:
    """Releases scatter less than all of them together; each counts as one run does in a group."""
    runs = made({"a": [0.2, -0.2, 0.01, -0.3, 0.1, 0.25] * 4})
    released = [
        replace(run, standing=replace(run.standing, release=str(number % 4)))
        for number, run in enumerate(runs)
    ]
    rows = [replace(row, half=replace(row.half, base=10.0)) for row in judged_release(released)]
    known = replace(errors_of(), factors={**errors_of().factors, "known": 1.0})
    assert {row.group[1] for row in rows if isinstance(row.group, tuple)} == {"0", "1", "2", "3"}
    assert with_level(known, "release", rows).factors["release"] == pytest.approx(5 / 9, abs=0.03)
    single = [row for row in rows if row.group == rows[0].group]
    assert with_level(known, "release", single).factors["release"] == pytest.approx(5 / 6, abs=0.03)


def judged_release(runs: Sequence[Residual]) -> list[LeftOutRun]:
    return figured(runs)[0].judged["release"]


def test_factors_and_the_reach_agree_with_one_another() -> None:
    """Runs far beyond the others' scale raise the reach, which what is new must not ask for too."""
    runs = published()
    most = max(run.sizes["devices"] for run in runs)
    far = replace(runs[0].standing, sizes={**runs[0].sizes, "devices": 20.0 * most})
    raised = [replace(runs[0], error=0.6, cell=f"far {at}", standing=far) for at in range(3)]
    novelty, errors = figured([*runs, *raised])
    assert errors.reach > novelty.whole.reach
    for level in LEVELS:
        if level.figure in FACTORS:
            again = with_level(errors, level.figure, novelty.judged[level.name])
            assert again.factors == pytest.approx(errors.factors, rel=0.02), level.name


def test_a_factor_has_not_seen_the_table_of_the_run_it_is_judged_by() -> None:
    """A table of huge errors is judged by the small ones of the others, and the other way round."""
    quiet = made({str(model): [0.01, -0.02, 0.015, -0.012] for model in range(6)})
    wild = [
        replace(run, table="wild", error=run.error * 40.0, cell=f"wild {run.cell}",
                standing=replace(run.standing, model=f"wild {run.standing.model}"))
        for run in quiet
    ]  # fmt: skip
    novelty, errors = figured([*quiet, *wild])
    (dense,) = (level for level in novelty.left_out().levels if level.level == "model, dense")
    assert novelty.figures("wild").factors["model"] < errors.factors["model"]
    assert (
        novelty.figures("wild").factors["model"] < novelty.figures(quiet[0].table).factors["model"]
    )
    assert dense.seen is not None
    assert dense.coverage.covered is not None
    assert abs(dense.seen - 0.8) < 0.1 < abs(dense.coverage.covered - dense.seen)


def test_folds_keep_cells_whole() -> None:
    runs = [replace(run, cell=str(n // 2)) for n, run in enumerate(made({"a": [0.0] * 60}))]
    parts = folds(runs)
    assert len(parts) == FOLDS
    assert sum(map(len, parts.values())) == 60
    cells = [{run.cell for run in part} for part in parts.values()]
    assert sum(map(len, cells)) == len(set().union(*cells)) == 30


def test_four_of_five_runs_of_a_left_out_level_lie_inside() -> None:
    random = np.random.default_rng(3)
    runs = [
        replace(run, standing=replace(run.standing, device=f"d{number % 9}"))
        for number, run in enumerate(made({str(m): list(random.normal(0, 0.1, 40)) for m in "ab"}))
    ]
    shifted = {f"d{number}": random.normal(0, 0.3) for number in range(9)}
    runs = [replace(run, error=run.error + shifted[run.device]) for run in runs]
    novelty, errors = figured(runs)
    judged = novelty.judged["device"]
    inside = np.mean([abs(row.error) <= row.half.value(errors) for row in judged])
    assert 0.75 <= inside <= 0.9


def test_every_run_of_a_level_is_judged_without_its_group() -> None:
    runs = list(published())
    rest = without(errors_of(), [run for run in runs if run.device != "b200-sxm"])
    assert all(key[0] != "b200-sxm" for key in rest.groups)
    novelty = Novelty(runs, errors_of(), Unmoved())
    left_out = novelty.left_out()
    assert [level.level for level in left_out.levels] == [
        name
        for name in BY_NAME
        if name != "release"  # of which these tables state none
    ]
    everything = left_out.tables[None]
    assert everything.n == len(runs) == sum(c.n for t, c in left_out.tables.items() if t)


def test_the_largest_scale_is_left_out_where_there_are_others() -> None:
    run = made({"a": [0.0]})[0]
    sized = [
        replace(run, standing=replace(run.standing, sizes={**run.sizes, "devices": devices}))
        for devices in (8.0, 16.0, 40.0, 64.0)
    ]
    ((_, large),) = beyond(sized).items()
    assert [each.sizes["devices"] for each in large] == [40.0, 64.0]
    assert beyond(sized[:1]) == {}


def test_the_widest_models_are_left_out_where_others_are_narrower() -> None:
    run = made({"a": [0.0]})[0]
    sized = [
        replace(run, standing=replace(run.standing, sizes={**run.sizes, "hidden_size": width}))
        for width in (4096.0, 8192.0, 16384.0, 16384.0)
    ]
    ((_, wide),) = widest(sized).items()
    assert [each.sizes["hidden_size"] for each in wide] == [16384.0, 16384.0]
    assert widest(sized[2:]) == {}


def test_software_is_left_out_as_a_whole_and_on_each_of_its_devices() -> None:
    run = made({"a": [0.0]})[0]
    runs = [
        replace(run, standing=replace(run.standing, device=device, software=software))
        for device, software in (("x", "s"), ("y", "s"), ("x", "t"))
    ]
    assert {key: len(left) for key, left in stacks(runs).items()} == {
        "s": 2,
        "t": 1,
        ("x", "s"): 1,
        ("y", "s"): 1,
    }


def test_larger_models_that_are_worse_predicted_widen_larger_ones() -> None:
    runs = made({"a": [0.01, -0.01, 0.012, -0.012] * 3, "b": [0.2, 0.21, 0.19, 0.2]})
    sized = [
        replace(
            run,
            standing=replace(
                run.standing,
                sizes={**run.sizes, "hidden_size": 8192.0 if run.error > 0.1 else 4096.0},
            ),
        )
        for run in runs
    ]
    factors = figured(sized)[1].factors
    assert factors["size"] > 3.0
    assert factors["size"] >= factors["model"] >= factors["known"]


def test_a_run_may_be_in_several_groups() -> None:
    runs = made({"a": [0.0]}, kinds=("ZeRO-3", "fp8 products"))
    assert len(by(lambda run: run.standing.kinds)(runs)) == 2


def test_the_shipped_figures_know_every_level() -> None:
    errors = errors_of()
    assert set(errors.factors) == set(FACTORS)
    assert errors.factors["device"] > errors.factors["model"]
    newer = [factor for level, factor in errors.factors.items() if level != "release"]
    assert min(newer) >= errors.factors["known"] > 0.5
    for level, below in NOT_BELOW.items():
        assert errors.factors[level] >= errors.factors[below]
    assert "32 layers of 4096" in errors.models
