"""Mutation testing: does a test notice when one token of the code is changed?

    python -m tests.tools.mutate reports/mutation.md --count 60 --seed 1 --seconds 1800

Needs `cosmic-ray` (`make mutate` installs it into an environment of its own). A seeded sample of
the mutants of `ROOMS` is tested, each in a copy of the tree: first with the tests of its own file's
folder, then with those of everything that is computed from it. A mutant that no test notices
survives. Annotations, docstrings and numbers of constants that are fitted are not mutated: the
first two do nothing, and the accuracy report judges the last.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("parsim/cost", "parsim/schedule", "parsim/sim/recurrence")
COPIED = (
    "parsim",
    "executor",
    "tests",
    "scenarios",
    "reports",
    "docs",
    "pyproject.toml",
    "README.md",
)
WIDER = {
    "parsim/cost": (
        "cost",
        "sim/step",
        "sim/memory",
        "sim/test_simulate.py",
        "sim/test_physics.py",
    ),
    "parsim/schedule": ("schedule", "sim/step", "sim/events"),
    "parsim/sim/recurrence": (
        "sim/recurrence",
        "sim/events",
        "sim/test_simulate.py",
        "planner/test_search.py",
    ),
}
"""Tests of what is computed from a room, under tests/parsim."""

OPERATORS = (
    *(
        f"core/ReplaceBinaryOperator_{pair}"
        for pair in ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul")
    ),
    *(f"core/ReplaceBinaryOperator_{pair}" for pair in ("Mod_Mul", "FloorDiv_Mul", "Pow_Mul")),
    *(f"core/ReplaceBinaryOperator_{pair}" for pair in ("BitAnd_BitOr", "BitOr_BitAnd")),
    *(
        f"core/ReplaceComparisonOperator_{pair}"
        for pair in ("Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt")
    ),
    *(f"core/ReplaceComparisonOperator_{pair}" for pair in ("Eq_NotEq", "NotEq_Eq")),
    *("core/ReplaceComparisonOperator_Is_IsNot", "core/ReplaceComparisonOperator_IsNot_Is"),
    *("core/ReplaceTrueWithFalse", "core/ReplaceFalseWithTrue", "core/ReplaceAndWithOr"),
    *(
        "core/ReplaceOrWithAnd",
        "core/AddNot",
        "core/NumberReplacer",
        "core/ReplaceUnaryOperator_Delete_Not",
    ),
    *(
        "core/ReplaceUnaryOperator_USub_UAdd",
        "core/ReplaceContinueWithBreak",
        "core/ZeroIterationForLoop",
    ),
)
"""One change of each kind of token, the one that is hardest to notice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One change of one file: the line that it begins in, and which place of which operator."""

    path: str
    line: int
    operator: str
    occurrence: int

    def code(self) -> str:
        """The whole file with the change."""
        from cosmic_ray.mutating import MutationVisitor
        from cosmic_ray.plugins import get_operator

        operator = get_operator(self.operator)()
        source = (ROOT / self.path).read_text("utf-8")
        return str(MutationVisitor.mutate_code(source, operator, self.occurrence))

    def difference(self) -> tuple[str, str]:
        """The first line that differs, before and after."""
        lines = (ROOT / self.path).read_text("utf-8").splitlines()
        pairs = zip(lines, self.code().splitlines(), strict=False)
        return next(((old.strip(), new.strip()) for old, new in pairs if old != new), ("", ""))


def mutants(path: Path) -> Iterator[Mutant]:
    """All that change what a function of a file does, by operator and place."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator

    source = path.read_text("utf-8")
    inside, nodes = _lines_of_functions(source), list(ast_nodes(get_ast(source)))
    for name in OPERATORS:
        operator = get_operator(name)()
        places = [position for node in nodes for position in operator.mutation_positions(node)]
        for occurrence, ((line, _), _) in enumerate(places):
            if line in inside:
                relative = str(path.relative_to(ROOT))
                yield Mutant(path=relative, line=line, operator=name, occurrence=occurrence)


def _lines_of_functions(source: str) -> set[int]:
    """Lines of statements inside functions, without their heads, annotations and docstrings."""
    import ast

    lines: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            for statement in node.body:
                if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                    continue
                lines.update(range(statement.lineno, (statement.end_lineno or 0) + 1))
    return lines


def sample(rooms: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """So many mutants, each file with a chance by its number of them; the same for one seed."""
    files = [path for room in rooms for path in sorted((ROOT / room).rglob("*.py"))]
    everything = [mutant for path in files for mutant in mutants(path)]
    print(f"{len(everything)} mutants of {len(files)} files")  # noqa: T201
    return random.Random(seed).sample(everything, min(count, len(everything)))


def tests_of(path: str) -> Iterator[list[str]]:
    """Groups of tests that may notice a mutant of a file, nearest first."""
    near = ROOT / "tests" / Path(path).parent
    yield [str(near.relative_to(ROOT))]
    room = next(room for room in ROOMS if path.startswith(room))
    yield [f"tests/parsim/{folder}" for folder in WIDER[room]]


def survives(mutant: Mutant, tree: Path, seconds: float) -> bool:
    """Whether all tests pass with it; one that makes them hang is noticed."""
    target = tree / mutant.path
    kept = target.read_text("utf-8")
    target.write_text(mutant.code(), "utf-8")
    try:
        return all(_pass(tree, tests, seconds) for tests in tests_of(mutant.path))
    finally:
        target.write_text(kept, "utf-8")


def _pass(tree: Path, tests: Sequence[str], seconds: float = 1800.0) -> bool:
    words = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            words, cwd=tree, env=environment, capture_output=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    if done.returncode not in (0, 1, 2):
        raise RuntimeError(f"pytest ended with {done.returncode}: {done.stdout.decode()[-2000:]}")
    return done.returncode == 0


def tree_of(folder: Path) -> Path:
    """A copy of what the tests need."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    return folder


def report(tested: Sequence[tuple[Mutant, bool]], words: str) -> str:
    """The score by room, and every survivor."""
    lines = ["# Mutation testing", "", f"Repeat with `{words}`.", ""]
    lines += ["One token changed at a time; noticed: a test fails or hangs.", ""]
    lines += ["| room | mutants tested | noticed | score |", "|---|---:|---:|---:|"]
    for room in (*ROOMS, "parsim"):
        results = [alive for mutant, alive in tested if mutant.path.startswith(room)]
        noticed = results.count(False)
        score = f"{noticed / len(results):.0%}" if results else "-"
        name = room if room in ROOMS else "all"
        lines.append(f"| {name} | {len(results)} | {noticed} | {score} |")
    lines += ["", "## Survivors", ""]
    for mutant, alive in tested:
        if alive:
            before, after = mutant.difference()
            lines += [f"- `{mutant.path}:{mutant.line}`", "", "  ```diff"]
            lines += [f"  - {before}", f"  + {after}", "  ```", ""]
    return "\n".join(lines).rstrip() + "\n"


def main(words: Sequence[str] | None = None) -> None:
    """Test a sample and write the report."""
    parser = argparse.ArgumentParser(description="Mutation testing of a seeded sample.")
    parser.add_argument("report", type=Path)
    parser.add_argument("--room", choices=ROOMS, help="only this one")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1800.0, help="no new mutant after them")
    asked = parser.parse_args(words)
    rooms = (asked.room,) if asked.room else ROOMS
    chosen, tested = sample(rooms, asked.count, asked.seed), []
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        tree = tree_of(Path(folder))
        if not _pass(tree, sorted({f"tests/parsim/{at}" for room in rooms for at in WIDER[room]})):
            raise SystemExit("the tests fail without a mutant")
        for mutant in chosen:
            if time.monotonic() - begun > asked.seconds:
                break
            tested.append((mutant, survives(mutant, tree, 240.0)))
            told = "SURVIVES" if tested[-1][1] else "noticed"
            change = mutant.difference()[1]
            print(f"{told} {mutant.path}:{mutant.line}: {change}", flush=True)  # noqa: T201
    command = f"make mutate COUNT={len(tested)} SEED={asked.seed}"
    asked.report.write_text(report(tested, command), "utf-8")


if __name__ == "__main__":
    main()
