"""The tool that compares two checkouts: what it calls the same, and that every case has an id."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from tests.tools.same_numbers.__main__ import main
from tests.tools.same_numbers.case import settings
from tests.tools.same_numbers.cases import all_cases, cheap_first, chosen_cases
from tests.tools.same_numbers.compare import judge
from tests.tools.same_numbers.worker import outline


def case(stdout: Any, sha: str = "") -> dict[str, Any]:
    """A recorded case of one command."""
    return {"commands": {"json": {"stdout": stdout, "stdout_sha256": sha}}, "files": {}}


@pytest.mark.parametrize(
    ("before", "after", "rtol", "verdict"),
    [
        ({"a": 1.0}, {"a": 1.0}, 0.0, "identical"),
        ({"a": 1.0}, {"a": 1.0 + 1e-15}, 0.0, "different"),
        ({"a": 1.0}, {"a": 1.0 + 1e-15}, 1e-12, "rounding"),
        ({"a": 1.0}, {"a": 1}, 1e-12, "different"),
        ({"a": 1.0}, {"a": None}, 1e-12, "different"),
        ({"a": [1.0]}, {"a": [1.0, 2.0]}, 1e-12, "different"),
        ({"a": 0.0}, {"a": 1e-300}, 1e-12, "different"),
        ({"a": float("nan")}, {"a": float("nan")}, 0.0, "identical"),
        (["took 1.000 s"], ["took 1.001 s"], 0.0, "different"),
        (["took 1.000 s"], ["took  1.001 s"], 0.01, "rounding"),
        (["took 1.000 s"], ["needs 1.000 s"], 0.01, "different"),
        (["1,024 of zero3"], ["1,024 of zero2"], 0.9, "different"),
    ],
)
def test_what_is_the_same(before: Any, after: Any, rtol: float, verdict: str) -> None:
    assert judge(case(before), case(after), rtol)[0] == verdict


def test_an_order_of_keys_is_told_apart() -> None:
    assert judge(case({}, "a"), case({}, "b"), 0.0)[0] == "same values in other text"


def test_keys_that_may_come_and_go() -> None:
    cases = case({"a": 1}), case({"a": 1, "b": [{"c": 2}]})
    assert judge(*cases, 0.0, {"b"})[0] == "identical but for ignored keys"
    assert judge(*cases, 0.0, {"c"})[0] == "different"


def test_a_long_document_is_judged_by_its_sums_where_it_may_be_rounded() -> None:
    document: dict[str, Any] = {"spans": [{"end_s": 1.0, "rank": 0}, {"end_s": 2.0, "rank": 1}]}
    entries = [document, copy.deepcopy(document), copy.deepcopy(document)]
    entries[1]["spans"][0]["end_s"] += 1e-14
    entries[2]["spans"][0]["rank"] = 1
    first, rounded, other = (
        {"commands": {}, "files": {"t.json": {"sha256": str(i), "outline": outline(entry)}}}
        for i, entry in enumerate(entries)
    )
    assert judge(first, rounded, 0.0)[0] == "different"
    assert judge(first, rounded, 1e-12)[0] == "rounding"
    assert judge(first, other, 1e-12)[0] == "different"


def test_every_case_has_an_id_of_its_own() -> None:
    names = [each.id for each in all_cases()]
    assert len(names) == len(set(names))
    assert 0 < len(chosen_cases(None, quick=True)) < len(names) / 3
    assert [each.id for each in chosen_cases("schedule/zb_h1", quick=False)] == ["schedule/zb_h1"]


def test_settings_are_cut_before_a_key() -> None:
    text = "plan={tp: 2, dp: 4} background.streams.x={from: a, to: b} software=nemo"
    assert settings(text)[1::2] == (
        "plan={tp: 2, dp: 4}",
        "background.streams.x={from: a, to: b}",
        "software=nemo",
    )


def test_two_recordings_of_one_checkout_are_identical(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        words = ("record", str(folder), "--only", "events/gpt2-small-cpu", "--workers", "1")
        assert main(words) == 0
    assert main(["compare", *map(str, folders)]) == 0
    assert capsys.readouterr().out.endswith("1 cases: 1 identical\n")
    path = folders[1] / "events/gpt2-small-cpu.json"
    entry = json.loads(path.read_text(encoding="utf-8"))
    entry["commands"]["json"]["stdout"]["step_time_s"] *= 1.5
    path.write_text(json.dumps(entry), encoding="utf-8")
    assert main(["compare", *map(str, folders)]) == 1
    assert "commands.json.stdout.step_time_s: " in capsys.readouterr().out


def test_few_minutes_hold_the_short_run_and_then_cheap_cases() -> None:
    cases = cheap_first(all_cases())
    short = sum(case.quick for case in cases)
    assert all(case.quick for case in cases[:short])
    assert [case.seconds for case in cases[short:]] == sorted(
        case.seconds for case in cases[short:]
    )


def test_a_recording_of_no_minutes_begins_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["record", str(tmp_path / "a"), "--minutes", "-1", "--workers", "1"]) == 0
    assert "0 cases" in capsys.readouterr().out
    assert main(["record", str(tmp_path / "b"), "--like", str(tmp_path / "a")]) == 0
    assert "0 cases" in capsys.readouterr().out
