"""Names and first lines that tell a reader nothing are not used."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("parsim", "executor", "tests")
EMPTY = {"found", "held", "one", "own", "place", "said", "LEAST", "MOST"}
"""Words that do not say what a variable holds, and limits that do not say of what."""
DOCUMENTED = {
    "parsim/cost/software/habits": 90,
    "parsim/cost/software/record.py": 3,
    "parsim/cluster/hardware/device.py": 40,
}
"""Records of so many fields that a class docstring cannot hold them, and how many at least."""
OPENINGS = ("Of ", "Those ", "As ", "The same")
"""Beginnings of a first line that is no sentence by itself."""
FEWEST_WORDS = 3
"""What a first line needs to say something: `A.` and `The plans.` do not."""


@pytest.mark.parametrize("package", PACKAGES)
def test_names_say_what_they_hold(package: str) -> None:
    wrong = [f"{file}:{line} {name}" for file, line, name in _bound(package) if name in EMPTY]
    assert not wrong


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_open_with_a_sentence(package: str) -> None:
    wrong = [
        f"{file}:{line} {text[:60]}"
        for file, line, text in _docstrings(package)
        if text.startswith(OPENINGS)
    ]
    assert not wrong


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_say_something(package: str) -> None:
    wrong = [
        f"{file}:{node.lineno} {text}"
        for file, tree in _trees(package)
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
        and (text := (ast.get_docstring(node) or "").partition("\n")[0])
        and len(text.split()) < FEWEST_WORDS
    ]
    assert not wrong


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_lists_what_it_has(package: str) -> None:
    """A package whose docstring lists its files lists all of them, and none that is gone."""
    for path in sorted((ROOT / package).rglob("__init__.py")):
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        if re.search(r"^ {4}\w+\.py ", text, re.MULTILINE):
            assert {*re.findall(r"\b\w+(?:\.py|/)", text)} == set(_inside(path.parent)), path


def _inside(folder: Path) -> Iterator[str]:
    """The modules and packages in a folder."""
    for path in folder.iterdir():
        if path.suffix == ".py" and path.name != "__init__.py":
            yield path.name
        elif (path / "__init__.py").exists():
            yield f"{path.name}/"


@pytest.mark.parametrize("records", DOCUMENTED)
def test_every_field_has_a_line_of_its_own(records: str) -> None:
    """A comment above it or behind it says what it is, and its unit."""
    path = ROOT / records
    files = sorted(path.glob("*.py")) if path.is_dir() else [path]
    fields = [each for file in files for each in _fields(file)]
    assert len(fields) >= DOCUMENTED[records]
    assert not [name for name, commented in fields if not commented]


def _fields(file: Path) -> Iterator[tuple[str, bool]]:
    """The fields of a file's records, and whether each has a comment."""
    text = file.read_text(encoding="utf-8")
    lines = text.splitlines()
    for record in ast.parse(text).body:
        for node in record.body if isinstance(record, ast.ClassDef) else ():
            if isinstance(node, ast.AnnAssign):
                above = lines[node.lineno - 2].lstrip().startswith("# ")
                yield ast.unparse(node.target), above or "  # " in lines[node.lineno - 1]


def _trees(package: str) -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted((ROOT / package).rglob("*.py")):
        yield path.relative_to(ROOT), ast.parse(path.read_text(encoding="utf-8"))


def _bound(package: str) -> Iterator[tuple[Path, int, str]]:
    """Every variable, attribute, argument, function, class: the file and line that bind it."""
    for file, tree in _trees(package):
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield file, node.lineno, node.id
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                yield file, node.lineno, node.attr
            elif isinstance(node, ast.arg):
                yield file, node.lineno, node.arg
            elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                yield file, node.lineno, node.name


def _docstrings(package: str) -> Iterator[tuple[Path, int, str]]:
    """Every text that stands by itself: docstrings, and those of constants and fields."""
    for file, tree in _trees(package):
        for node in ast.walk(tree):
            text = node.value if isinstance(node, ast.Expr) else None
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                yield file, text.lineno, text.value
