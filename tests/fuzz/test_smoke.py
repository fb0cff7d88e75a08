"""A few inputs of the fuzzer, in this process; `make fuzz` runs a hundred thousand."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.fuzz import judge
from tests.fuzz.inputs import Input
from tests.fuzz.mutations import mutated
from tests.fuzz.targets import TARGETS


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.filterwarnings("default")
def test_a_few_inputs_end_well(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for number in range(2):
        _, given = judge.made(13, number, kind)
        assert judge.judged(given, 60.0) is None, f"--seed 13 --number {number} --kind {kind}"
        judge.emptied(tmp_path)


def test_an_input_follows_from_seed_and_number() -> None:
    assert judge.made(1, 2) == judge.made(1, 2)
    assert judge.made(1, 2) != judge.made(1, 3)
    text = "a: 1\nb: [2, 3]\n"
    assert len({mutated(Random(number), text) for number in range(20)}) > 10


def end(code: int, err: str, monkeypatch: pytest.MonkeyPatch, *, out: str = "") -> str | None:
    """The verdict on a command that ends like this."""

    def ending(_: list[str]) -> int:
        import sys

        sys.stdout.write(out)
        sys.stderr.write(err)
        return code

    monkeypatch.setattr(judge, "main", ending)
    return judge.judged(Input(words=("x", "--json")), 5.0)


@pytest.mark.parametrize(
    ("code", "err", "told"),
    [
        (1, "error: bug in parsim: KeyError", "exit code 1"),
        (2, "", "exit code 2 without a word"),
        (2, "error: \x1b[2J", "on stderr"),
        (2, "error: " + "Q" * 100, "an uncut value"),
        (2, "x" * 30_000, "30000 characters"),
        (0, "", "stdout is no JSON document"),
    ],
)
def test_what_is_wrong_is_seen(
    code: int, err: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert told in (end(code, err, monkeypatch) or "")


def test_what_is_right_is_let_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    assert end(2, "error: tp=3 does not divide", monkeypatch) is None
    assert end(0, "note: x", monkeypatch, out='{"a": 1}') is None
    assert "no JSON" in (end(0, "", monkeypatch, out='{"a": NaN}') or "")


def test_what_takes_too_long_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(_: list[str]) -> int:
        while True:
            pass

    monkeypatch.setattr(judge, "main", endless)
    assert judge.judged(Input(words=()), 0.2) == "took more than 0.2 s of CPU"
