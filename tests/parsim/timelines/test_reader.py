"""Saved timelines: what was written is read back, and a wrong file is told where it is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from parsim.errors import InputError
from parsim.timelines.reader import is_timeline, load_timeline
from parsim.timelines.timeline import Flow, MemoryCurve, Span, Timeline

COLUMNS = "rank, stream, kind, start_s, end_s, stage, microbatch, exposed_s"
ONE = Timeline(
    spans=(
        Span(0, "compute", "F", 0.0, 1 / 3, 0, 0, exposed=0.1),
        Span(1, "compute", "B", 1, 2, 1, 0),
    ),
    flows=(Flow(0, 1),),
    memory=(MemoryCurve(rank=0, times=(0.0, 1.0), bytes=(5.0, 7.0)),),
    critical=(0, 1),
    meta={
        "plan": "pp2",
        "step_time_s": 2,
        "rank_labels": {"0": "pp 0"},
        "pipeline_rank": {"0": 0},
        "spread": {"step_time_s": {"median": 2.0, "n": 5}},
        "peak_allocated_bytes": [7.0, 0.0],
    },
)


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def refused(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        load_timeline(path)
    return str(caught.value)


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    ONE.save(tmp_path / "t.json")
    assert load_timeline(tmp_path / "t.json") == ONE


def test_a_timeline_without_anything_is_loaded(tmp_path: Path) -> None:
    Timeline(spans=()).save(tmp_path / "t.json")
    assert load_timeline(tmp_path / "t.json") == Timeline(spans=())


def test_which_files_say_that_they_are_timelines(tmp_path: Path) -> None:
    ONE.save(tmp_path / "t.json")
    ONE.save(tmp_path / "t.txt")
    scenario = written(tmp_path / "s.json", '{"model": {"name": "gpt2"}}')
    broken = written(tmp_path / "b.json", "{")
    trace = written(tmp_path / "p.json", '{"traceEvents": []}')
    assert [is_timeline(file) for file in (tmp_path / "t.json", trace)] == [True, True]
    others = [tmp_path / "t.txt", scenario, broken, tmp_path / "none.json"]
    assert [is_timeline(file) for file in others] == [False] * 4


# --------------------------------------------------------------------------- files


def test_a_missing_file(tmp_path: Path) -> None:
    ONE.save(tmp_path / "measured.json")
    path = tmp_path / "measurd1.json"
    assert refused(path) == f"{path}: no such file (did you mean 'measured.json'?)"
    assert refused(tmp_path / "no" / "x.json") == f"{tmp_path}/no/x.json: no such file"


def test_a_folder(tmp_path: Path) -> None:
    assert refused(tmp_path) == f"{tmp_path}: is a folder; give one file"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", ":1:1 not JSON: Expecting value"),
        ('{\n"kind": timeline}', ":2:9 not JSON: Expecting value"),
        (b"\xff\xfe\x00", ": is not UTF-8 text: byte 0xff at 0"),
        ("[" * 100_000, ": not JSON that can be read: nested too deeply"),
        ("9" * 10_000, ": not JSON that can be read: a number is too long"),
        ("[1, 2]", ": not a parsim timeline: [1, 2] is no JSON object"),
        (
            "{}",
            ": not a parsim timeline: kind=None, schema_version=None; expected "
            "kind='timeline', schema_version=1",
        ),
        (
            '{"kind": "timeline", "schema_version": 2}',
            ": not a parsim timeline: kind='timeline', schema_version=2; expected "
            "kind='timeline', schema_version=1",
        ),
        (
            '{"traceEvents": []}',
            ": a trace for Perfetto, not a timeline; write that with "
            "`parsim simulate SCENARIO --timeline FILE.json`",
        ),
    ],
    ids=["empty", "word", "binary", "deep", "long", "list", "nothing", "version", "trace"],
)
def test_files_that_are_no_timeline(tmp_path: Path, content: str | bytes, message: str) -> None:
    path = written(tmp_path / "t.json", content)
    assert refused(path) == f"{path}{message}"


def test_a_scenario(tmp_path: Path) -> None:
    assert refused(tmp_path / "s.yaml") == (
        f"{tmp_path}/s.yaml: a scenario, not a timeline; write its timeline with "
        f"`parsim simulate {tmp_path}/s.yaml --timeline FILE.json`"
    )


# --------------------------------------------------------------------------- shapes


def put(*path: Any, value: Any) -> Callable[[Any], None]:
    """An edit of the document: the value at a path of keys and positions."""

    def edit(document: Any) -> None:
        for key in path[:-1]:
            document = document[key]
        document[path[-1]] = value

    return edit


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (put("columns", value=["rank"]), f"columns must be {COLUMNS}; got ['rank']"),
        (put("spans", value=None), "spans must be a list, got None"),
        (
            put("spans", 1, value=[0, "compute"]),
            f"spans[1] must be a list of 8 values ({COLUMNS}), got [0, 'compute']",
        ),
        (
            put("spans", 1, value={"rank": 0}),
            f"spans[1] must be a list of 8 values ({COLUMNS}), got {{'rank': 0}}",
        ),
        (put("spans", 1, 0, value="0"), "spans[1] rank must be a whole number, got '0'"),
        (put("spans", 1, 0, value=True), "spans[1] rank must be a whole number, got True"),
        (put("spans", 1, 0, value=-1), "spans[1] rank=-1 must be at least 0"),
        (put("spans", 0, 1, value=3), "spans[0] stream must be a text, got 3"),
        (
            put("spans", 0, 3, value="x" * 99),
            f"spans[0] start_s must be a finite number, got '{'x' * 76}...",
        ),
        (put("spans", 0, 4, value=float("nan")), "spans[0] end_s must be a finite number, got nan"),
        (put("spans", 0, 4, value=float("inf")), "spans[0] end_s must be a finite number, got inf"),
        (put("spans", 0, 4, value=-1.0), "spans[0] ends before it starts: start_s=0.0, end_s=-1.0"),
        (put("flows", 0, value=[0, 2]), "flows[0] names span 2 of 2; the first is 0"),
        (
            put("flows", 0, value=[0]),
            "flows[0] must be a list of 2 values (source, target), got [0]",
        ),
        (put("critical", 1, value=-1), "critical[1] names span -1 of 2; the first is 0"),
        (put("critical", 0, value=0.5), "critical[0] must be a whole number, got 0.5"),
        (put("memory", 0, value=[]), "memory[0] must be an object, got []"),
        (put("memory", 0, "rank", value=None), "memory[0].rank must be a whole number, got None"),
        (
            put("memory", 0, "times_s", 1, value="1"),
            "memory[0].times_s[1] must be a finite number, got '1'",
        ),
        (
            put("memory", 0, "times_s", value=[0.0]),
            "memory[0] has 1 times_s and 2 allocated_bytes; give as many",
        ),
        (put("meta", value=[]), "meta must be an object, got []"),
        (
            put("meta", "step_time_s", value="2s"),
            "meta.step_time_s must be a finite number, got '2s'",
        ),
        (put("meta", "parameters", value=0.5), "meta.parameters must be a whole number, got 0.5"),
        (put("meta", "rank_labels", value=[]), "meta.rank_labels must be an object, got []"),
        (
            put("meta", "pipeline_rank", value={"x": 0}),
            "meta.pipeline_rank must have ranks as keys, got 'x'",
        ),
        (
            put("meta", "pipeline_rank", value={"Q" * 500: 0}),
            f"meta.pipeline_rank must have ranks as keys, got '{'Q' * 76}...",
        ),
        (
            put("meta", "pipeline_rank", "0", value="0"),
            "meta.pipeline_rank.0 must be a whole number, got '0'",
        ),
        (
            put("meta", "spread", "step_time_s", value=3),
            "meta.spread.step_time_s must be an object, got 3",
        ),
        (
            put("meta", "spread", "step_time_s", "n", value="5"),
            "meta.spread.step_time_s.n must be a finite number, got '5'",
        ),
        (
            put("meta", "peak_allocated_bytes", 0, value="7GiB"),
            "meta.peak_allocated_bytes must be a finite number, got '7GiB'",
        ),
    ],
)
def test_parts_of_the_wrong_shape(
    tmp_path: Path, edit: Callable[[Any], None], message: str
) -> None:
    document = json.loads(json.dumps(ONE.to_json()))
    edit(document)
    path = written(tmp_path / "t.json", json.dumps(document))
    assert refused(path) == f"{path}: {message}"


@pytest.mark.parametrize("part", ["spans", "flows", "memory", "critical", "meta", "columns"])
def test_a_part_that_is_missing(tmp_path: Path, part: str) -> None:
    document = ONE.to_json()
    del document[part]
    path = written(tmp_path / "t.json", json.dumps(document))
    assert refused(path).startswith(f"{path}: {part} must be ")


def test_parts_of_a_memory_curve_are_loaded(tmp_path: Path) -> None:
    curve = MemoryCurve(
        rank=0, times=(0.0, 1.0), bytes=(7.0, 5.0), static=5.0, activations=(1.5, 0.0)
    )
    assert curve.buffers == (0.5, 0.0)
    Timeline(spans=(), memory=(curve,)).save(tmp_path / "t.json")
    assert load_timeline(tmp_path / "t.json").memory == (curve,)


def test_parts_that_are_too_few_are_refused(tmp_path: Path) -> None:
    curve = MemoryCurve(rank=0, times=(0.0, 1.0), bytes=(7.0, 5.0), activations=(1.5,))
    Timeline(spans=(), memory=(curve,)).save(tmp_path / "t.json")
    assert refused(tmp_path / "t.json").endswith(
        "memory[0] has 2 times_s and 1 activations_bytes; give as many"
    )
