"""Starts processes of the executor: one that answers, or the ranks of this node under torchrun.

parsim itself never imports torch or the executor; it starts them and reads what they wrote.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from parsim.errors import InputError
from parsim.launch.nodes import ONE_NODE, Nodes
from parsim.launch.watch import GRACE

ALLOCATOR = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(8 << 30),
    "MALLOC_TOP_PAD_": str(64 << 20),
}
"""Settings of the C library's allocator: keep what was freed. Its default gives blocks from 32 MiB
back at once, and a step that takes them anew pays for every page: 4 GB/s instead of 27."""

SEGMENTS = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
"""Setting of torch's allocator for GPUs: memory is mapped page by page, so that what is reserved
does not grow with the order in which blocks of unlike sizes come and go. A CPU does not read it."""

STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""On several nodes, a store of its own for each start of the ranks: in torchrun's they find the
addresses of those that were killed, for nodes do not count the starts alike. On one node they use
torchrun's (see `executor.devices.mesh`), whose port nobody can take before they listen."""


PARENT = "PARSIM_PARENT"
"""Names the process that started this one; without it this one must not live on."""


def require_torch(what: str) -> None:
    """Refuse what needs torch where it is missing; `what` begins the sentence.

    Raises:
        InputError: torch or the executor is not installed.
    """
    if find_spec("torch") is None or find_spec("executor") is None:
        raise InputError(
            f"{what} needs torch, which is not installed; "
            "install it with: pip install 'torch>=2.11'"
        )


def ask(module: str, words: list[str]) -> subprocess.CompletedProcess[str]:
    """Let a module of the executor answer, or refuse, before anything is launched.

    Raises:
        InputError: it refuses; the text is its message.
    """
    done = python(module, words)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        raise InputError(lines[-1].removeprefix("error: ") if lines else done.stderr.strip())
    return done


def python(module: str, words: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a module of the executor without ranks; it may fail."""
    return subprocess.run(
        [sys.executable, "-m", module, *words],
        capture_output=True,
        text=True,
        check=False,
        env=_bound(environment_of()),
    )


def torchrun(
    layout: list[str],
    words: list[str],
    log: Path,
    wait: Callable[[subprocess.Popen[bytes]], object],
    environment: Mapping[str, str] | None = None,
    keeps: Sequence[int] = (),
) -> int:
    """Start a module on every rank of this node, wait, end what is left; the exit code.

    Torchrun gets the arguments `layout`, the ranks `words`: the module and its arguments. Output
    is added to the log, for several nodes may share it. Without an environment all ranks are taken
    to be on this machine. Torchrun `keeps` open files of this process, the lock of a folder.
    """
    command = [sys.executable, "-m", "executor.faults.torchrun", *layout, "-m", *words]
    with log.open("a", encoding="utf-8") as out:
        process = subprocess.Popen(
            command,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=_bound(environment or environment_of()),
            start_new_session=True,
            pass_fds=tuple(keeps),
        )
        try:
            wait(process)
        finally:
            _end(process)
    return process.returncode


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

    One thread a rank; segments that grow on GPUs; gloo on the loopback device where all ranks are
    on one machine.
    """
    several = STORE if nodes.count > 1 else {}
    loopback = {"GLOO_SOCKET_IFNAME": "lo"} if linux and nodes.on_one_machine else {}
    fixed = {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    return {**fixed, **several, **ALLOCATOR, **SEGMENTS, **loopback}


def environment_of(nodes: Nodes = ONE_NODE) -> dict[str, str]:
    """This process's environment with those settings."""
    return {**settings(nodes, linux=sys.platform == "linux"), **os.environ}


def _bound(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment whose process ends with this one (see `executor.faults.parent`)."""
    return {**environment, PARENT: str(os.getpid())}
