"""Measured anchors from links and constants alone: near, or named with what is known."""

from __future__ import annotations

from pathlib import Path

from parsim.validation.anchors import WITHIN, Anchor, anchors
from parsim.validation.compare import shipped_tables


def test_anchors_are_within_ten_percent_or_say_what_is_known() -> None:
    found = anchors()
    far = [one for one in found if not one.within]
    assert len(found) >= 30
    assert all(one.remark for one in far)
    assert {(one.system, one.ranks, round(one.size / 2**20)) for one in far} == {
        ("a100-nvlink-pairs", 2, 8192),
        ("aws-p6-b200", 32, 128),
        ("aws-p6-b200", 32, 256),
        ("h100-nvlink-pairs", 2, 4096),
    }


def test_those_of_whole_nodes_on_their_own_switches_are_all_near() -> None:
    """Every anchor of a DGX or HGX with all its devices, and of NVL72."""

    def whole(one: Anchor) -> bool:
        return one.ranks % 8 == 0 and one.system.startswith(("dgx", "hgx", "gb200", "gcp"))

    chosen = [one for one in anchors() if whole(one)]
    assert len(chosen) >= 15
    assert max(abs(one.error) for one in chosen) <= WITHIN


def test_every_anchor_is_large_and_has_a_source() -> None:
    for one in anchors():
        assert one.size >= 64 * 2**20
        assert one.source
        assert 0.0 < one.measured < 1e12


def test_anchors_are_no_table_of_training_runs() -> None:
    assert Path("anchors.csv").name not in {path.name for path in shipped_tables()}
