"""Parts of an hour: each once, bounded, and again only where it is not done."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from executor.first_hour.parts import HourPart, HourParts

ROOT = Path(__file__).parents[3]


def part(name: str, code: str, seconds: float = 30.0) -> HourPart:
    return HourPart(name=name, answers=f"does {name} end?", words=["-c", code], seconds=seconds)


def statuses(out: Path) -> dict[str, str]:
    record = json.loads((out / "parts.json").read_text())
    return {name: entry["status"] for name, entry in record.items()}


@pytest.mark.slow
def test_a_part_that_failed_does_not_end_the_hour(tmp_path: Path) -> None:
    parts = (
        part("wrong", "print('said'); raise SystemExit(3)"),
        part("long", "import time; time.sleep(60)", seconds=1.0),
        part("right", "import os; print(os.getpid())"),
    )
    began = time.monotonic()
    assert HourParts(out=tmp_path, parts=parts, seconds=60.0).run() == 1
    assert time.monotonic() - began < 30.0
    assert statuses(tmp_path) == {"wrong": "failed", "long": "cut short", "right": "done"}
    record = json.loads((tmp_path / "parts.json").read_text())
    assert record["wrong"]["reason"] == "exit code 3; see wrong.log"
    assert record["long"]["reason"] == "its 1 s were over"
    assert (tmp_path / "wrong.log").read_text() == "said\n"


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    counted = f"open({str(tmp_path / 'count')!r}, 'a').write('x')"
    first = (part("a", counted), part("b", "raise SystemExit(1)"))
    assert HourParts(out=tmp_path, parts=first, seconds=60.0).run() == 1
    second = (part("a", counted), part("b", counted))
    assert HourParts(out=tmp_path, parts=second, seconds=60.0).run() == 0
    assert (tmp_path / "count").read_text() == "xx"
    assert statuses(tmp_path) == {"a": "done", "b": "done"}


def test_a_part_without_time_is_left_out(tmp_path: Path) -> None:
    assert HourParts(out=tmp_path, parts=(part("a", ""),), seconds=1.0).run() == 1
    assert statuses(tmp_path) == {"a": "left out"}


def test_a_record_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "parts.json").write_text("[]")
    with pytest.raises(Exception, match="not a record of parts"):
        HourParts(out=tmp_path, parts=(), seconds=1.0)


def test_what_a_test_failed_with_is_known_before_the_tests_behind_it_end(tmp_path: Path) -> None:
    """Their process is killed here, as that of a part whose time is over."""
    path = tmp_path / "test_two.py"
    path.write_text(
        "import os\n"
        "def test_first():\n    assert 2 + 2 == 5, 'a kernel is missing'\n"
        "def test_second():\n    os._exit(9)\n"
    )
    words = ["-p", "executor.first_hour.at_once", "-p", "no:cacheprovider", "-p", "no:xdist"]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "--rootdir", str(tmp_path), *words, str(path)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert ended.returncode == 9
    assert "a kernel is missing" in ended.stdout
