"""No circle of imports, neither between modules nor between rooms; imports in functions count."""

from __future__ import annotations

import ast
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.commands import ROOT

Graph = dict[str, set[str]]


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path: Path, known: set[str]) -> set[str]:
    """The modules that a file imports anywhere, also inside functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names} & known
            names |= inner or {node.module}
    return (names & known) - {module_name(path)}


def modules_of(package: str) -> Graph:
    paths = {module_name(path): path for path in (ROOT / package).rglob("*.py")}
    return {name: imported(path, set(paths)) for name, path in paths.items()}


def rooms_of(package: str) -> Graph:
    """Folders by the folders that their modules import; a folder's own sub-folders do not count.

    The front page of the package is no room, and a module that stands beside it is one by itself.
    """
    graph = modules_of(package)
    room = {name: name.rpartition(".")[0] if "." in name else name for name in graph}
    room |= {parent: parent for parent in room.values()}
    room |= {name: name for name in graph if room[name] == package}
    rooms: Graph = {}
    for name, targets in graph.items():
        if name != package:
            rooms.setdefault(room[name], set()).update(
                room[target] for target in targets if not _nested(room[target], room[name])
            )
    return rooms


def _nested(room: str, other: str) -> bool:
    """Whether two rooms are one, or one lies in the other."""
    return f"{room}.".startswith(f"{other}.") or f"{other}.".startswith(f"{room}.")


def circle(graph: Graph) -> list[str]:
    """One circle of a graph, empty if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.mark.parametrize("package", ["parsim", "executor"])
def test_no_module_imports_itself_by_way_of_others(package: str) -> None:
    assert circle(modules_of(package)) == []


@pytest.mark.parametrize("package", ["parsim", "executor"])
def test_no_room_imports_itself_by_way_of_others(package: str) -> None:
    assert circle(rooms_of(package)) == []


@pytest.mark.parametrize("package", ["parsim", "executor", "tests"])
def test_no_room_has_more_than_fifteen_files(package: str) -> None:
    files = (ROOT / package).rglob("*.py")
    counts = Counter(path.parent for path in files if path.name != "__init__.py")
    assert {str(room): count for room, count in counts.items() if count > 15} == {}


def test_a_circle_is_found() -> None:
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})) == {"a", "b", "c"}
