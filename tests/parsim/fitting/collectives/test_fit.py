from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from parsim.cluster.reader import load_catalog
from parsim.cost.collective.kinds import CONSTANTS
from parsim.fitting.collectives.fit import START, FittedCollectives, fit_constants, fit_curve
from parsim.fitting.collectives.points import Points, load_points
from parsim.fitting.collectives.scores import Scores, score
from parsim.fitting.reports.collective_fit import fit_report
from parsim.validation.collective.measured_collective import CALL_OF_TORCH
from parsim.validation.tables import shipped_tables


@pytest.fixture(scope="module")
def curves() -> list[Points]:
    return load_points(shipped_tables("collectives"))


@pytest.fixture(scope="module")
def fitted(curves: list[Points]) -> FittedCollectives:
    return fit_constants(curves)


def large(errors: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """|predicted / measured - 1| of 1 MiB and more."""
    sizes, logs = (np.concatenate(column) for column in zip(*errors, strict=True))
    return np.asarray(np.abs(np.expm1(logs[sizes >= 2**20])))


def test_the_shipped_constants_are_the_fit(fitted: FittedCollectives) -> None:
    refitted = fitted.constants
    assert pytest.approx(refitted.call, rel=0.02) == CONSTANTS.call
    assert fitted.torch == pytest.approx(CALL_OF_TORCH, rel=0.05)
    for made in ("ampere", "hopper", "blackwell"):
        assert CONSTANTS.ramp[made] == pytest.approx(refitted.ramp[made], rel=0.02)
    for made, share in CONSTANTS.nvls.items():
        assert share == pytest.approx(refitted.nvls[made], rel=0.01)
    for id, made in (("dgx-a100", "ampere"), ("dgx-h100", "hopper"), ("dgx-b200", "blackwell")):
        catalogued = load_catalog().systems[id].intra.efficiency
        assert catalogued == pytest.approx(fitted.ring[made], rel=0.005)


def test_the_catalogs_curves_are_the_fit(curves: list[Points], fitted: FittedCollectives) -> None:
    parts: dict[tuple[object, ...], list[Points]] = {}
    for points in curves:
        if not points.algorithm and len(points.size) >= 5:
            key = (
                points.system.id,
                points.kind,
                float(points.where.size[0]),
                float(points.where.nodes[0]),
            )
            parts.setdefault(key, []).append(points)
    assert len(parts) >= 18
    for (system, kind, ranks, nodes), sizes in parts.items():
        (shipped,) = [
            c
            for c in load_catalog().systems[str(system)].curves
            if (c.collective, c.ranks, c.nodes) == (kind, ranks, nodes)
        ]
        shape = fit_curve(sizes, fitted)
        assert shipped.bandwidth == pytest.approx(shape.bandwidth[0], rel=0.01)
        assert shipped.latency == pytest.approx(shape.latency[0], rel=0.02)
        assert shipped.ramp == pytest.approx(shape.ramp[0], rel=0.03)


def test_the_fit_finds_known_constants(curves: list[Points]) -> None:
    """Times made by other constants, at the sizes and groups of the real ones."""
    true = replace(
        START,
        constants=replace(
            START.constants, call=25e-6, ramp={**START.constants.ramp, "hopper": 7e-6}
        ),
        ring={**START.ring, "hopper": 0.80},
    )
    made = [
        replace(curve, seconds=true.on(curve).seconds(curve.size))
        for curve in curves
        if len(curve.size) > 4
    ]
    refitted = fit_constants(made)
    assert refitted.constants.call == pytest.approx(25e-6, rel=0.05)
    assert refitted.constants.ramp["hopper"] == pytest.approx(7e-6, rel=0.1)
    assert refitted.ring["hopper"] == pytest.approx(0.80, rel=0.02)  # the prior holds it a little
    reduced = (
        refitted.ring["hopper"] * refitted.constants.nvls["hopper"]
    )  # many curves show this one
    assert reduced == pytest.approx(0.80 * 0.74, rel=0.005)


@pytest.fixture(scope="module")
def scores(curves: list[Points]) -> Scores:
    return score(curves)


@pytest.mark.slow
def test_curves_that_the_constants_have_not_seen(curves: list[Points], scores: Scores) -> None:
    """1 MiB and more: 5 % (median) within an NVLink domain, 20 % across nodes."""
    for scope, limit in (("NVLink domain", 0.05), ("across nodes", 0.2)):
        errors = [
            (c.size, e) for c, e in zip(curves, scores.left_out, strict=True) if c.scope == scope
        ]
        assert np.median(large(errors)) <= limit


@pytest.mark.slow
def test_sizes_that_a_curve_has_not_seen(curves: list[Points], scores: Scores) -> None:
    """Every second size from the others: 4 % (median) from 1 MiB on."""
    assert np.median(large(list(scores.unseen))) <= 0.04
    report = fit_report(curves, scores)
    assert "| NVLink domain | uncalibrated |" in report
    assert "dgx-h100 all_reduce 8 on 1, nccl-tests" in report
