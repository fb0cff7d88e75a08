"""Lays two recordings of `same_numbers` side by side: identical, rounding, different or missing."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tests.tools.same_numbers.cases import matches

ABSENT = "<absent>"
NUMBER = re.compile(r"(?<![\w.])[+-]?\d[\d,]*(?:\.\d+)?(?:[eE][+-]?\d+)?")
IDENTICAL, OTHER_TEXT, IGNORED, ROUNDING, DIFFERENT, MISSING, ADDED = (
    "identical",
    "same values in other text",
    "identical but for ignored keys",
    "rounding",
    "different",
    "missing",
    "added",
)
FAILURES = (DIFFERENT, MISSING)


@dataclass(frozen=True, slots=True)
class Difference:
    """Two values at one path, and how far apart they are; infinite where that is no number."""

    path: str
    before: object
    after: object
    relative: float = float("inf")

    @property
    def key(self) -> str:
        """The last key of the path."""
        return self.path.rpartition(".")[2].partition("[")[0]

    def text(self) -> str:
        """The difference in one line."""
        far = "" if self.relative == float("inf") else f"  ({self.relative:.2e} relative)"
        return f"{self.path}: {short(self.before)} -> {short(self.after)}{far}"


def short(value: object) -> str:
    """A value in one line of limited length."""
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 160 else f"{text[:157]}..."


def differences(before: Any, after: Any, path: str = "") -> Iterator[Difference]:
    """All paths at which two documents differ, missing keys and entries among them."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys()):
            values = before.get(key, ABSENT), after.get(key, ABSENT)
            yield from differences(*values, f"{path}.{key}" if path else key)
    elif isinstance(before, list) and isinstance(after, list):
        pairs = zip_longest(before, after, fillvalue=ABSENT)
        for index, values in enumerate(pairs):
            yield from differences(*values, f"{path}[{index}]")
    elif same(before, after):
        return
    else:
        yield Difference(path, before, after, relative_difference(before, after))


def same(before: object, after: object) -> bool:
    """Whether two values are the same, a whole number and a float of its size not."""
    if isinstance(before, float) and isinstance(after, float):
        return before == after or (before != before and after != after)
    return type(before) is type(after) and before == after


def relative_difference(before: object, after: object) -> float:
    """How far two numbers, or texts that differ in their digits alone, are from one another."""
    if isinstance(before, str) and isinstance(after, str):
        return text_difference(before, after)
    if type(before) is not type(after) or not isinstance(before, int | float):
        return float("inf")
    assert isinstance(after, int | float)
    largest = max(abs(before), abs(after))
    if isinstance(before, bool) or largest in (0, float("inf")) or largest != largest:
        return float("inf")
    return abs(after - before) / largest


def text_difference(before: str, after: str) -> float:
    """The largest difference of the numbers in two texts; infinite where other letters differ.

    Blanks do not count, since columns of tables grow with their numbers.
    """
    if skeleton(before) != skeleton(after):
        return float("inf")
    pairs = zip(numbers(before), numbers(after), strict=True)
    return max((0.0 if a == b else relative_difference(a, b) for a, b in pairs), default=0.0)


def skeleton(text: str) -> str:
    """A text without its numbers and blanks."""
    return "".join(NUMBER.sub("#", text).split())


def numbers(text: str) -> list[float]:
    """The numbers in a text."""
    return [float(part.replace(",", "")) for part in NUMBER.findall(text)]


def values_of(case: dict[str, Any], rtol: float) -> dict[str, Any]:
    """What is compared of a case path by path: all but the hashes of what is recorded in full."""
    commands = {
        name: {key: value for key, value in command.items() if key != "stdout_sha256"}
        for name, command in case["commands"].items()
    }
    files = {name: values_of_file(file, rtol) for name, file in case["files"].items()}
    return {**case, "commands": commands, "files": files}


def values_of_file(file: dict[str, Any], rtol: float) -> dict[str, Any]:
    """Compare a file; a long document that may be rounded has an outline with sums."""
    rounded = ("outline",) if rtol > 0.0 else ()
    known = next(key for key in ("content", *rounded, "sha256") if key in file)
    return {known: file[known]}


def hashes(case: dict[str, Any]) -> list[object]:
    """The hashes of all that a case printed and wrote; they also see the order of keys, and -0."""
    printed = [command.get("stdout_sha256") for _, command in sorted(case["commands"].items())]
    return printed + [file["sha256"] for _, file in sorted(case["files"].items())]


def judge(
    before: dict[str, Any], after: dict[str, Any], rtol: float, ignored: Collection[str] = ()
) -> tuple[str, list[Difference]]:
    """What is to be said of one case, and its differences but those of the keys `ignored`."""
    every = list(differences(values_of(before, rtol), values_of(after, rtol)))
    result = [each for each in every if each.key not in ignored]
    if not every:
        return (IDENTICAL if hashes(before) == hashes(after) else OTHER_TEXT), []
    if not result:
        return IGNORED, []
    worst = max(each.relative for each in result)
    return (ROUNDING if worst <= rtol else DIFFERENT), result


def read_cases(folder: Path, only: str | None) -> dict[str, Path]:
    """The recorded cases of a folder by id."""
    paths = {
        path.relative_to(folder).with_suffix("").as_posix(): path for path in folder.rglob("*.json")
    }
    paths.pop("manifest", None)
    return {name: path for name, path in sorted(paths.items()) if matches(name, only)}


def read(path: Path) -> dict[str, Any]:
    """One recorded case."""
    case: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return case


def tell(name: str, verdict: str, differences: list[Difference], most: int) -> None:
    """Print one case and its differences, the largest first."""
    lines = [f"{verdict}: {name}"]
    chosen = sorted(differences, key=lambda each: -each.relative)
    lines += [f"    {each.text()}" for each in chosen[:most]]
    if len(differences) > most:
        lines.append(f"    ... and {len(differences) - most} more")
    sys.stdout.write("\n".join(lines) + "\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How two recordings are compared.

    `rtol` is the relative difference up to which numbers count as rounded only; 0 asks for the
    same bytes. `only` is part of an id, or a glob. `partial`: cases that only the first recording
    holds are no failure. `ignored` are keys that may differ, come or go. `most` differences of
    each case are printed.
    """

    rtol: float = 0.0
    only: str | None = None
    partial: bool = False
    ignored: Collection[str] = ()
    most: int = 8


def compare_folders(before: Path, after: Path, options: Options) -> int:
    """Print what differs between two recordings; 1 where something does, else 0."""
    old, new = read_cases(before, options.only), read_cases(after, options.only)
    counts: Counter[str] = Counter()
    for name in sorted(old.keys() | new.keys()):
        verdict, result = ADDED if name not in old else MISSING, list[Difference]()
        if name in old and name in new:
            cases = read(old[name]), read(new[name])
            verdict, result = judge(*cases, options.rtol, options.ignored)
        elif verdict == MISSING and options.partial:
            continue
        counts[verdict] += 1
        if verdict not in (IDENTICAL, IGNORED):
            tell(name, verdict, result, options.most)
    listed = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
    sys.stdout.write(f"{sum(counts.values())} cases: {listed or 'none'}\n")
    failures = (*FAILURES, OTHER_TEXT) if options.rtol == 0.0 else FAILURES
    return int(any(counts[verdict] for verdict in failures) or not counts)
