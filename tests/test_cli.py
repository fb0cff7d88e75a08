"""The command line on good input: documents, pictures, files, and what goes to which stream."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pytest

import parsim
from parsim.cli import main
from parsim.validation.compare import shipped_tables
from tests.parsim.report.test_trace import check as check_trace

ROOT = Path(__file__).parent.parent
SCENARIOS = sorted((ROOT / "scenarios").glob("*.yaml"))
SMALL = str(ROOT / "scenarios" / "gpt2-small-cpu.yaml")
GPT3 = str(ROOT / "scenarios" / "gpt3-175b-dgx-a100.yaml")
LLAMA = str(ROOT / "scenarios" / "llama3-8b-dgx-h100.yaml")
COMMANDS = ("check", "simulate", "search", "timeline", "validate", "catalog")


class Ran(NamedTuple):
    """What a command ended with and wrote."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON document on stdout, without NaN or Infinity."""
        found: dict[str, Any] = json.loads(self.out, parse_constant=pytest.fail)
        return found


Cli = Callable[..., Ran]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    def run(*words: object) -> Ran:
        code = main([str(word) for word in words])
        return Ran(code, *capsys.readouterr())

    return run


def process(*words: object, **environment: str) -> Ran:
    """The same in a process of its own, whose streams are pipes."""
    done = subprocess.run(
        [sys.executable, "-m", "parsim", *map(str, words)],
        env=os.environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm-256color"} | environment,
        capture_output=True,
    )
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


def write_rows(path: Path, *changes: dict[str, str]) -> Path:
    """A table of the user's: the first row of a shipped one, with changes."""
    table = next(path for path in shipped_tables() if "sc21_table1" in path.name)
    with table.open(encoding="utf-8", newline="") as file:
        row = next(csv.DictReader(file))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(row))
        writer.writeheader()
        writer.writerows({**row, **change} for change in changes)
    return path


# --------------------------------------------------------------------------- help and version


@pytest.mark.parametrize("flag", ["-h", "--help"])
@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_is_a_result(cli: Cli, command: str, flag: str) -> None:
    done = cli(*filter(None, [command]), flag)
    assert (done.code, done.err) == (0, "")
    assert "Usage:" in done.out


def test_help_names_every_command(cli: Cli) -> None:
    assert all(f" {command} " in cli("--help").out for command in COMMANDS)


def test_no_arguments_show_the_help(cli: Cli) -> None:
    done = cli()
    assert (done.code, done.err) == (2, "")
    assert done.out.strip() == cli("--help").out.strip()


def test_version(cli: Cli) -> None:
    assert cli("--version") == (0, f"parsim {parsim.__version__}\n", "")


# --------------------------------------------------------------------------- check and catalog


def test_check_says_what_a_scenario_resolves_to(cli: Cli) -> None:
    done = cli("check", LLAMA)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        f"{LLAMA}: ok",
        "  model    llama3-8b: 8,030,261,248 parameters, 32 layers, 8192 tokens",
        "  cluster  1 x dgx-h100: 8 x h100-sxm-80gb",
        "  software torchtitan: torchtitan with FSDP2 and torch.compile where the row says so",
        "  batch    16 sequences per step",
        "  plan     tp1 pp1 dp8 mb1 m2 no-pipeline zero3",
    ]


def test_check_as_a_document(cli: Cli) -> None:
    found = cli("check", LLAMA, "--json").document
    assert found["schema_version"] == 1
    assert found["model"]["parameters"] == 8_030_261_248
    assert found["cluster"] == {
        "system": "dgx-h100",
        "nodes": 1,
        "devices": 8,
        "device": "h100-sxm-80gb",
    }
    assert found["plan"]["dp_shard"] == found["plan"]["world_size"] == 8


@pytest.mark.parametrize(
    ("kind", "one"),
    [
        ("devices", "gb200"),
        ("systems", "gb200-nvl72"),
        ("models", "llama3.1-405b"),
        ("schedules", "interleaved_1f1b"),
        ("software", "megatron-2021"),
    ],
)
def test_catalogs(cli: Cli, kind: str, one: str) -> None:
    rows = cli("catalog", kind, "--json").document[kind]
    printed = cli("catalog", kind)
    assert one in [row["id"] for row in rows]
    assert all(row["id"] in printed.out for row in rows)
    assert (printed.code, printed.err) == (0, "")


# --------------------------------------------------------------------------- simulate


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda path: path.stem)
def test_every_shipped_scenario_has_a_step(cli: Cli, scenario: Path) -> None:
    done = cli("simulate", scenario, "--json")
    found = done.document
    assert (done.code, done.err) == (0, "")
    assert found["step_time_s"] == pytest.approx(sum(found["breakdown_s"].values()), rel=1e-9)
    assert max(found["peak_allocated_bytes"]) == pytest.approx(sum(found["memory_bytes"].values()))
    assert len(found["peak_allocated_bytes"]) == found["plan"]["pp"]
    assert max(found["peak_allocated_bytes"]) < found["device_memory_bytes"]
    assert 0 < found["mfu"] <= found["hfu"] < 1
    assert 0 <= found["bubble_fraction"] < 1


def test_the_document_of_simulate_is_the_contract(cli: Cli) -> None:
    found = cli("simulate", SMALL, "--json").document
    assert type(found["schema_version"]) is int
    assert type(found["plan"]) is dict
    for name in ("step_time_s", "tokens_per_s", "mfu", "hfu", "bubble_fraction", "bubble_overhead"):
        assert type(found[name]) is float, name
    assert [type(one) for one in found["peak_allocated_bytes"]] == [float, float]
    for name in ("breakdown_s", "memory_bytes"):
        assert {type(value) for value in found[name].values()} == {float}
    idle = found["bubble_fraction"]
    assert found["bubble_overhead"] == pytest.approx(idle / (1 - idle))
    assert found["tokens_per_s"] == pytest.approx(4 * 128 / found["step_time_s"])


def test_simulate_in_words(cli: Cli) -> None:
    done = cli("simulate", SMALL)
    document = cli("simulate", SMALL, "--json").document
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("tp1 pp2 dp1 mb1 m4 1f1b\n")
    assert f"step time  {document['step_time_s']:.3f} s" in done.out
    assert f"{100 * document['bubble_fraction']:.1f} % of the pipeline phase" in done.out
    assert "of 0 TFLOP/s" not in done.out


def test_the_event_tier_says_the_same(cli: Cli) -> None:
    plain = cli("simulate", SMALL, "--json").document
    events = cli("simulate", SMALL, "--events", "--json").document
    assert events["step_time_s"] == pytest.approx(plain["step_time_s"], rel=1e-12)


def test_a_field_can_be_set(cli: Cli) -> None:
    found = cli("simulate", SMALL, "--json", "--set", "plan.schedule=gpipe",
                "--set", "training.global_batch_size=8").document  # fmt: skip
    assert found["plan"]["schedule"] == "gpipe"
    assert found["plan"]["num_microbatches"] == 8


def test_what_is_assumed_goes_to_stderr(cli: Cli) -> None:
    done = cli("simulate", SMALL, "--json", "--set", "software=null")
    assert done.err == "note: software is not stated: 'generic' is assumed\n"
    assert done.document == cli("simulate", SMALL, "--json").document


# --------------------------------------------------------------------------- search


def test_the_document_of_search_is_the_contract(cli: Cli) -> None:
    done = cli("search", SMALL, "--json", "--top", 200)
    found, counts = done.document, done.document["counts"]
    assert (done.code, done.err) == (0, "")
    assert set(found) == {"schema_version", "plans", "counts", "optimality"}
    assert set(counts) == {"enumerated", "illegal", "out_of_memory", "evaluated"}
    assert counts["enumerated"] == (
        counts["illegal"] + counts["out_of_memory"] + counts["evaluated"]
    )
    assert len(found["plans"]) == counts["evaluated"] > 20
    for plan in found["plans"]:
        assert type(plan["plan"]) is dict
        for name in ("step_time_s", "mfu", "bubble_fraction", "peak_allocated_bytes"):
            assert type(plan[name]) is float
    times = [plan["step_time_s"] for plan in found["plans"]]
    assert times == sorted(times)
    assert type(found["optimality"]) is str


def test_search_in_words(cli: Cli) -> None:
    done = cli("search", SMALL, "--top", 3)
    counts = cli("search", SMALL, "--json").document["counts"]
    assert done.code == 0
    assert [line.split()[0] for line in done.out.splitlines()[:4]] == ["#", "1", "2", "3"]
    assert f"{counts['enumerated']} plans: {counts['illegal']} illegal, 0 out of" in done.out
    assert f"{counts['evaluated']} ranked" in done.out


def test_the_main_job_in_a_small_space(cli: Cli) -> None:
    space = {"tp": "8", "pp": "8", "microbatch_size": "[1, 2]", "zero_stage": "[0, 1]",
             "schedule": "[1f1b, interleaved_1f1b]", "v": "[1, 3]"}  # fmt: skip
    words = [word for key, value in space.items() for word in ("--set", f"search.{key}={value}")]
    found = cli("search", GPT3, "--json", "--top", 1000, *words).document
    counts = found["counts"]
    # mb 2 x (1f1b, interleaved v3) x zero 2 x recompute 3 x sequence parallelism 2
    assert counts["enumerated"] == 2 * 2 * 2 * 3 * 2
    assert counts["illegal"] == 0
    assert counts["out_of_memory"] > 0
    assert len(found["plans"]) == counts["evaluated"] > 0
    own = cli("simulate", GPT3, "--json").document
    assert found["plans"][0]["step_time_s"] <= own["step_time_s"]


def test_a_saved_plan_is_the_one_that_was_found(cli: Cli, tmp_path: Path) -> None:
    saved = tmp_path / "new" / "best.yaml"
    found = cli("search", LLAMA, "--json", "--save", saved, "--set", "search.tp=[1, 2]")
    best = found.document["plans"][0]
    again = cli("simulate", saved, "--json").document
    assert found.err == f"best plan written to {saved}\n"
    assert again["plan"] == best["plan"]
    assert again["step_time_s"] == pytest.approx(best["step_time_s"], rel=1e-12)
    assert again["bubble_fraction"] == pytest.approx(best["bubble_fraction"], abs=1e-12)
    peak = max(again["peak_allocated_bytes"])
    assert peak == pytest.approx(best["peak_allocated_bytes"], rel=1e-12)


def test_a_scenario_without_a_space_is_searched_whole(cli: Cli) -> None:
    whole = cli("search", SMALL, "--json", "--set", "search=null").document
    assert whole == cli("search", SMALL, "--json").document


def test_a_time_limit_is_told(cli: Cli) -> None:
    found = cli("search", SMALL, "--json", "--time-limit", 0).document
    assert found["optimality"].startswith("stopped by time limit after ")
    assert found["plans"]


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
    assert done == (0, "", f"timeline written to {picture}\n")
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
        "n": 1, "n_skipped": 1, "mean_abs_error": size, "median_abs_error": size,
        "p90_abs_error": size, "max_abs_error": size, "bias": good["error"],
    }  # fmt: skip


def test_every_shipped_table_is_validated_and_reported(cli: Cli, tmp_path: Path) -> None:
    report = tmp_path / "accuracy.md"
    done = cli("validate", "--report", report)
    names = [path.stem for path in shipped_tables()]
    assert done.code == 0
    assert len(names) == 12
    assert [line.split()[0] for line in done.out.splitlines()[2:14]] == names
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


# --------------------------------------------------------------------------- streams and bytes


@pytest.mark.parametrize("command", ["check", "simulate", "search"])
@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_same_input_same_output(cli: Cli, command: str, flags: tuple[str, ...]) -> None:
    assert cli(command, SMALL, *flags) == cli(command, SMALL, *flags)


@pytest.mark.parametrize("suffix", ["png", "svg", "html", "json"])
def test_same_input_same_file(cli: Cli, tmp_path: Path, suffix: str) -> None:
    first, second = tmp_path / f"a.{suffix}", tmp_path / f"b.{suffix}"
    cli("timeline", SMALL, "-o", first)
    cli("timeline", SMALL, "-o", second)
    assert first.read_bytes() == second.read_bytes()


def test_a_process_says_the_same_without_colour(cli: Cli) -> None:
    done, again = process("search", SMALL), process("search", SMALL, COLUMNS="40")
    assert done == again == cli("search", SMALL)
    assert "\x1b" not in done.out + done.err


def test_a_process_ends_with_the_exit_code() -> None:
    done = process("check", "nowhere.yaml")
    assert done == (2, "", "error: nowhere.yaml: no such file\n")


def test_an_encoding_without_the_characters_is_enough() -> None:
    done = process("simulate", SMALL, PYTHONIOENCODING="ascii")
    assert done.code == 0
    assert "?" * 8 in done.out


def test_a_reader_that_goes_away_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "parsim", "catalog", "models"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=write,
        stderr=subprocess.PIPE,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")
