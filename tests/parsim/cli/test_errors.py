"""The command line on bad input: the exact message, the exit code, and never a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsim.cli.app import main
from parsim.cluster.reader import load_catalog
from parsim.errors import alternatives
from parsim.scenario.schema.plan import PlanBlock
from parsim.validation.step.row_reader import REQUIRED
from tests.commands import LLAMA, SMALL, Cli, process, settings, write_rows

# --------------------------------------------------------------------------- the scenario file


def edited(tmp_path: Path, old: str, new: str) -> Path:
    """A copy of the small scenario, `s.yaml`, with one edit."""
    text = Path(SMALL).read_text(encoding="utf-8")
    assert old in text
    (tmp_path / "s.yaml").write_text(text.replace(old, new, 1), encoding="utf-8")
    return tmp_path / "s.yaml"


WRONG = {
    "misspelt key": (
        "microbatch_size: 1",
        "microbatchsize: 1",
        ":24:3 plan.microbatchsize is an unknown key"
        + alternatives("microbatchsize", PlanBlock.model_fields),
    ),
    "wrong unit": (
        "nodes: 1",
        "nodes: 1\n  intra: {latency: 5GB}",
        ":15:11 cluster.intra.latency '5GB' is not a time: allowed units are s, ms, us, ns; "
        "e.g. '5us'",
    ),
    "bare number": (
        "nodes: 1",
        "nodes: 1\n  intra: {latency: 5}",
        ":15:11 cluster.intra.latency bare number 5; write it with a unit, e.g. '5us'",
    ),
    "duplicate key": (
        "  pp: 2 ",
        "  pp: 2\n  pp: 4 ",
        ":24:3 plan.pp is written twice; first on line 23",
    ),
    "unknown device": (
        "system: cpu",
        "system: cpu\n  device: h100-sxm-80g",
        ":14:3 cluster.device unknown device 'h100-sxm-80g'"
        + alternatives("h100-sxm-80g", load_catalog().devices, listing="parsim catalog devices"),
    ),
}


@pytest.mark.parametrize("command", ["check", "simulate", "search", "timeline"])
@pytest.mark.parametrize("case", WRONG)
def test_files_that_are_wrong(cli: Cli, tmp_path: Path, command: str, case: str) -> None:
    old, new, message = WRONG[case]
    scenario = edited(tmp_path, old, new)
    output = ["-o", tmp_path / "x.png"] if command == "timeline" else []
    assert cli(command, scenario, *output) == (2, "", f"error: {scenario}{message}\n")
    assert not (tmp_path / "x.png").exists()


def test_a_misspelt_file(cli: Cli, tmp_path: Path) -> None:
    edited(tmp_path, "gpt2", "gpt2")
    done = cli("check", tmp_path / "t.yaml")
    assert done == (2, "", f"error: {tmp_path}/t.yaml: no such file (did you mean 's.yaml'?)\n")


def test_a_folder(cli: Cli, tmp_path: Path) -> None:
    done = cli("check", tmp_path)
    assert done == (
        2,
        "",
        f"error: {tmp_path}: is a folder; give one file\n",
    )


# --------------------------------------------------------------------------- plans


@pytest.mark.parametrize(
    ("scenario", "pairs", "message"),
    [
        (
            LLAMA,
            ["plan.tp=3"],
            "--set plan.tp=3 plan tp=3 does not divide num_attention_heads=32; allowed: 1, 2, 4, "
            "8, 16, 32",
        ),
        (
            LLAMA,
            ["plan.dp=3"],
            "{file}:22:1 plan world size mismatch: pp=1 x dp=3 x cp=1 x tp=1 = 3, but the "
            "cluster has "
            "8 devices; use dp=8 (with --set plan.dp=3)",
        ),
        (
            LLAMA,
            ["training.global_batch_size=15"],
            "--set training.global_batch_size=15 training global_batch_size=15 is not divisible by "
            "microbatch_size=1 x dp=8 = 8; use a multiple of 8, or a microbatch_size x dp that "
            "divides 15",
        ),
        (
            SMALL,
            ["plan.pp=16"],
            "{file}:22:1 plan more stages than layers: pp=16 x v=1 = 16 stages for 12 layers, "
            "embedding, head; use pp x v <= 14 (with --set plan.pp=16)",
        ),
        (
            SMALL,
            ["plan.schedule=1f1c"],
            "--set plan.schedule=1f1c plan schedule='1f1c' is unknown (did you mean '1f1b'?); "
            "nearest of 23: 1f1b, eager_1f1b, interleaved_1f1b, zb_h1, zb_1p (all of them: parsim "
            "catalog schedules)",
        ),
        (
            SMALL,
            ["plan.pp=1", "plan.cp=2", "model.fused_attention=false"],
            "--set plan.cp=2 plan cp=2: context parallelism needs fused attention, whose "
            "blocks can "
            "be merged, but gpt2 has unfused attention; use cp=1 (with --set plan.pp=1, --set "
            "model.fused_attention=false)",
        ),
        (SMALL, ["plan.ep=2"], "--set plan.ep=2 plan ep=2: gpt2 has no experts; use ep=1"),
        (
            SMALL,
            ["plan.zero_stage=5"],
            "--set plan.zero_stage=5 plan zero_stage=5 is unknown; allowed: 0, 1, 2, 3",
        ),
        (SMALL, ["plan.tp=x"], "--set plan.tp=x plan.tp must be a whole number, got 'x'"),
    ],
)
def test_plans_that_are_not_legal(cli: Cli, scenario: str, pairs: list[str], message: str) -> None:
    done = cli("simulate", scenario, *settings(*pairs))
    assert done == (2, "", f"error: {message.replace('{file}', scenario)}\n")


def test_a_scenario_without_a_plan(cli: Cli, tmp_path: Path) -> None:
    done = cli("simulate", SMALL, *settings("plan=null"))
    assert done == (
        2,
        "",
        f"error: {SMALL}: no plan block; add one, or take the best of `parsim search "
        f"{SMALL} --save best.yaml`\n",
    )


# --------------------------------------------------------------------------- tables


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"n_layers": "many"}, "n_layers='many' is not a whole number"),
        ({"n_layers": "nan"}, "n_layers='nan' is not a whole number from 0 to 1,000,000,000"),
        ({"n_layers": "inf"}, "n_layers='inf' is not a whole number from 0 to 1,000,000,000"),
        ({"n_layers": "1e300"}, "n_layers='1e300' is not a whole number from 0 to 1,000,000,000"),
        ({"step_time_s": "-1"}, "step_time_s='-1' must be a number from 1e-15 to 1e+15"),
        ({"dp": "7"}, "tp x pp x dp = 7 differs from n_gpus = 32"),
    ],
)
def test_a_row_of_garbage_is_skipped(
    cli: Cli, tmp_path: Path, change: dict[str, str], reason: str
) -> None:
    table = write_rows(tmp_path / "mine.csv", {}, change)
    done = cli("validate", table, "--json")
    good, bad = done.document["rows"]
    assert done.code == 0
    assert (good["status"], bad["status"], bad["reason"]) == ("ok", "skipped", reason)
    assert reason in cli("validate", table).out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty file; expected a header with " + ", ".join(REQUIRED)),
        (b"\n \n", "empty file; expected a header with " + ", ".join(REQUIRED)),
        (b"row_id,stack\nx,y\n", "columns missing: " + ", ".join(REQUIRED[2:])),
        (",".join(REQUIRED).encode(), "no rows below the header"),
        (b"\xff\xfe\x00\x01", "is not UTF-8 text: byte 0xff at 0"),
    ],
    ids=["empty", "blank", "columns missing", "no rows", "binary"],
)
def test_a_table_that_cannot_be_read(
    cli: Cli, tmp_path: Path, content: bytes, message: str
) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    done = cli("validate", tmp_path / "t.csv")
    assert done == (2, "", f"error: {tmp_path}/t.csv: {message}\n")


def test_a_table_of_which_no_row_can_be_predicted(cli: Cli, tmp_path: Path) -> None:
    """The reasons are shown first; a table with one good row is a result."""
    table = write_rows(tmp_path / "t.csv", {"tp": ""}, {"tp": "x"}, {"tp": ""})
    good = write_rows(tmp_path / "good.csv", {})
    told = "error: t: none of 3 rows could be predicted; tp is not stated\n"
    for tables in ([table], [good, table]):
        done = cli("validate", *tables)
        assert (done.code, done.err) == (2, told)
        assert "tp='x' is not a whole number" in done.out
    document = cli("validate", table, "--json")
    assert document.code == 2
    assert len(document.document["rows"]) == 3
    assert cli("validate", good).code == 0


@pytest.mark.parametrize(
    ("option", "header"),
    [
        ("--kernels", "row_id,gpu_type,op,dtype,m,n,k,time_us"),
        ("--collectives", "row_id,gpu_type,n_nodes,gpus_per_node,collective,message_bytes,time_us"),
    ],
)
def test_kernels_and_collectives_of_which_no_row_can_be_predicted(
    cli: Cli, tmp_path: Path, option: str, header: str
) -> None:
    table = tmp_path / "t.csv"
    table.write_text(f"{header}\n{','.join('x' for _ in header.split(','))}\n", encoding="utf-8")
    done = cli("validate", option, table)
    assert done.code == 2
    assert done.err.startswith("error: t: none of 1 rows could be predicted; ")


def test_a_table_that_is_no_csv(cli: Cli, tmp_path: Path) -> None:
    table = write_rows(tmp_path / "t.csv", {}, {"model": "x" * 200_000})
    done = cli("validate", table)
    assert done == (2, "", f"error: {table}:3: not CSV: field larger than field limit (131072)\n")


def test_a_folder_or_nothing_instead_of_a_table(cli: Cli, tmp_path: Path) -> None:
    assert cli("validate", tmp_path) == (2, "", f"error: {tmp_path}: is a folder; give one file\n")
    missing = tmp_path / "no.csv"
    assert cli("validate", missing) == (
        2,
        "",
        f"error: {missing}: no such file\n",
    )


# --------------------------------------------------------------------------- output paths


@pytest.mark.parametrize("suffix", ["png", "svg", "html", "json"])
def test_a_picture_below_a_file(cli: Cli, tmp_path: Path, suffix: str) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "sub" / f"x.{suffix}"
    done = cli("timeline", SMALL, "-o", path)
    assert done == (2, "", f"error: {path}: cannot write: {path.parent} is not a folder\n")


@pytest.mark.parametrize("suffix", ["png", "svg", "html", "json"])
def test_a_picture_where_a_folder_is(cli: Cli, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x.{suffix}"
    path.mkdir()
    done = cli("timeline", SMALL, "-o", path)
    assert done == (2, "", f"error: {path}: cannot write: Is a directory\n")


def test_a_plan_and_a_report_below_a_file(cli: Cli, tmp_path: Path) -> None:
    table = write_rows(tmp_path / "t.csv", {})
    path = table / "x"
    message = f"error: {path}: cannot write: {table} is not a folder\n"
    saved, report = cli("search", SMALL, "--save", path), cli("validate", table, "--report", path)
    assert (saved.code, saved.err) == (report.code, report.err) == (2, message)
    assert saved.out == report.out == ""  # refused before the work, not after it


def test_an_unknown_form_of_picture(cli: Cli, tmp_path: Path) -> None:
    done = cli("timeline", SMALL, "-o", tmp_path / "x.bmp")
    assert done == (
        2,
        "",
        f"error: {tmp_path}/x.bmp: unknown form '.bmp'; allowed: .png, .svg, .html, .json\n",
    )


@pytest.mark.parametrize("until", ["-1", "0", "nan", "inf"])
def test_a_picture_that_ends_before_it_begins(cli: Cli, tmp_path: Path, until: str) -> None:
    done = cli("timeline", SMALL, "-o", tmp_path / "x.png", "--until", until)
    assert done.code == 2
    assert done.err == (
        f"error: until={float(until)} s cannot end a picture; allowed: more than 0 s, finite\n"
    )


# --------------------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["simulte", SMALL], "No such command 'simulte'."),
        (["catalog", "show"], "Missing argument 'SYSTEM'."),
        (["simulate"], "Missing argument 'SCENARIO'."),
        (["simulate", SMALL, "--jsn"], "No such option: --jsn"),
        (["search", SMALL, "--top", "0"], "Invalid value for '--top'"),
        (["search", SMALL, "--top", "x"], "Invalid value for '--top'"),
        (["search", SMALL, "--time-limit", "-1"], "Invalid value for '--time-limit'"),
        (["timeline", SMALL], "Missing option '-o' / '--output'."),
        (["catalog", "planets"], "No such command 'planets'."),
    ],
)
def test_words_that_are_not_known(cli: Cli, words: list[str], message: str) -> None:
    done = cli(*words)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    known = [
        word for word in words if word in {"simulate", "search", "timeline", "catalog", "show"}
    ]
    assert done.err.endswith(f"(see {' '.join(['parsim', *known])} --help)\n")


@pytest.mark.parametrize("pair", ["plan.tp", "=4", ""])
def test_set_without_a_key_or_sign(cli: Cli, pair: str) -> None:
    done = cli("simulate", SMALL, "--set", pair)
    assert done == (
        2,
        "",
        f"error: --set {pair!r} must be KEY=VALUE, e.g. --set plan.tp=4\n",
    )


# --------------------------------------------------------------------------- not the user's fault


def test_debug_shows_the_traceback() -> None:
    done = process("check", "nowhere.yaml", "--debug")
    assert done.code == 1
    assert "Traceback" in done.err
    assert "ScenarioError: nowhere.yaml: no such file" in done.err


def test_a_bug_is_called_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("parsim.scenario.load_scenario", broken)
    assert main(["check", SMALL]) == 1
    assert capsys.readouterr().err == (
        "error: bug in parsim: ZeroDivisionError: division by zero; please report it, with the "
        "output of the same command and --debug\n"
    )
    with pytest.raises(ZeroDivisionError):
        main(["--debug", "check", SMALL])


def test_an_interrupted_command(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("parsim.scenario.load_scenario", slow)
    assert cli("check", SMALL).code == 130


def test_an_interrupted_search_prints_the_best_so_far(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("parsim.cli.terminal.Unseen.__call__", stop)
    done = cli("search", SMALL, "--json")
    assert done.code == 0
    assert done.document["optimality"].startswith("interrupted after ")
    assert done.document["plans"]
