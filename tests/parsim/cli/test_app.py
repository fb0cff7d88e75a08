"""The command line on good input: documents, and what goes to which stream."""

from __future__ import annotations

import pytest

import parsim
from tests.commands import LLAMA, ROOT, Cli

COMMANDS = ("check", "simulate", "search", "timeline", "validate", "catalog")


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


def test_check_says_that_experts_are_run(cli: Cli) -> None:
    """The scenario's head has the command that runs it."""
    text = cli("check", str(ROOT / "scenarios" / "mixture-small-cpu.yaml")).out
    assert "  experts  4 of 16 for each token, which meets " in text
    assert "  run " not in text


def test_check_has_the_executors_reason_against_a_plan(cli: Cli) -> None:
    text = cli("check", LLAMA, "--set", "plan.precision=fp8").out
    assert "  run      no: precision='fp8': products of 8 bit or less are predicted" in text


def test_check_as_a_document(cli: Cli) -> None:
    document = cli("check", LLAMA, "--json").document
    assert document["schema_version"] == 1
    assert document["model"]["parameters"] == 8_030_261_248
    assert document["cluster"] == {
        "system": "dgx-h100",
        "nodes": 1,
        "devices": 8,
        "device": "h100-sxm-80gb",
    }
    assert document["plan"]["dp_shard"] == document["plan"]["world_size"] == 8


@pytest.mark.parametrize(
    ("kind", "entry"),
    [
        ("devices", "gb200"),
        ("systems", "gb200-nvl72"),
        ("models", "llama3.1-405b"),
        ("schedules", "interleaved_1f1b"),
        ("software", "megatron-2021"),
    ],
)
def test_catalogs(cli: Cli, kind: str, entry: str) -> None:
    rows = cli("catalog", kind, "--json").document[kind]
    printed = cli("catalog", kind)
    assert entry in [row["id"] for row in rows]
    assert all(row["id"] in printed.out for row in rows)
    assert (printed.code, printed.err) == (0, "")
