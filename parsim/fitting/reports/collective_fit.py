"""`reports/collectives.md`: constants of collectives, and how far from unseen curves they are."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from parsim.arrays import Array
from parsim.cost.collective.measured_curve import SPREAD, size_class
from parsim.fitting.collectives.catalog_curves import catalog_curves
from parsim.fitting.collectives.fit import GENERATIONS
from parsim.fitting.collectives.points import LEAST_POINTS, Points, load_points
from parsim.fitting.collectives.scores import Scores, score
from parsim.report.markdown import markdown_table
from parsim.sim.confidence.basis import Z80
from parsim.validation.collective.validate import CLASSES, LARGE
from parsim.validation.tables import shipped_tables

INTRODUCTION = """\
# Collectives: constants, curves and errors

Written by `make fit-collectives` (`python -m parsim.fitting.reports.collective_fit
reports/collectives.md`); do not edit. Seconds of a collective are

    latency + S / bandwidth + ramp sqrt(S / 1 MiB)

with S as in nccl-tests. Errors are |predicted / measured - 1| in percent, median / p90 / largest,
over all unflagged points of `parsim/validation/data/collectives`; flagged points (network not
stated, jumps between neighbouring sizes, first calls) are in no fit and in no figure here, and
`parsim validate --collectives` counts them apart."""

METHOD = """\
**uncalibrated**: the constants are fitted to all other curves, and the curve is predicted from its
links (curves of fewer than {least} points: from the constants of all). The network is taken at 0.96
of its interfaces, whatever was measured on it. **calibrated**: latency, bandwidth and ramp of the
curve are fitted to every second size, the error is that of the others, both ways round."""


def fit_report(curves: Sequence[Points], scores: Scores) -> str:
    """The whole report."""
    return "\n".join(_lines(curves, scores)) + "\n"


def _lines(curves: Sequence[Points], scores: Scores) -> Iterator[str]:
    yield INTRODUCTION
    yield ""
    yield from _section("Constants", _constants(scores))
    yield from _section("Errors", _errors(curves, scores))
    yield from _section("Spread of single calls", _spreads(curves, scores))
    yield "## Curves of the catalog"
    yield ""
    yield "All points of a group, sources together; the tool's overhead is taken off."
    yield ""
    yield "```yaml"
    for system, lines in catalog_curves(curves, scores.fitted).items():
        yield f"{system}:"
        yield from (line.removeprefix("    ") for line in lines)
    yield "```"


def _section(title: str, lines: Iterator[str]) -> Iterator[str]:
    """Lines under a title, with what is empty around them."""
    yield f"## {title}"
    yield ""
    yield from lines
    yield ""


def _errors(curves: Sequence[Points], scores: Scores) -> Iterator[str]:
    """How far predictions are from curves that they have not seen, by scope and one by one."""
    yield METHOD.format(least=LEAST_POINTS)
    yield ""
    yield from _by_scope(curves, scores)
    yield ""
    yield "Each curve, sizes of 1 MiB and more:"
    yield ""
    yield from _by_curve(curves, scores)


def _constants(scores: Scores) -> Iterator[str]:
    """The constants that all systems share, by algorithm and generation of NVLink."""
    constants = scores.fitted.constants
    constant_rows = (
        ("ring's share of the link rate (`intra.efficiency`)", scores.fitted.ring, 1.0, ".3f"),
        ("NVLS over ring (`nvls`)", constants.nvls, 1.0, ".3f"),
        ("ramp of an all-reduce of 8 at 1 MiB, us (`ramp`)", constants.ramp, 1e6, ".1f"),
        ("part of a ring's step without sending (`idle`)", constants.idle, 1.0, ".3f"),
    )
    made = GENERATIONS["ring"]
    cells = (
        (name, *(format(values[g] * unit, form) if g in values else "-" for g in made))
        for name, values, unit, form in constant_rows
    )
    yield from markdown_table(("constant", *made), cells)
    yield ""
    yield (
        f"A call of two ranks takes {constants.call * 1e6:.1f} us (`call`); torch's call and "
        f"events add {scores.fitted.torch * 1e6:.1f} us to what nccl-tests and profilers show "
        f"(`CALL_OF_TORCH`). `idle` of bridged pairs: {constants.idle['bridge']:.3f}. "
        f"Not fitted: {constants.hop * 1e6:.1f} us a ring step (NCCL's LL), "
        f"{constants.across_small * 1e6:.0f} us per doubling of the nodes for an empty message and "
        f"{constants.across * 1e6:.0f} from 64 KiB on, and "
        f"{constants.crossings:.0f} times the network's latency beyond "
        f"{constants.usual * 1e6:.0f} us, "
        f"ramp x {constants.ramp_across} across nodes."
    )


def _told(errors: Array) -> str:
    if not len(errors):
        return "-"
    size = 100.0 * np.abs(np.expm1(errors))
    return f"{np.median(size):.1f} / {np.percentile(size, 90):.0f} / {size.max():.0f}"


def _gathered(
    curves: Sequence[Points], scores: Scores, scope: str
) -> dict[str, tuple[Array, Array]]:
    """Sizes and errors of all curves of a scope, per way of predicting."""
    here = [i for i, curve in enumerate(curves) if curve.scope == scope]
    unseen = [scores.unseen[i] for i in here]
    return {
        "uncalibrated": (
            np.concatenate([curves[i].size for i in here]),
            np.concatenate([scores.left_out[i] for i in here]),
        ),
        "calibrated": (
            np.concatenate([sizes for sizes, _ in unseen]),
            np.concatenate([errors for _, errors in unseen]),
        ),
    }


def scopes(curves: Sequence[Points]) -> list[str]:
    """NVLink domain, across nodes, PCIe, as far as there are curves."""
    return list(dict.fromkeys(curve.scope for curve in curves))


def _by_scope(curves: Sequence[Points], scores: Scores) -> Iterator[str]:
    columns = ("where", "", *CLASSES, LARGE, "points")
    yield from markdown_table(columns, _scope_cells(curves, scores), words=(0, 1))


def _scope_cells(curves: Sequence[Points], scores: Scores) -> Iterator[list[object]]:
    for scope in scopes(curves):
        for mode, (sizes, errors) in _gathered(curves, scores, scope).items():
            kind = size_class(sizes)
            cells = [_told(errors[kind == k]) for k in range(len(CLASSES))]
            cells.append(f"**{_told(errors[kind >= 2])}**")
            yield [scope, mode, *cells, len(errors)]


def _by_curve(curves: Sequence[Points], scores: Scores) -> Iterator[str]:
    columns = "system, collective, ranks on nodes, tool | points | uncalibrated | bias | calibrated"
    yield from markdown_table(columns, _curve_cells(curves, scores))


def _curve_cells(curves: Sequence[Points], scores: Scores) -> Iterator[list[object]]:
    for curve, left, (sizes, unseen) in zip(curves, scores.left_out, scores.unseen, strict=True):
        large = left[size_class(curve.size) >= 2]
        calibrated = unseen[size_class(sizes) >= 2]
        bias = 100.0 * np.expm1(large).mean()
        cells = (_told(large), f"{bias:+.1f}", _told(calibrated))
        yield [curve.name, len(curve.size), *cells]


def _spreads(curves: Sequence[Points], scores: Scores) -> Iterator[str]:
    yield "80th percentile of |ln (predicted / measured)| over 1.28, and in brackets the standard"
    yield "deviation that `collective_spread` states (a calibrated figure is one for all places)."
    yield ""
    yield from markdown_table(("rests on", *CLASSES), _spread_cells(curves, scores))


def _spread_cells(curves: Sequence[Points], scores: Scores) -> Iterator[list[str]]:
    parts = [_gathered(curves, scores, scope) for scope in scopes(curves)]
    calibrated = [part["calibrated"] for part in parts]
    table = {
        "measured": (
            np.concatenate([a for a, _ in calibrated]),
            np.concatenate([b for _, b in calibrated]),
        )
    }
    for scope, name in (("NVLink domain", "node"), ("across nodes", "across")):
        table[name] = _gathered(curves, scores, scope)["uncalibrated"]
    words = {"measured": "a measured curve", "node": "links in a node", "across": "a network"}
    for name, (sizes, errors) in table.items():
        cells = []
        for k, stated in enumerate(SPREAD[name]):
            chosen = np.abs(errors[size_class(sizes) == k])
            seen = f"{np.percentile(chosen, 80) / Z80:.2f}" if len(chosen) else "-"
            cells.append(f"{seen} ({stated:.2f})")
        yield [words[name], *cells]


if __name__ == "__main__":
    points = load_points(shipped_tables("collectives"))
    Path(sys.argv[1]).write_text(fit_report(points, score(points)), encoding="utf-8")
