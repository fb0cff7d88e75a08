"""Measured bandwidths beside those of topology and catalog alone, as rows of the network page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from parsim.fitting.collectives.anchors import WITHIN, Anchor, anchors, bridged, unpredicted
from parsim.report.text.collectives import size_text
from parsim.validation.collective.validate import UNCALIBRATED, validate_collectives

LARGE = 64 * 2**20
"""Bytes from which on a point of a curve is judged by its bandwidth."""

Row = Sequence[str]


def anchor_row(anchor: Anchor) -> Row:
    """One anchor: where, measured, predicted, signed error."""
    what = f"{anchor.collective} {anchor.algorithm}".strip().replace("_", "-")
    return (
        f"{anchor.nodes} x {anchor.ranks // anchor.nodes} {anchor.system}",
        what,
        size_text(round(anchor.size)),
        f"{anchor.measured / 1e9:.1f}",
        f"{anchor.predicted / 1e9:.1f}",
        f"{100.0 * anchor.error:+.1f} %" if anchor.within else f"**{100.0 * anchor.error:+.1f} %**",
    )


def anchor_summary() -> str:
    """How many anchors, and how many points of public curves, are near."""
    measured = anchors()
    near = sum(anchor.within for anchor in measured)
    other = [anchor.within for anchor in measured if not anchor.gave]
    return (
        f"{near} of {len(measured)} measured bus bandwidths of 64 MiB and more are met within "
        f"{100 * WITHIN:.0f} % from topology and catalog alone, {sum(other)} of "
        f"{len(other)} without those that gave a constant its value"
    )


def curve_points(paths: Sequence[Path]) -> tuple[int, int, list[Row]]:
    """Points of public curves from 64 MiB on without a flag: near, all, and those that are far."""
    validation = validate_collectives(paths, modes=(UNCALIBRATED,))
    chosen = [
        (row, error)
        for row in validation.rows
        if row.size >= LARGE and not row.flag and (error := row.error(UNCALIBRATED)) is not None
    ]
    far: list[Row] = [
        (row.system, row.group, row.kind, size_text(round(row.size)), f"{100.0 * error:+.1f} %")
        for row, error in chosen
        if abs(error) > WITHIN
    ]
    return len(chosen) - len(far), len(chosen), far


def unpredicted_rows() -> list[Row]:
    """Measured bandwidths that nothing is said against, and why."""
    return [
        (row.what, size_text(round(row.size)), f"{row.measured / 1e9:.1f}", row.reason, row.source)
        for row in unpredicted()
    ]


def bridges_text() -> str:
    """What the bridged pair without a prediction would reach by the number of its bridges."""
    pair = unpredicted()[0]
    rates = ", ".join(f"{bridged(count, pair.size) / 1e9:.0f}" for count in (1, 2, 3))
    return (
        f"{pair.what} would reach {rates} GB/s over one, two, three bridges; "
        f"{pair.measured / 1e9:.1f} are measured, so that no number of whole bridges explains it."
    )


def remarks() -> list[str]:
    """What is known of the anchors that are not near, as a Markdown list."""
    return [
        f"- {anchor.nodes} x {anchor.ranks // anchor.nodes} {anchor.system}, "
        f"{size_text(round(anchor.size))}: {anchor.remark} ({anchor.source})."
        for anchor in anchors()
        if not anchor.within
    ]
