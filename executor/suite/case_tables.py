"""Tables of a suite: steps and memory of cases, parts of a step, ranks that share a device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from executor.suite.predict import KINDS
from executor.suite.results import Pair, Result
from parsim.report.markdown import markdown_table
from parsim.units import GIB, MIB, format_seconds, percent

NOISY = 0.03
"""A case whose steps deviate by more than this share of their median is marked."""


OUTSIDE = " (outside)"
"""Behind an error whose step lies outside of its 80 % interval."""


def case_table(results: Sequence[Result]) -> Iterator[str]:
    """Each case: step time and peak memory, predicted and measured."""
    if not results:
        return
    yield from markdown_table(
        "case | plan | predicted | median | MAD | least | n | error | "
        "peak predicted | measured | error | MFU | loss",
        map(_case_cells, results),
        words=(0, 1),
    )


def _case_cells(result: Result) -> list[object]:
    noisy = result.mad > NOISY * result.step_time.measured
    return [
        result.name,
        f"{result.plan} {result.precision}",
        format_seconds(result.step_time.predicted),
        format_seconds(result.step_time.measured),
        f"{percent(result.mad / result.step_time.measured)}{' (noisy)' if noisy else ''}",
        format_seconds(result.least),
        result.steps,
        f"{percent(result.step_time.error, signed=True)}{OUTSIDE * (result.inside is False)}",
        _bytes(result.peak.predicted),
        _bytes(result.peak.measured),
        percent(result.peak.error, signed=True),
        percent(result.mfu),
        f"{result.loss[0]:.3f} -> {result.loss[1]:.3f}",
    ]


def _bytes(amount: float) -> str:
    """With digits enough that 3 % show."""
    return f"{amount / GIB:.2f} GiB" if amount >= GIB else f"{amount / MIB:.1f} MiB"


def part_table(results: Sequence[Result]) -> Iterator[str]:
    """Predicted / measured and error of each part: of forward and backward the mean action."""
    shown = [name for name in KINDS if any(name in result.kinds for result in results)]
    if not shown:
        return
    yield "Predicted / measured, error, of one recorded step. Forward, backward and optimizer are"
    yield "mean lengths of one action; the others are seconds of a step, mean over ranks."
    yield ""
    yield from markdown_table(
        ["case", *(name.replace("_", " ") for name in shown)],
        ([each.name, *(_part(each.kinds.get(name)) for name in shown)] for each in results),
    )


def _part(pair: Pair | None) -> str:
    if pair is None or not (pair.predicted or pair.measured):
        return "-"
    both = f"{format_seconds(pair.predicted)} / {format_seconds(pair.measured)}"
    return both if pair.error is None else f"{both}, {percent(pair.error, signed=True)}"


def shared_table(results: Sequence[Result]) -> Iterator[str]:
    """Cases whose ranks share one device, which count in no figure of accuracy."""
    shared = [result for result in results if not result.counted]
    if not shared:
        return
    yield "Their correctness is real, their speed is not that of as many devices: they are in no"
    yield "figure of accuracy."
    yield ""
    yield from markdown_table(
        "case | plan | how | median | peak predicted | measured | loss",
        map(_shared_cells, shared),
        words=(0, 1, 2),
    )


def _shared_cells(result: Result) -> list[str]:
    return [
        result.name,
        result.plan,
        result.label,
        format_seconds(result.step_time.measured),
        _bytes(result.peak.predicted),
        _bytes(result.peak.measured),
        f"{result.loss[0]:.3f} -> {result.loss[1]:.3f}",
    ]
