"""Forks ranks from one process that has imported torch and the executor once.

Importing them takes a rank three seconds, which most tests would spend on nothing else. A test
process starts one server, asks it over a pipe, and the server ends with it. Before it forks, the
server starts no thread and touches no tensor, so the ranks are as good as new ones.

Runs in the server, except for `Server`, which is the test's side.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import os
import runpy
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from executor.faults.ports import free_port
from parsim.launch.ranks import PARENT

ROOT = Path(__file__).parents[2]
PR_SET_PDEATHSIG = 1  # Linux, prctl(2): a signal for this process when its parent dies
TO_WRITE = 0.2
"""Seconds that a process has for writing where it stood."""
BUSIEST = 6.0
"""How many times as long as it may take a launch takes at most on a busy machine."""
STILL = 15.0
"""Seconds without computing after which late processes hang."""
PRELOADED = ("executor.run.run", "executor.measure.gradients", "tests.executor.workers.specs")
QUIET = {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR", "GLOO_SOCKET_IFNAME": "lo"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a launch ended: each process's exit code, and whether it took too long."""

    codes: tuple[int, ...]
    late: bool

    @property
    def code(self) -> int:
        """0, or the first code that is not."""
        return next((code for code in self.codes if code), 0)


class ServerError(Exception):
    """The server ended, or answered with nothing that can be read; the next launch starts anew."""


class Server:
    """A server and the pipe to it.

    Requests are numbered: the answer to one whose test was interrupted is not taken for the next
    one's, and a server that was killed (for memory, say) fails one launch, not all that follow.
    """

    def __init__(self) -> None:
        self._process = self._started()
        self._asked = 0

    def _started(self) -> subprocess.Popen[str]:
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        return subprocess.Popen(
            [sys.executable, "-m", "tests.executor.forkserver"],
            cwd=ROOT,
            env={**os.environ, **QUIET, "PYTHONPATH": path},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def run(
        self,
        words: Sequence[str],
        *,
        ranks: int,
        output: Path,
        timeout: float,
        errors: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Ended:
        """Run a script, or `-m module`, with its arguments; 0 ranks is one process without a rank.

        Its output is added to the file `output`, stderr to `errors` if that is given.
        """
        self._asked += 1
        asked = {
            "number": self._asked,
            "words": list(words),
            "ranks": ranks,
            "timeout": timeout,
            "output": str(output),
            "errors": str(errors or output),
            "environment": dict(environment or {}),
        }
        if self._process.poll() is not None:
            self.close()
            self._process = self._started()
        document = self._answer(json.dumps(asked) + "\n")
        return Ended(codes=tuple(document["codes"]), late=document["late"])

    def _answer(self, request: str) -> dict[str, Any]:
        """The answer to a request, behind any to earlier ones that nobody waited for."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(request)
            self._process.stdin.flush()
        while line := self._process.stdout.readline():
            document: dict[str, Any] = json.loads(line)
            if document["number"] == self._asked:
                return document
        raise ServerError(f"the server that forks ranks ended with code {self._process.wait()}")

    def close(self) -> None:
        """Let the server end."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self._process.wait()


def die_with_parent() -> None:
    """End when the parent ends, even if that was killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    """Serve until the pipe is closed."""
    die_with_parent()
    os.environ.pop(PARENT, None)  # what is forked here has this process as its parent
    for module in PRELOADED:
        __import__(module)
    for line in sys.stdin:
        asked = json.loads(line)
        codes, late = _serve(asked)
        answer = {"number": asked["number"], "codes": codes, "late": late}
        print(json.dumps(answer), flush=True)  # noqa: T201


def _serve(asked: dict[str, Any]) -> tuple[list[int], bool]:
    """Fork the processes, wait for them, and end the others once one has failed."""
    port = str(free_port())
    pids = [_fork(asked, rank, port) for rank in range(max(asked["ranks"], 1))]
    codes: dict[int, int] = {}
    limit, late = Limit(asked["timeout"], pids), False
    while len(codes) < len(pids):
        for pid in pids:
            if pid not in codes and (status := os.waitpid(pid, os.WNOHANG))[0]:
                codes[pid] = os.waitstatus_to_exitcode(status[1])
        late = late or limit.over()
        if late or any(codes.values()):
            _kill(set(pids) - set(codes))
        time.sleep(0.01)
    return [codes[pid] for pid in pids], late


class Limit:
    """When processes are late: they are beyond their seconds, and compute no more, or far beyond.

    On a machine that others use a launch takes several times as long, of which its processes see
    as many seconds of a core as ever; one that hangs uses none.
    """

    def __init__(self, seconds: float, pids: list[int]) -> None:
        now = time.monotonic()
        self._pids, self._until = pids, now + seconds
        self._at_most, self._moved, self._used = now + BUSIEST * seconds, now, 0

    def over(self) -> bool:
        """Whether they are late now; to be asked again and again."""
        now = time.monotonic()
        if now < self._until:
            return False
        used = sum(map(_ticks, self._pids))
        if used > self._used:
            self._moved, self._used = now, used
        return now > self._at_most or now - self._moved > STILL


def _ticks(pid: int) -> int:
    """Clock ticks of a core that a process has used; 0 of one that is gone, or without Linux."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])  # utime and stime, proc_pid_stat(5)


def _kill(pids: set[int]) -> None:
    """End processes, each of which first writes where it stood."""
    for end in (signal.SIGUSR1, signal.SIGKILL):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, end)
        time.sleep(TO_WRITE if pids and end == signal.SIGUSR1 else 0.0)


def _fork(asked: dict[str, Any], rank: int, port: str) -> int:
    pid = os.fork()
    if pid == 0:
        _rank(asked, rank, port)
    return pid


def _rank(asked: dict[str, Any], rank: int, port: str) -> NoReturn:
    """One process of a launch: as torchrun would start it, but for the imports."""
    die_with_parent()
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    for name, descriptor in (("output", 1), ("errors", 2)):
        opened = os.open(asked[name], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(opened, descriptor)
    faulthandler.register(signal.SIGUSR1, all_threads=False)
    os.environ.update(asked["environment"])
    if asked["ranks"]:
        numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": asked["ranks"]}
        numbers |= {"LOCAL_WORLD_SIZE": asked["ranks"]}
        os.environ.update({name: str(number) for name, number in numbers.items()})
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    code = _run(asked["words"])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _run(words: list[str]) -> int:
    """The exit code of a script or module."""
    try:
        if words[0] == "-m":
            sys.argv = words[1:]
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = words
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        sys.stderr.write(f"{end.code}\n")
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    main()
