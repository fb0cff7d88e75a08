"""Starts a worker script on several processes, and ends all of them whatever happens.

A worker calls `results` with what it found; `launch` returns that by rank. The processes get one
thread each, since they share the machine's few cores.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PR_SET_PDEATHSIG = 1  # Linux, prctl(2): a signal for this process when its parent dies


class LaunchError(Exception):
    """The workers failed or took too long; the message ends with what they wrote."""


def launch(worker: Path, *args: str, ranks: int, folder: Path, timeout: float) -> list[Any]:
    """Run `worker` under torchrun with `args`; what each rank wrote, in order of rank.

    Raises:
        LaunchError: a rank failed, wrote nothing, or ran longer than `timeout` seconds.
    """
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
        *(f"--nproc-per-node={ranks}", str(worker), str(folder), *args),
    ]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    quiet = {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR", "GLOO_SOCKET_IFNAME": "lo"}
    output = folder / "output.txt"
    with output.open("w") as out:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **quiet, "PYTHONPATH": path},
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        late = _wait(process, timeout)
    text = output.read_text(errors="replace")[-8000:]
    if late:
        raise LaunchError(f"no end after {timeout} s: {' '.join(command)}\n{text}")
    if process.returncode != 0:
        raise LaunchError(f"exit code {process.returncode}: {' '.join(command)}\n{text}")
    files = [folder / f"rank{rank}.json" for rank in range(ranks)]
    silent = [file.name for file in files if not file.exists()]
    if silent:
        raise LaunchError(f"not written: {', '.join(silent)}\n{text}")
    return [json.loads(file.read_text()) for file in files]


def results(folder: str, rank: int, found: object) -> None:
    """Called by a worker: leave what it found for `launch`."""
    Path(folder, f"rank{rank}.json").write_text(json.dumps(found))


def die_with_parent() -> None:
    """Called by a worker: end when torchrun ends, even if that was killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _wait(process: subprocess.Popen[bytes], timeout: float) -> bool:
    """Wait for the end and clear up; True if it had to be forced."""
    try:
        process.wait(timeout)
        return False
    except subprocess.TimeoutExpired:
        return True
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask torchrun to end its workers, then kill what is left of its process group."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
