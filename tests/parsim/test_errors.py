"""The error tree: its exit codes, its drawing, and its suggestions."""

from __future__ import annotations

import inspect

import pytest

from parsim import errors
from parsim.errors import DeadlockError, ParsimError, did_you_mean


def all_errors() -> list[type[ParsimError]]:
    return [
        value
        for value in vars(errors).values()
        if inspect.isclass(value) and issubclass(value, ParsimError)
    ]


def drawn_tree() -> dict[str, tuple[str | None, int]]:
    """Read name -> (parent, exit code) back from the drawing in the module's docstring."""
    tree: dict[str, tuple[str | None, int]] = {}
    path: list[str] = []
    drawing = (errors.__doc__ or "").partition("\n\n")[2]
    margin = drawing.index("ParsimError")
    for line in drawing.splitlines():
        body = line.lstrip(" │├└─")
        depth = (len(line) - len(body) - margin) // 4
        name, code = body.split()[:2]
        path[depth:] = [name]
        tree[name] = (path[depth - 1] if depth else None, int(code))
    return tree


def test_the_drawing_shows_every_error_under_its_parent() -> None:
    drawn = {name: parent for name, (parent, _) in drawn_tree().items()}
    real = {error.__name__: error.__bases__[0].__name__ for error in all_errors()}
    assert drawn == real | {"ParsimError": None}


@pytest.mark.parametrize("error", all_errors())
def test_the_drawing_shows_the_exit_code(error: type[ParsimError]) -> None:
    assert drawn_tree()[error.__name__][1] == error.exit_code


def test_a_deadlock_carries_its_cycle() -> None:
    cycle = ("rank 0 waits for rank 1", "rank 1 waits for rank 0")
    assert DeadlockError("never finishes", cycle).cycle == cycle
    assert DeadlockError("never finishes").cycle == ()
    assert str(DeadlockError("never finishes", cycle)) == "never finishes"


def test_did_you_mean_names_the_closest_word() -> None:
    assert did_you_mean("cuont", ["count", "devices"]) == " (did you mean 'count'?)"


def test_did_you_mean_is_silent_where_nothing_is_close() -> None:
    assert did_you_mean("zebra", ["count", "devices"]) == ""


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        (
            "h100",
            ["h100-nvlink-pairs", "dgx-h100", "dgx-a100"],
            "'h100-nvlink-pairs' or 'dgx-h100'",
        ),
        ("gpt2-small", ["t5-small", "gpt2", "gpt2-xl"], "'gpt2'"),
        ("Float16", ["fp32", "fp16"], "'fp16'"),
        ("half", ["fp32", "fp16"], "'fp16'"),
        ("float32", ["fp32", "fp16"], "'fp32'"),
    ],
)
def test_did_you_mean_knows_parts_beginnings_and_other_names(
    word: str, known: list[str], meant: str
) -> None:
    assert did_you_mean(word, known) == f" (did you mean {meant}?)"


def test_did_you_mean_takes_any_iterable() -> None:
    devices = ["a10", "a100-sxm-80gb", "a100-pcie-80gb", "a40"]
    both = " (did you mean 'a100-sxm-80gb' or 'a100-pcie-80gb'?)"
    assert did_you_mean("A100", devices) == both  # no misspelt a10
    assert did_you_mean("A4", devices) == " (did you mean 'a40'?)"
    assert did_you_mean("h100", iter({"h100-sxm": 1})) == " (did you mean 'h100-sxm'?)"
