"""The pages for users: commands are commands, links lead somewhere, no key is missing."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from parsim.cli.app import application
from parsim.plan.names import SCHEDULE_NAMES
from parsim.plan.precision import PRECISIONS
from parsim.scenario.schema.file import BLOCKS
from parsim.validation.step.row_reader import OPTIONAL, REQUIRED
from tests.commands import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/*.md"))]
SHELL = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)
TYPED = re.compile(r"`(parsim [a-z][^`]*)`")
NO_COMMAND = re.compile(r"\.\.\.|^parsim (catalog )?[a-z-]+$|\(| [A-Z](?: |$)")
"""What is a name of a command alone, or leaves something out."""
ANCHOR = re.compile(r"\]\(([\w./-]*)#([^)\s]+)\)")


def commands(page: Path) -> Iterator[str]:
    """Every command line that a page shows whole: in shell blocks, or between backticks."""
    text = page.read_text(encoding="utf-8")
    for block in SHELL.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith("parsim "):
                yield line.partition("  #")[0].strip()
    for words in TYPED.findall(text):
        if not NO_COMMAND.search(words):
            yield words


def all_commands() -> list[tuple[str, str]]:
    return sorted({(page.name, words) for page in PAGES for words in commands(page)})


@pytest.fixture(scope="module")
def tree() -> Any:
    return typer.main.get_command(application(""))


def parse(command: Any, words: list[str]) -> None:
    """Read the words as the command line does, and run nothing."""
    context = command.make_context("parsim", words)
    while hasattr(command, "commands"):
        rest = [*context._protected_args, *context.args]
        name, command, words = command.resolve_command(context, rest)
        context = command.make_context(name, words, parent=context)


@pytest.mark.parametrize(("page", "line"), all_commands())
def test_commands_of_the_pages_are_commands(tree: Any, page: str, line: str) -> None:
    try:
        parse(tree, shlex.split(line)[1:])
    except Exception as error:
        if type(error).__name__ != "MissingParameter":  # a page may name a command without its file
            raise


def slug(heading: str) -> str:
    """The anchor that a heading has on GitHub."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_anchors_of_links_are_headings(page: Path) -> None:
    for file, anchor in ANCHOR.findall(page.read_text(encoding="utf-8")):
        target = (page.parent / file) if file else page
        headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
        assert anchor in map(slug, headings), f"{page.name}: {file}#{anchor}"


def test_the_page_of_keys_has_every_key() -> None:
    page = (ROOT / "docs" / "keys.md").read_text(encoding="utf-8")
    missing = [
        ".".join((*path, field.alias or key))
        for path, block in BLOCKS.items()
        for key, field in block.model_fields.items()
        if f"`{field.alias or key}`" not in page
    ]
    assert missing == []


def test_the_page_of_words_has_every_precision_and_the_page_of_keys_too() -> None:
    for name in ("glossary.md", "keys.md"):
        page = (ROOT / "docs" / name).read_text(encoding="utf-8")
        assert [known for known in PRECISIONS if f"`{known}`" not in page] == []


def test_the_page_on_accuracy_names_every_column_of_a_table() -> None:
    page = (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8")
    section = page.partition("## Validate against your own runs")[2].partition("## Every table")[0]
    assert [name for name in (*REQUIRED, *OPTIONAL) if not re.search(rf"\b{name}\b", section)] == []


def test_the_page_of_schedules_advises_on_schedules_that_there_are() -> None:
    page = (ROOT / "docs" / "schedules.md").read_text(encoding="utf-8")
    section = page.partition("## Which one?")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([a-z0-9_]+)`", section)) - {"v", "auto"}
    assert named <= set(SCHEDULE_NAMES)
