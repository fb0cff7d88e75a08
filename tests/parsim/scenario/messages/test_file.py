"""What is told of files that are no scenarios, character by character."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsim.errors import ScenarioError
from parsim.scenario import load_scenario
from tests.parsim.scenario.messages.wrong_scenarios import SCENARIO, wrong

NO_KEY = (
    "no 'key: value' can stand here; indent the keys of a block alike, write each on a line of its "
    "own, and a space behind its ':'"
)

START = "a scenario has the blocks model, cluster, training, and plan or search"


def test_the_scenario_is_right_before_it_is_made_wrong(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(SCENARIO, encoding="utf-8")
    assert load_scenario(tmp_path / "s.yaml").plan is not None


def test_missing_file(tmp_path: Path) -> None:
    (tmp_path / "gpt3-175b-dgx-a100.yaml").touch()
    (tmp_path / "notes.txt").touch()
    with pytest.raises(ScenarioError) as caught:
        load_scenario(tmp_path / "gpt3-175b-dgx-h100.yaml")
    assert str(caught.value) == (
        f"{tmp_path}/gpt3-175b-dgx-h100.yaml: no such file "
        f"(did you mean 'gpt3-175b-dgx-a100.yaml'?)"
    )


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(tmp_path / "nowhere" / "s.yaml")
    assert str(caught.value) == f"{tmp_path}/nowhere/s.yaml: no such file"


@pytest.mark.parametrize(("inside", "text"), [((), ""), (("b.yaml", "a.yml"), ": a.yml, b.yaml")])
def test_folder_instead_of_a_file(tmp_path: Path, inside: tuple[str, ...], text: str) -> None:
    for name in inside:
        (tmp_path / name).touch()
    with pytest.raises(ScenarioError) as caught:
        load_scenario(tmp_path)
    assert str(caught.value) == f"{tmp_path}: is a folder; give one file{text}"


def test_path_through_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ScenarioError) as caught:
        load_scenario(tmp_path / "file" / "s.yaml")
    assert str(caught.value) == f"{tmp_path}/file/s.yaml: cannot be read: Not a directory"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", f"s.yaml is empty; {START}"),
        ("# nothing\n", f"s.yaml is empty; {START}"),
        (
            "- 1\n",
            f"s.yaml:1:1 must be a mapping with the blocks {START.partition('blocks ')[2]}, "
            "not a list",
        ),
        (
            "hello\n",
            f"s.yaml:1:1 must be a mapping with the blocks "
            f"{START.partition('blocks ')[2]}, not 'hello'",
        ),
        (b"\xff\xfe\x00", "s.yaml: is not UTF-8 text: byte 0xff at 0"),
        ("a: b: c\n", f"s.yaml:1:5 is not YAML: {NO_KEY}"),
        ("a:\n  b: 1\n   c: 2\n", f"s.yaml:3:5 is not YAML: {NO_KEY}"),
        ("a:\n  b:1\n  c: 2\n", f"s.yaml:3:4 is not YAML: {NO_KEY}"),
        (
            "a:\n  b: 1\n c: 2\n",
            "s.yaml:3:2 is not YAML: this line is indented otherwise than the block around it",
        ),
        (
            "\tmodel: 1\n",
            "s.yaml:1:1 is not YAML: a tab stands here; indent with spaces",
        ),
        ("[" * 5000, "s.yaml is not YAML that can be read: brackets are nested too deeply"),
        (
            "a: &x [1]\nb: *x\n",
            "s.yaml:1:4 b aliases (*name) are not supported; write the value out",
        ),
        ("a: !foo 3\n", "s.yaml:1:4 a '3' cannot be read as !foo"),
        ("model:\n  ? [1]\n  : 2\n", "s.yaml:2:5 model a key must be one word, not a sequence"),
    ],
)
def test_not_a_scenario_at_all(tmp_path: Path, content: str | bytes, message: str) -> None:
    error = wrong(tmp_path, content)
    assert (type(error), str(error)) == (ScenarioError, message)
