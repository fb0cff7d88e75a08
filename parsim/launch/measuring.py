"""Measures this machine: its kernels for the catalog, and its collectives."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from parsim.errors import RunError
from parsim.launch.nodes import ONE_NODE
from parsim.launch.ranks import ask, require_torch, torchrun
from parsim.launch.watch import GRACE, ended_by_signals
from parsim.report.writing import check_other, check_writable, write_text


@ended_by_signals()
def calibrate(
    out: Path,
    *,
    scenarios: Sequence[Path] = (),
    seconds: float = 55.0,
    device: str | None = None,
    merge: Path | None = None,
    oversubscribe: bool = False,
    base: str | None = None,
    log: Path | None = None,
) -> dict[str, Any]:
    """Measure this machine, write its catalog file, and return the document of the fit.

    The file is for `cluster.catalog` of a scenario. Measured are, for about so many seconds, the
    shapes of the scenarios' plans too, in the first one's precision. Points of an earlier file of
    this device to `merge` are kept beside the new ones. With `oversubscribe` groups of more ranks
    than there are devices are timed too. `base` is the catalog's device whose figures stand in for
    what is not measured, of a GPU that the catalog lacks. What ranks say goes into a `log`.

    Raises:
        InputError: torch is missing, a file cannot be written, the catalog has no such GPU, or
            the file to merge is of another device or precision.
        RunError: ranks failed while measuring; the log is kept.
    """
    require_torch("calibration")
    check_other(out, *scenarios)
    check_writable(out)
    began = time.perf_counter()
    folder = Path(tempfile.mkdtemp(prefix="parsim-calibrate-"))
    words = [f"--out={folder}", f"--seconds={seconds}"]
    words += [f"--scenario={scenario}" for scenario in scenarios]
    words += [f"--device={device}"] if device else []
    words += [f"--base={base}"] if base else []
    words += [f"--merge={merge}"] if merge else []
    words += ["--oversubscribe"] if oversubscribe else []
    with _kept_if_failed(folder):
        _measure(words, folder, log or folder / "log.txt")
    document: dict[str, Any] = json.loads((folder / "calibration.json").read_text("utf-8"))
    if merge:
        document = _merged(document, merge, folder / "device.yaml")
    write_text(out, (folder / "device.yaml").read_text(encoding="utf-8"))
    shutil.rmtree(folder)
    return {**document, "seconds": time.perf_counter() - began}


@contextmanager
def _kept_if_failed(folder: Path) -> Iterator[None]:
    """Remove a folder where the block was refused or interrupted; ranks that failed left a log."""
    try:
        yield
    except RunError:
        raise
    except BaseException:
        shutil.rmtree(folder)
        raise


def _merged(document: dict[str, Any], old: Path, new: Path) -> dict[str, Any]:
    """Merge an earlier calibration into the new file; the document with the merged constants."""
    done = ask("executor.calibration.merge", [str(old), str(new), f"--out={new}"])
    merged = json.loads(done.stdout)
    for part in ("device", "system"):
        if document[part] and merged[part]:
            document[part] |= merged[part]
    residuals = {**document["residuals"], **merged["residuals"]}
    return {**document, "residuals": residuals, "merged": {"with": str(old), **merged["merged"]}}


def _measure(words: list[str], folder: Path, log: Path) -> None:
    """Ask the executor how many ranks a calibration takes, and start them."""
    module = "executor.calibration"
    asked = ask(module, words)
    sys.stderr.write("".join(x + "\n" for x in asked.stderr.splitlines() if x.startswith("note: ")))
    code = torchrun(
        ONE_NODE.torchrun_words(int(asked.stdout)),
        [module, *words],
        log,
        lambda process: process.wait(),
    )
    if code or not (folder / "calibration.json").exists():
        raise RunError(f"the ranks of the calibration failed: {_last_error(log)}; see {log}")


def collectives_hardware(device: str | None) -> dict[str, Any]:
    """What collectives would be measured on: kind, backend, count, hardware, system.

    Raises:
        InputError: torch is missing, or it does not see such a device.
    """
    require_torch("measuring collectives")
    words = [f"--device={device}"] if device else []
    hardware: dict[str, Any] = json.loads(ask("executor.collectives", words).stdout)
    return hardware


@ended_by_signals()
def measure_collectives(
    kinds: Sequence[str],
    sizes: Sequence[int],
    *,
    ranks: int,
    groups: int,
    device: str,
    until: float,
) -> dict[str, Any]:
    """Time collectives of one group of this machine's ranks, then of all groups at once.

    Sizes are bytes, as nccl-tests counts them. By `until`, a time of day as of `time.time`, the
    ranks must have ended.

    Raises:
        RunError: ranks failed, or did not end in time.
    """
    words = [f"--kinds={','.join(kinds)}", f"--sizes={','.join(map(str, sizes))}"]
    words += [f"--ranks={ranks}", f"--groups={groups}", f"--device={device}"]
    with tempfile.TemporaryDirectory(prefix="parsim-collectives-") as folder:
        out, log = Path(folder, "collectives.json"), Path(folder, "log.txt")
        words += [f"--out={out}", f"--until={until}"]
        words += [f"--load={os.getloadavg()[0]}"] if hasattr(os, "getloadavg") else []
        limit = max(until - time.time(), 0.0) + GRACE
        with suppress(subprocess.TimeoutExpired):
            torchrun(
                ONE_NODE.torchrun_words(ranks * groups),
                ["executor.collectives", *words],
                log,
                lambda process: process.wait(timeout=limit),
            )
        if not out.exists():
            raise RunError(_why_no_collectives(log, until))
        document: dict[str, Any] = json.loads(out.read_text("utf-8"))
        return document


def _why_no_collectives(log: Path, until: float) -> str:
    if time.time() >= until:
        return "the ranks did not end in time; give more with --time-limit, or fewer sizes"
    return f"the ranks that measure failed: {_last_error(log)}"


def _last_error(log: Path) -> str:
    """The last error that a log of ranks names, else its last line."""
    lines = [line for line in log.read_text("utf-8", errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(\[rank\d+\]: )?\w*(Error|Exception)\b", line)]
    return (errors or lines or ["nothing in their log"])[-1]
