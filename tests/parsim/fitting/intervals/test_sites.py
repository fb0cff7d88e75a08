"""What a site adds: from runs set aside for fits, of software that no other table has."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import pytest

from parsim.fitting.intervals.figures import errors_text, residuals_of, site_runs
from parsim.fitting.intervals.residuals import Residual
from parsim.fitting.intervals.sites import with_sites
from parsim.sim.confidence.interval import standing_half, step_interval
from parsim.sim.confidence.known_errors import errors_of, read_errors
from parsim.validation.tables import shipped_tables
from parsim.validation.validate import Validation, validate

ERRORS = replace(
    errors_of(), site=0.0, sites=frozenset(), stacks=errors_of().stacks | {"described"}
)


@cache
def deepspeed() -> Validation:
    return validate([path for path in shipped_tables() if path.stem == "deepspeed_public"])


def made(errors: dict[str, list[float]], software: str = "described") -> list[Residual]:
    """Runs with these errors, by publisher."""
    run = site_runs(deepspeed())[0]
    return [
        replace(
            run,
            error=error,
            standing=replace(run.standing, publisher=publisher, software=software),
        )
        for publisher, values in errors.items()
        for error in values
    ]


def test_only_rows_for_fits_say_what_a_site_adds() -> None:
    apart = site_runs(deepspeed())
    assert len(apart) == 57
    assert {run.run.split for run in apart if run.run} == {"fit"}
    assert residuals_of(deepspeed()) == []


def test_publishers_count_once_and_what_their_bars_hold_counts_not() -> None:
    """Nine near sites and one far one: the corrected quantile of ten lies between, at 0.88."""
    runs = made({**{str(n): [0.001] for n in range(9)}, "far": [0.9] * 40})
    half = standing_half(runs[0].standing, ERRORS, slower=True)
    widened = with_sites(ERRORS, [], runs)
    far = (0.9**2 - half**2) ** 0.5
    assert widened.site == pytest.approx(far * (0.88 - 0.85) / 0.1, rel=1e-6)
    assert widened.sites == {"described"}
    assert with_sites(ERRORS, [], made({"a": [0.0], "b": [0.0], "c": [0.0]})).site == 0.0


def test_software_of_another_table_keeps_its_own_bars() -> None:
    runs = made({"a": [0.5], "b": [0.5]})
    assert with_sites(ERRORS, runs, runs) == ERRORS


def test_a_site_widens_bars_of_its_software_alone() -> None:
    run = site_runs(deepspeed())[0]
    wide = replace(ERRORS, site=0.3, sites=frozenset({run.software}))
    before = standing_half(run.standing, ERRORS, slower=True)
    after = standing_half(run.standing, wide, slower=True)
    assert after**2 - before**2 == pytest.approx(0.3**2)
    basis = step_interval(run.standing, 1.0, wide).basis
    assert f"sites differ under {run.software}, which adds 30.0 %" in basis
    other = replace(run.standing, software="nemo")
    assert step_interval(other, 1.0, wide) == step_interval(other, 1.0, ERRORS)


def test_what_a_site_adds_is_not_hidden_by_bars_of_unknown_software() -> None:
    """Software that these runs alone have is no stranger to them."""
    runs = made({"a": [0.3], "b": [0.3], "c": [0.3]}, software="new")
    assert with_sites(ERRORS, [], runs).site == pytest.approx(
        with_sites(ERRORS, [], made({"a": [0.3], "b": [0.3], "c": [0.3]})).site
    )
    assert "new" in with_sites(ERRORS, [], runs).stacks


def test_the_file_keeps_sites() -> None:
    wide = replace(ERRORS, site=0.3, sites=frozenset({"a", "b"}))
    again = read_errors(json.loads(errors_text(wide)))
    assert (again.site, again.sites) == (0.3, wide.sites)


def test_bars_hold_for_sites_that_no_figure_has_seen() -> None:
    """The judged half: three of four publishers and more, by bars of 2.5 median errors or less."""
    judged = [
        row
        for row in deepspeed().rows
        if row.run and row.error is not None and row.run.split == "judge"
    ]
    by_site: dict[tuple[str, str, str], list[bool]] = {}
    for row in judged:
        assert row.run
        assert row.step_interval
        assert row.measured_step
        site = (row.run.publisher, row.practice, row.device)
        low, high = row.step_interval
        by_site.setdefault(site, []).append(low <= row.measured_step <= high)
    shares = [sum(inside) / len(inside) for inside in by_site.values()]
    assert sum(shares) / len(shares) >= 0.7
