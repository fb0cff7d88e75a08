"""Words that no command knows, bugs and Ctrl-C: the message and the exit code."""

from __future__ import annotations

import pytest

from parsim.cli.app import main
from tests.commands import SMALL, Cli, process


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
