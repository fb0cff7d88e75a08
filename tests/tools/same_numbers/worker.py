"""Runs cases of `same_numbers` against one checkout; a script of its own, started in that checkout.

    python worker.py TREE INLINE_BYTES

Reads one case a line from stdin, as JSON with `words` and `target`, writes what its commands ended
with to the file `target`, and answers with a line. It knows parsim by `python -m parsim` alone, so
that both ends of a refactor can be run by it; all commands share the process to save the imports.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import runpy
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

UNSTABLE = frozenset({"meta"})
"""Keys of documents that hold times of day and versions."""

CRASHED = 99
"""Exit code of a command that ended in an exception of Python."""

TEXTS = frozenset({".yaml", ".csv", ".md", ".sh", ".txt"})
"""Files that a command writes and that are recorded line by line."""


class CaseWorker:
    """One process' view of a checkout: its folder, its inputs, and how commands are run in it."""

    def __init__(self, tree: Path, inputs: Path, inline: int) -> None:
        self.tree = tree
        self.inputs = inputs
        self.inline = inline

    def record(self, commands: Mapping[str, list[str]]) -> dict[str, Any]:
        """Run a case's commands in one folder and say what each printed and all of them wrote."""
        with tempfile.TemporaryDirectory(prefix="same-numbers-") as folder:
            out = Path(folder)
            ended = {name: self.command(words, out) for name, words in commands.items()}
            files = {str(path.relative_to(out)): self.written(path, out) for path in files_in(out)}
        return {"commands": ended, "files": files}

    def command(self, words: list[str], out: Path) -> dict[str, Any]:
        """Run one command and return its exit code and both streams."""
        try:
            given = [self.placed(word, out) for word in words]
        except FileNotFoundError as error:
            return {"words": words, "missing": str(error)}
        code, stdout, stderr = run_parsim(given)
        text = self.anonymous(stdout, out)
        return {
            "words": words,
            "exit": code,
            "stdout": document(text) if "--json" in words else text.splitlines(),
            "stdout_sha256": digest(text.encode()),
            "stderr": self.anonymous(stderr, out).splitlines(),
        }

    def placed(self, word: str, out: Path) -> str:
        """A word of a case with its folders and data files filled in."""
        word = word.replace("{out}", str(out)).replace("{in}", str(self.inputs))
        return re.sub(r"\{data:([^}]+)\}", lambda part: str(self.data(part[1])), word)

    def data(self, name: str) -> Path:
        """A copy of a file of the checkout, found by its name alone: folders may be renamed."""
        copy = self.inputs / name
        if not copy.exists():
            folders = (self.tree / top for top in ("parsim", "tests", "reports", "scenarios"))
            paths = sorted(path for folder in folders for path in folder.rglob(name))
            if not paths:
                raise FileNotFoundError(f"no file {name} in the checkout")
            copy.write_bytes(paths[0].read_bytes())
        return copy

    def anonymous(self, text: str, out: Path) -> str:
        """Text without the folders of this run, which differ between two recordings."""
        text = text.replace(str(out), "<out>").replace(str(self.inputs), "<in>")
        return re.sub(re.escape(str(self.tree)) + r"(/[\w.-]+)*/?", hidden, text)

    def written(self, path: Path, out: Path) -> dict[str, Any]:
        """A written file: its hash, and what is in it where that is short or text."""
        raw = path.read_bytes()
        if path.suffix == ".png":
            return {"sha256": digest(raw)}
        text = self.anonymous(raw.decode(), out)
        entry: dict[str, Any] = {"sha256": digest(text.encode())}
        if path.suffix == ".json" and len(text) <= self.inline:
            entry["content"] = document(text)
        elif path.suffix == ".json":
            entry["outline"] = outline(document(text))
        elif path.suffix in TEXTS:
            entry["content"] = text.splitlines()
        return entry


def hidden(match: re.Match[str]) -> str:
    """A path of the checkout as its last part, since folders above it may be renamed."""
    return f"<tree>/{Path(match[0]).name}" if match[1] else "<tree>"


def run_parsim(words: list[str]) -> tuple[int, str, str]:
    """Run `python -m parsim` with these words in this process."""
    stdout, stderr = stream(), stream()
    before = sys.argv
    sys.argv = ["parsim", *words]
    try:
        with redirect_stdout(stdout), redirect_stderr(stderr):
            code = exit_code()
    finally:
        sys.argv = before
    return code, printed(stdout), printed(stderr)


def exit_code() -> int:
    """The exit code of the command whose words are in sys.argv."""
    try:
        runpy.run_module("parsim", run_name="__main__", alter_sys=True)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except Exception as error:  # a checkout whose imports are broken: the case says so
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return CRASHED
    return 0


def stream() -> io.TextIOWrapper:
    """A stream of text that keeps what is written to it."""
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)


def printed(kept: io.TextIOWrapper) -> str:
    """All that was written to a stream."""
    buffer = kept.detach()
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode()


def document(text: str) -> Any:
    """A JSON text as data without what changes from run to run; other text as its lines."""
    try:
        return stable(json.loads(text))
    except json.JSONDecodeError:
        return text.splitlines()


def stable(value: Any) -> Any:
    """Data without the keys that change from run to run."""
    if isinstance(value, dict):
        return {key: stable(item) for key, item in value.items() if key not in UNSTABLE}
    return [stable(item) for item in value] if isinstance(value, list) else value


def outline(value: Any) -> dict[str, Any]:
    """A long document in short: a hash of all but its floats, and the sum of these by key."""
    floats: defaultdict[str, list[float]] = defaultdict(list)
    shape = json.dumps(without_floats(value, "", floats), sort_keys=True)
    sums = {key: math.fsum(values) for key, values in floats.items()}
    return {"shape": digest(shape.encode()), "sums": sums}


def without_floats(value: Any, key: str, floats: defaultdict[str, list[float]]) -> Any:
    """A document with its floats moved to lists, by the key that they stand at or below."""
    if isinstance(value, dict):
        return {name: without_floats(item, name, floats) for name, item in value.items()}
    if isinstance(value, list):
        return [without_floats(item, key, floats) for item in value]
    if isinstance(value, float):
        floats[key].append(value)
        return None
    return value


def digest(raw: bytes) -> str:
    """A short hash."""
    return hashlib.sha256(raw).hexdigest()[:32]


def files_in(folder: Path) -> list[Path]:
    """All files below a folder, in order."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def check_tree(tree: Path) -> None:
    """Make sure that it is this checkout's parsim that runs, not the installed one.

    Raises:
        SystemExit: it is another one.
    """
    sys.path[0] = str(tree)
    import parsim

    imported = Path(str(parsim.__file__)).resolve()
    if tree not in imported.parents:
        raise SystemExit(f"parsim is {imported}, which is not below {tree}")


@contextmanager
def answers() -> Iterator[io.TextIOWrapper]:
    """The stream of answers; what else writes to the first file descriptor goes to stderr."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as channel:
        os.dup2(2, 1)
        yield channel


def tell(channel: io.TextIOWrapper, line: str) -> None:
    """Send one line to the process that asks."""
    channel.write(f"{line}\n")
    channel.flush()


def answer(worker: CaseWorker, case: Mapping[str, Any]) -> float:
    """Write what one case's commands ended with, and return how many seconds they took."""
    began = time.perf_counter()
    for name, text in case["inputs"].items():
        (worker.inputs / name).write_text(text, encoding="utf-8")
    entry = worker.record(case["commands"])
    target = Path(case["target"])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(entry, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return time.perf_counter() - began


def main(tree: Path, inline: int) -> None:
    """Say that all is ready, then answer case after case."""
    check_tree(tree)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="same-numbers-in-") as folder, answers() as channel:
        worker = CaseWorker(tree, Path(folder), inline)
        tell(channel, "ready")
        for line in sys.stdin:
            tell(channel, f"{answer(worker, json.loads(line)):.3f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), int(sys.argv[2]))
