"""The printout of a calibration: what it could not measure."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from parsim.report.text.calibration import gaps_view


def shown(*gaps: dict[str, Any]) -> list[str]:
    console = Console(width=120)
    with console.capture() as capture:
        console.print(gaps_view({"unmeasured": list(gaps)}))
    return [line.rstrip() for line in capture.get().splitlines()]


def gap(what: str, share: float, reason: str) -> dict[str, Any]:
    return {"kind": what, "what": what, "share": share, "reason": reason}


def test_parts_of_the_step_have_lines_and_the_rest_is_counted() -> None:
    lines = shown(
        gap("head of width 768", 0.28, "time over: about 3.0 s, 1.2 s left"),
        gap("residual", 0.001, "time over"),
        gap("rope", 0.0, "time over: about 1.0 s, 0.0 s left"),
        gap("embedding", 0.0, "not representable: no kernel by itself"),
    )
    assert lines[0].split() == ["not", "measured", "share", "of", "the", "step", "why"]
    assert "head of width 768" in lines[1]
    assert "28.0 %" in lines[1]
    assert "about 3.0 s, 1.2 s left" in lines[1]
    assert lines[2].endswith("in these plans: 2 time over, 1 not representable")
    assert len(lines) == 3


def test_nothing_is_missing() -> None:
    assert shown() == ["whole layers, kernels and collectives of these plans: all measured"]
