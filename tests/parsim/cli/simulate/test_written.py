"""What documentation and comments of scenarios tell a reader to try, works."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import ROOT, SCENARIOS, Cli, runner

COMPLETE = ("model:", "cluster:", "training:")
"""Keys without which a block of YAML is a part of a scenario."""
BUBBLE = r"predicted ([\d.]+) % over busy time"
PREDICTED = [path for path in SCENARIOS if re.search(BUBBLE, path.read_text(encoding="utf-8"))]
"""Scenarios that say which bubble is predicted beside what a formula gives."""


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(ROOT)
    return runner(capsys)


def blocks() -> Iterator[tuple[str, str]]:
    """The complete scenarios of the documentation: page and line, and the text."""
    for page in (ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))):
        text = page.read_text(encoding="utf-8")
        for match in re.finditer(r"^```yaml\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            keys = match[1].splitlines()
            if all(any(line.startswith(key) for line in keys) for key in COMPLETE):
                yield f"{page.name}:{text[: match.start()].count(chr(10)) + 1}", match[1]


def tries() -> Iterator[str]:
    """The words behind `parsim` of every simulation with options that scenarios' comments show.

    Without options every scenario is simulated elsewhere; a schedule of the reader's is not here.
    """
    for path in SCENARIOS:
        comments = "\n".join(
            line.lstrip("# ")
            for line in path.read_text(encoding="utf-8").splitlines()
            if line.startswith("#")
        )
        for match in re.finditer(r"parsim (simulate (?:[^\n\\]|\\\n)*)", comments):
            words = match[1].replace("\\\n", " ").partition(" #")[0].strip()
            if " --" in words and "my-schedule.csv" not in words:
                yield words


@pytest.mark.parametrize(("where", "text"), list(blocks()), ids=lambda value: str(value)[:24])
def test_complete_scenarios_of_the_documentation_fit(
    cli: Cli, tmp_path: Path, where: str, text: str
) -> None:
    path = tmp_path / "written.yaml"
    path.write_text(text, encoding="utf-8")
    done = cli("simulate", path)
    assert done.code == 0, f"{where}: {done.err}"


@pytest.mark.parametrize("path", PREDICTED, ids=lambda path: path.stem)
def test_bubbles_of_comments_are_those_predicted(cli: Cli, path: Path) -> None:
    (told,) = re.findall(BUBBLE, path.read_text(encoding="utf-8"))
    overhead = cli("simulate", path, "--json").document["bubble_overhead"]
    assert f"{100 * overhead:.1f}" == told


@pytest.mark.parametrize("words", list(dict.fromkeys(tries())))
def test_simulations_of_comments_work(cli: Cli, words: str) -> None:
    done = cli(*shlex.split(words))
    assert done.code == 0, done.err
