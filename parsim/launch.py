"""Starts the executor on this machine: one process per rank under torchrun.

parsim itself never imports torch or the executor; it starts them and reads what they wrote.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from parsim.errors import InputError, ParsimError
from parsim.nodes import ONE_NODE, Nodes, meeting_name
from parsim.report.save import check_writable, write_text
from parsim.watch import GRACE, ended_by_signals, wait_for_end

ALLOCATOR = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(8 << 30),
    "MALLOC_TOP_PAD_": str(64 << 20),
}
"""Settings of the C library's allocator: keep what was freed. Its default gives blocks from 32 MiB
back at once, and a step that takes them anew pays for every page: 4 GB/s instead of 27."""

STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""A store of its own for each start of the ranks: in torchrun's they find the addresses of those
that were killed, and connect to nobody."""


class RunError(ParsimError):
    """Ranks failed; the message names the first, what it said, and where the log is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What `parsim run` was asked for, beside the plan."""

    out: Path
    overrides: Sequence[str] = ()
    steps: int = 10
    warmup: int = 3
    seed: int = 0
    timeout: float = 300.0
    data: Path | None = None
    tokenizer: Path | None = None
    device: str | None = None
    nodes: Nodes = ONE_NODE
    verify: bool = False
    oversubscribe: bool = False
    checkpoint_every: int = 0
    checkpoints: Path | None = None
    resume: bool = False
    max_restarts: int = 0

    @property
    def restarts(self) -> list[str]:
        """Arguments of torchrun about starting the ranks again."""
        return [f"--max-restarts={self.max_restarts}"] if self.max_restarts else []

    def arguments(self, scenario: Path) -> list[str]:
        """Arguments of `python -m executor`."""
        words = [str(scenario), f"--out={self.out}", f"--steps={self.steps}"]
        words += [f"--warmup={self.warmup}", f"--seed={self.seed}", f"--timeout={self.timeout}"]
        words += [f"--set={pair}" for pair in self.overrides]
        words += [f"--data={self.data}"] if self.data else []
        words += [f"--tokenizer={self.tokenizer}"] if self.tokenizer else []
        words += [f"--device={self.device}"] if self.device else []
        words += [f"--nnodes={self.nodes.count}"] if self.nodes.count > 1 else []
        words += ["--verify"] if self.verify else []
        words += [f"--checkpoint-every={self.checkpoint_every}"] if self.checkpoint_every else []
        words += [f"--checkpoints={self.checkpoints}"] if self.checkpoints else []
        words += ["--resume"] if self.resume else []
        return words + (["--oversubscribe"] if self.oversubscribe else [])


@ended_by_signals()
def run_plan(scenario: Path, world_size: int, options: RunOptions) -> dict[str, Any] | None:
    """Run a scenario's plan and return the document that rank 0 wrote; None if it was elsewhere.

    Raises:
        InputError: torch is missing, or the executor refuses the plan or the machine.
        RunError: ranks failed while running.
    """
    options.nodes.check_meeting()
    options.nodes.share(world_size)
    _require_torch("running a plan")
    words = options.arguments(scenario)
    sys.stderr.write(_ask("executor", words).stderr)
    document = options.out / "run.json"
    _fresh(options.out)
    if not _run_ranks(words, world_size, options):
        return None
    if not document.exists():
        raise RunError(f"the ranks ended, but wrote no {document}; see {options.out}/log.txt")
    found: dict[str, Any] = json.loads(document.read_text(encoding="utf-8"))
    return found


@ended_by_signals()
def calibrate(
    out: Path,
    *,
    scenario: Path | None = None,
    seconds: float = 55.0,
    device: str | None = None,
    merge: Path | None = None,
) -> dict[str, Any]:
    """Measure this machine, write its catalog file, and return the document of the fit.

    Args:
        out: the catalog file, for `cluster.catalog` of a scenario.
        scenario: its plan's shapes and precision are measured too.
        seconds: about how long to measure.
        device: "cpu" or "cuda"; default: what is there.
        merge: an earlier file of this device, whose points are kept beside the new ones.

    Raises:
        InputError: torch is missing, a file cannot be written, the catalog has no such GPU, or
            the file to merge is of another device or precision.
        RunError: ranks failed while measuring; the log is kept.
    """
    _require_torch("calibration")
    check_writable(out)
    began = time.perf_counter()
    folder = Path(tempfile.mkdtemp(prefix="parsim-calibrate-"))
    words = [f"--out={folder}", f"--seconds={seconds}"]
    words += [f"--scenario={scenario}"] if scenario else []
    words += [f"--device={device}"] if device else []
    words += [f"--merge={merge}"] if merge else []
    _measure(words, folder)
    document: dict[str, Any] = json.loads((folder / "calibration.json").read_text("utf-8"))
    if merge:
        document = _merged(document, merge, folder / "device.yaml")
    write_text(out, (folder / "device.yaml").read_text(encoding="utf-8"))
    shutil.rmtree(folder)
    return {**document, "seconds": time.perf_counter() - began}


def _merged(document: dict[str, Any], old: Path, new: Path) -> dict[str, Any]:
    """Merge an earlier calibration into the new file; the document with the merged constants."""
    done = _ask("executor.calibration.merge", [str(old), str(new), f"--out={new}"])
    found = json.loads(done.stdout)
    for part in ("device", "system"):
        if document[part] and found[part]:
            document[part] |= found[part]
    residuals = {**document["residuals"], **found["residuals"]}
    return {**document, "residuals": residuals, "merged": {"with": str(old), **found["merged"]}}


def _measure(words: list[str], folder: Path) -> None:
    """Ask the executor how many ranks a calibration takes, and start them."""
    module, log = "executor.calibrate", folder / "log.txt"
    try:
        asked = _ask(module, words)
        ranks = int(asked.stdout)
    except InputError:
        shutil.rmtree(folder)
        raise
    sys.stderr.write("".join(x + "\n" for x in asked.stderr.splitlines() if x.startswith("note: ")))
    layout = ONE_NODE.torchrun_words(ranks, name=module, timeout=0.0)
    code = _torchrun(layout, [module, *words], log, lambda process: process.wait())
    if code or not (folder / "calibration.json").exists():
        raise RunError(f"the ranks of the calibration failed; see {log}")


def collectives_hardware(device: str | None) -> dict[str, Any]:
    """What collectives would be measured on: kind, backend, count, hardware, system.

    Raises:
        InputError: torch is missing, or it does not see such a device.
    """
    _require_torch("measuring collectives")
    words = [f"--device={device}"] if device else []
    found: dict[str, Any] = json.loads(_ask("executor.collectives", words).stdout)
    return found


@ended_by_signals()
def measure_collectives(
    kinds: Sequence[str], sizes: Sequence[int], *, ranks: int, groups: int, device: str,
    until: float,
) -> dict[str, Any]:  # fmt: skip
    """Time collectives of one group of this machine's ranks, then of all groups at once.

    Args:
        kinds: collectives.
        sizes: bytes, as nccl-tests counts them.
        ranks: of each group.
        groups: how many run at once.
        device: "cpu" or "cuda".
        until: time of day at which the ranks must have ended, as of `time.time`.

    Raises:
        RunError: ranks failed, or did not end in time.
    """
    words = [f"--kinds={','.join(kinds)}", f"--sizes={','.join(map(str, sizes))}"]
    words += [f"--ranks={ranks}", f"--groups={groups}", f"--device={device}"]
    with tempfile.TemporaryDirectory(prefix="parsim-collectives-") as folder:
        out, log = Path(folder, "collectives.json"), Path(folder, "log.txt")
        words += [f"--out={out}", f"--until={until}"]
        words += [f"--load={os.getloadavg()[0]}"] if hasattr(os, "getloadavg") else []
        layout = ONE_NODE.torchrun_words(ranks * groups, name="collectives", timeout=0.0)
        limit = max(until - time.time(), 0.0) + GRACE
        with suppress(subprocess.TimeoutExpired):
            _torchrun(layout, ["executor.collectives", *words], log,
                      lambda process: process.wait(timeout=limit))  # fmt: skip
        if not out.exists():
            raise RunError(_why_no_collectives(log, until))
        found: dict[str, Any] = json.loads(out.read_text("utf-8"))
        return found


def _why_no_collectives(log: Path, until: float) -> str:
    if time.time() >= until:
        return "the ranks did not end in time; give more with --time-limit, or fewer sizes"
    told = [line for line in log.read_text("utf-8", errors="replace").splitlines() if line.strip()]
    errors = [line for line in told if re.match(r"(\[rank\d+\]: )?\w*(Error|Exception)\b", line)]
    return f"the ranks that measure failed: {(errors or told or ['nothing in their log'])[-1]}"


def _require_torch(what: str) -> None:
    if find_spec("torch") is None or find_spec("executor") is None:
        raise InputError(
            f"{what} needs torch, which is not installed; "
            "install it with: pip install parsim[executor]"
        )


def _ask(module: str, words: list[str]) -> subprocess.CompletedProcess[str]:
    """Let a module of the executor answer, or refuse, before anything is launched."""
    done = _python(module, words)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        raise InputError(lines[-1].removeprefix("error: ") if lines else done.stderr.strip())
    return done


def _python(module: str, words: list[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", module, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=_environment())


def _torchrun(
    layout: list[str],
    words: list[str],
    log: Path,
    wait: Callable[[subprocess.Popen[bytes]], object],
    environment: Mapping[str, str] | None = None,
) -> int:
    """Start a module on every rank of this node, wait, end what is left; the exit code.

    Args:
        layout: arguments of torchrun.
        words: the module and its arguments.
        log: output is added to it, for several nodes may share it.
        wait: called with the process.
        environment: of the ranks, beside this process's; default: all ranks on this machine.
    """
    command = [sys.executable, "-m", "torch.distributed.run", *layout, "-m", *words]
    with log.open("a", encoding="utf-8") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, env=environment or _environment(),
            start_new_session=True,
        )  # fmt: skip
        try:
            wait(process)
        finally:
            _end(process)
    return process.returncode


def _fresh(out: Path) -> None:
    """Make the folder, without what an earlier run left there."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / "run.json").unlink(missing_ok=True)
        (out / "log.txt").write_bytes(b"")
        _clear(out / "errors")
    except OSError as error:
        raise InputError(
            f"cannot write {error.filename or out}: {error.strerror}; "
            f"choose another folder with --out, or free space there"
        ) from None


def _run_ranks(words: list[str], world_size: int, options: RunOptions) -> bool:
    """Run this node's ranks; whether rank 0, which writes the results, was among them."""
    errors, log = options.out / "errors", options.out / "log.txt"
    layout = options.nodes.torchrun_words(
        world_size, name=meeting_of(words, options), timeout=options.timeout
    )
    layout += options.restarts
    with tempfile.TemporaryDirectory(prefix="parsim-run-") as folder:
        wrote = Path(folder, "wrote")
        environment = {**_environment(options.nodes), "PARSIM_WROTE": str(wrote)}
        code = _torchrun(
            layout,
            ["executor", *words],
            log,
            lambda process: wait_for_end(process, errors, options.max_restarts),
            environment,
        )
        if code:
            raise _reason(world_size, options)
        here = wrote.exists()
    with suppress(OSError):
        _clear(errors)
    return here or options.nodes.count == 1


def meeting_of(words: list[str], options: RunOptions) -> str:
    """The run's name, alike on all nodes: its scenario by contents, for each has its own copy."""
    own = (words[0], f"--out={options.out}")
    return meeting_name([Path(words[0]).read_text("utf-8"), *(w for w in words if w not in own)])


def _clear(errors: Path) -> None:
    """Delete what ranks left in a folder, and the folder if nothing else is in it."""
    for name in ("rank*.json", "rank*.step", "restart.txt"):
        for left in errors.glob(f"attempt*/{name}"):
            left.unlink(missing_ok=True)  # another node may be here first
    for folder in [*errors.glob("attempt*"), errors]:
        with suppress(OSError):
            folder.rmdir()


def _end(process: subprocess.Popen[bytes]) -> None:
    """End torchrun, which ends its ranks; a second interrupt, or a rank that hangs, kills them."""
    try:
        if process.poll() is None:
            process.terminate()
            process.wait(timeout=GRACE)
    except subprocess.TimeoutExpired:
        pass
    finally:  # ranks have sessions of their own, but die with torchrun (see executor.faults)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def settings(nodes: Nodes, *, linux: bool) -> dict[str, str]:
    """Environment of the ranks where the user has set nothing else.

    One thread a rank; gloo on the loopback device where all ranks are on one machine.
    """
    found = {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR", **STORE, **ALLOCATOR}
    return {**found, "GLOO_SOCKET_IFNAME": "lo"} if linux and nodes.on_one_machine else found


def _environment(nodes: Nodes = ONE_NODE) -> dict[str, str]:
    return {**settings(nodes, linux=sys.platform == "linux"), **os.environ}


def _reason(world_size: int, options: RunOptions) -> ParsimError:
    """Name the rank that failed first: the others are its victims."""
    log, nodes = options.out / "log.txt", options.nodes
    if nodes.count > 1 and not any((options.out / "errors").glob("attempt*/rank*")):
        return RunError(
            f"no rank started: this node did not meet the others at {nodes.endpoint} within "
            f"--timeout={options.timeout:g} s; start the same command on all {nodes.count} nodes; "
            f"the full log is {log}"
        )
    words = [str(options.out), f"--ranks={world_size}", f"--timeout={options.timeout}"]
    done = _python("executor.diagnosis", words)
    if done.returncode:
        return RunError(f"the ranks failed; see {log}")
    found = json.loads(done.stdout)
    kind = InputError if found["exit_code"] == InputError.exit_code else RunError
    elsewhere = "; a rank of another node says why in the log there" if nodes.count > 1 else ""
    return kind(f"{found['message']}; the full log is {log}{elsewhere}")
