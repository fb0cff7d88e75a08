"""The command line with files: pictures of timelines, tables of measured runs, reports."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from parsim.validation.tables import shipped_tables
from tests.commands import SMALL, Cli, write_rows
from tests.parsim.report.timeline.test_trace import check as check_trace

# --------------------------------------------------------------------------- timeline


class Tags(HTMLParser):
    """Collects what a page opens."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)


def test_timeline_as_png(cli: Cli, tmp_path: Path) -> None:
    picture = tmp_path / "sub" / "x.png"
    done = cli("timeline", SMALL, "-o", picture, "--memory", "--critical")
    assert (done.code, done.err) == (0, f"timeline written to {picture}\n")
    assert "gpt2 on 1 x cpu" in done.out  # the answer in a box
    assert picture.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_timeline_as_svg(cli: Cli, tmp_path: Path) -> None:
    assert cli("timeline", SMALL, "--output", tmp_path / "x.svg", "--until", 1.5).code == 0
    assert ElementTree.parse(tmp_path / "x.svg").getroot().tag == "{http://www.w3.org/2000/svg}svg"


def test_timeline_as_html(cli: Cli, tmp_path: Path) -> None:
    assert cli("timeline", SMALL, "-o", tmp_path / "x.html").code == 0
    text, tags = (tmp_path / "x.html").read_text(encoding="utf-8"), Tags()
    tags.feed(text)
    assert {"html", "svg"} <= set(tags.seen)
    assert "124,439,808 parameters" in text


def test_timeline_as_json(cli: Cli, tmp_path: Path) -> None:
    step = cli("simulate", SMALL, "--json").document["step_time_s"]
    assert cli("timeline", SMALL, "-o", tmp_path / "x.json").code == 0
    document = json.loads((tmp_path / "x.json").read_text(encoding="utf-8"))
    check_trace(document)
    slices = [event for event in document["traceEvents"] if event["ph"] == "X"]
    forwards = [event for event in slices if event["cat"] == "F"]
    assert len(forwards) == 2 * 4  # ranks x micro-batches
    assert max(event["ts"] + event["dur"] for event in slices) <= step * 1e6 * (1 + 1e-6)


# --------------------------------------------------------------------------- validate


def test_the_document_of_validate_is_the_contract(cli: Cli, tmp_path: Path) -> None:
    table = write_rows(tmp_path / "mine.csv", {"peak_memory_gib": "50"}, {"tp": "two"})
    done = cli("validate", table, "--json")
    good, bad = done.document["rows"]
    summary = done.document["summary"]["mine"]
    assert (done.code, done.err) == (0, "")
    assert (good["status"], good["reason"]) == ("ok", "")
    assert good["table"] == "mine"
    assert good["row_id"] == "megatron_sc21_table1_weak_scaling-0001"
    assert good["measured_step_time_s"] == 3.528
    assert good["error"] == good["predicted_step_time_s"] / 3.528 - 1
    assert good["measured_peak_memory_bytes"] == 50 * 2**30
    predicted = good["predicted_peak_allocated_bytes"]
    assert good["memory_error"] == predicted / (50 * 2**30) - 1
    assert (bad["status"], bad["reason"]) == ("skipped", "tp='two' is not a whole number")
    assert set(bad) == set(good)
    assert all(bad[name] is None for name in bad if "error" in name or "predicted" in name)
    size = abs(good["error"])
    assert summary == {
        "n": 1,
        "n_skipped": 1,
        "mean_abs_error": size,
        "median_abs_error": size,
        "p90_abs_error": size,
        "max_abs_error": size,
        "bias": good["error"],
    }


@pytest.mark.slow
def test_every_shipped_table_is_validated_and_reported(cli: Cli, tmp_path: Path) -> None:
    report = tmp_path / "accuracy.md"
    done = cli("validate", "--report", report)
    names = [path.stem for path in shipped_tables()]
    assert done.code == 0
    assert len(names) == 46
    # a table with mixtures of experts has two lines more: "TABLE, dense", "TABLE, mixtures ..."
    steps = done.out.split("\n\n")[0].splitlines()[2:]
    told = [line.split()[0] for line in steps]
    vision = ["cnn_public", "lambda_resnet50_2023", "timm_train_2022"]
    vision += ["torchgpipe_amoebanet_public", "convnet_benchmarks_2016"]
    vision += ["deep_learning_benchmark_2018", "deeplearningexamples_networks"]
    vision += ["deeplearningexamples_translation"]
    vision += ["goyal_2017", "horovod_2017", "mxnet_one_device", "mxnet_scaling_2016"]
    vision += ["tensorflow_benchmarks_2017", "torch_benchmarks_2016"]
    assert [name for name in told if not name.endswith(",")] == names + vision
    assert done.err.splitlines()[-1] == f"report written to {report}"
    text = report.read_text(encoding="utf-8")
    assert all(f"\n## {name}\n" in text for name in names)
    assert f"`parsim validate --report {report}`" in text


def test_verbose_prints_the_assumptions(cli: Cli, tmp_path: Path) -> None:
    table = write_rows(tmp_path / "mine.csv", {})
    brief, verbose = cli("validate", table).out, cli("validate", table, "-v").out
    assert verbose.startswith(brief)
    assert "unstated switches" not in brief
    assert "megatron-2021: Megatron-LM of 2021" in verbose
    assert "unstated switches: precision=fp16 recompute=full zero_stage=0" in verbose


def test_an_unknown_stack_and_system_are_told(cli: Cli, tmp_path: Path) -> None:
    table = write_rows(tmp_path / "mine.csv", {"stack": "own", "system": "cloud"})
    done = cli("validate", table)
    assert done.code == 0
    assert done.err.splitlines() == [
        "note: unknown stack 'own': generic assumptions",
        "note: unknown system 'cloud': built from dgx-a100",
    ]


def test_texts_of_a_table_are_no_markup(cli: Cli, tmp_path: Path) -> None:
    table = write_rows(tmp_path / "mine.csv", {"row_id": "[bold]:cat:"}, {"tp": "[/x]"})
    done = cli("validate", table)
    assert done.code == 0
    assert "[bold]:cat:" in done.out
    assert "tp='[/x]' is not a whole number" in done.out
