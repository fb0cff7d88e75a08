"""What a calibrated file says of itself is read back, and impossible values are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsim.cluster.evidence import RecordedStep
from parsim.cluster.hardware import Device
from parsim.cluster.reader import load_catalog
from parsim.errors import ScenarioError

RUN = (
    '{date: "2026-11-22", model: gpt2, plan: "tp1 dp2", split: none, sharded: false, ranks: 2, '
    "n: 10, forward: 1.03, backward: 1.02, optimizer: 1.3, step: 1.04, left: 1.01}"
)
FILE = """
devices:
  my-cpu:
    from: cpu
    calibrated: true
    spreads: {clock: 0.012, block_forward: 0.03}
    unmeasured: {sequence_block: "time over: about 5 s, 2 s left"}
    steps:
      - RUN
"""


def read(folder: Path, text: str) -> Device:
    path = folder / "device.yaml"
    path.write_text(text)
    return load_catalog([path]).device("my-cpu")


def test_a_file_says_how_sure_it_is(tmp_path: Path) -> None:
    device = read(tmp_path, FILE.replace("RUN", RUN))
    assert device.spreads == {"clock": 0.012, "block_forward": 0.03}
    assert device.unmeasured == {"sequence_block": "time over: about 5 s, 2 s left"}
    assert device.steps == (
        RecordedStep(
            date="2026-11-22",
            model="gpt2",
            plan="tp1 dp2",
            split="none",
            sharded=False,
            ranks=2,
            n=10,
            forward=1.03,
            backward=1.02,
            optimizer=1.3,
            step=1.04,
            left=1.01,
        ),
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("clock: 0.012", "clock: -1", "must be a number from 0 to 5"),
        ("clock: 0.012", "clock: nan", "must be a number from 0 to 5"),
        ("split: none", "split: half", "must be one of: none, tensor, sequence"),
        ("forward: 1.03", "forward: 70", "must be within 0.1 to 10"),
        ("ranks: 2", "ranks: 0", "must be a whole number of at least 1"),
        ("sharded: false", "sharded: 3", "is no truth value"),
        ("model: gpt2, ", "", "has a run without model"),
        ("n: 10", "m: 10", "unknown field 'm'"),
        ('"2026-11-22"', "yesterday", "Invalid isoformat"),
        ('"time over: about 5 s, 2 s left"', '" "', "must say why"),
    ],
)
def test_impossible_evidence_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        read(tmp_path, FILE.replace("RUN", RUN).replace(old, new))
