"""Measured anchors from links and constants alone: near, or named with what is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsim.cluster.reader import load_catalog
from parsim.cost.collective.choice import choose
from parsim.cost.collective.group_bandwidth import one_group
from parsim.fitting.collectives.anchors import (
    WITHIN,
    Anchor,
    anchors,
    bridged,
    kept_aside,
    unpredicted,
)
from parsim.validation.collective.validate import UNCALIBRATED, validate_collectives
from parsim.validation.tables import shipped_tables


def test_anchors_are_within_ten_percent_or_say_what_is_known() -> None:
    measured = anchors()
    far = [anchor for anchor in measured if not anchor.within]
    assert len(measured) >= 80
    assert all(anchor.remark for anchor in far)
    assert {(anchor.system, anchor.ranks, round(anchor.size / 2**20)) for anchor in far} == {
        ("dgx-a100", 2, 128),
        ("aws-p5", 16, 64),
        ("aws-p5", 256, 1024),
        ("aws-p4d", 16, 1024),
        ("rtx-4090-node", 4, 8192),
    }


def test_those_of_whole_nodes_on_their_own_switches_are_all_near() -> None:
    """Every anchor of a DGX or HGX with all its devices, and of NVL72."""

    def whole(anchor: Anchor) -> bool:
        return anchor.ranks % 8 == 0 and anchor.system.startswith(("dgx", "hgx", "gb200", "gcp"))

    chosen = [anchor for anchor in anchors() if whole(anchor)]
    assert len(chosen) >= 15
    assert max(abs(anchor.error) for anchor in chosen) <= WITHIN


def test_every_anchor_is_large_and_has_a_source() -> None:
    for anchor in anchors():
        assert anchor.size >= 64 * 2**20
        assert anchor.source
        assert 0.0 < anchor.measured < 1e12


def test_anchors_are_no_table_of_training_runs() -> None:
    assert Path("anchors.csv").name not in {path.name for path in shipped_tables()}


def test_most_rows_gave_no_constant() -> None:
    other = [anchor for anchor in anchors() if not anchor.gave]
    assert len(other) >= 75
    assert sum(anchor.within for anchor in other) >= 0.9 * len(other)


def test_cube_meshes_are_near_by_packets_and_links() -> None:
    measured = [anchor for anchor in anchors() if anchor.system == "dgx-1v"]
    assert len(measured) >= 3
    assert max(abs(anchor.error) for anchor in measured) <= WITHIN


def test_what_has_no_prediction_has_a_reason() -> None:
    assert all(anchor.reason and anchor.source and anchor.measured > 0 for anchor in unpredicted())
    assert "1161" in unpredicted()[0].source


def test_a_pair_of_two_bridges_can_be_written(tmp_path: Path) -> None:
    """NVIDIA/nccl issue 1161: 116 GB/s lie above one bridge and below two."""
    path = tmp_path / "pair.yaml"
    path.write_text(
        "systems:\n"
        "  two-bridges:\n"
        "    from: h100-nvlink-pairs\n"
        "    intra:\n"
        '      bandwidth: [200GB/s, "two of three bridges"]\n'
        "    curves: null\n"
        "    call_overhead: [0us, benchmark]\n"
    )
    system = load_catalog([path]).system("two-bridges")
    size = 4.0 * 2**30
    seconds = choose(system, "all_reduce", size, one_group(system, 2)).seconds
    assert size / seconds == pytest.approx(bridged(2, size), rel=1e-12)
    assert bridged(1, size) < 116.3e9 < bridged(2, size) < bridged(3, size)


def test_curves_that_no_fit_sees_are_near() -> None:
    assert kept_aside() not in shipped_tables("collectives")
    measured = validate_collectives([kept_aside()], modes=(UNCALIBRATED,))
    rows = [row for row in measured.rows if row.size >= 64 * 2**20]
    errors = [row.error(UNCALIBRATED) for row in rows]
    near = [error for error in errors if error is not None and abs(error) <= WITHIN]
    assert len(errors) >= 70
    assert len(near) >= 0.9 * len(errors)
