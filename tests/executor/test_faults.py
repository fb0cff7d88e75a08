"""Faults of `parsim run`: who is named, and that nothing is left running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from executor.faults import Evidence, Place, Report, describe, explain, write_report, writing
from parsim.errors import InputError

ROOT = Path(__file__).parents[2]
SCENARIO = """
description: a tiny GPT-2 on two CPU ranks
model: {name: gpt2, num_layers: 4, hidden_size: 64, num_attention_heads: 4,
        num_key_value_heads: 4, head_dim: 16, ffn_hidden_size: 128, vocab_size: 256,
        seq_len: 32, positions: 32}
cluster: {system: cpu, nodes: 1}
software: executor-cpu
training: {global_batch_size: 8, precision: fp32}
plan: {pp: 2, microbatch_size: 2, schedule: 1f1b}
"""
CLOSED = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:7"
LATE = "RuntimeError: Timed out waiting 8000ms for recv operation to complete"
LOG = """
Failures:
[1]:
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 10)
Root Cause (first observed failure):
[0]:
  rank      : 1 (local_rank: 1)
  exitcode  : {code} (pid: 11)
"""


def report(rank: int, message: str, *, time: float = 0.0, kind: str = "error") -> Report:
    return Report(rank=rank, step=4, action="step", kind=kind, message=message, time=time)


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (RuntimeError("shapes\n differ"), "error", "RuntimeError: shapes"),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), "out of memory", None),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 B"), "out of memory", None),
        (MemoryError(), "out of memory", "MemoryError"),
        (RuntimeError(CLOSED), "connection", None),
        (RuntimeError(LATE), "timeout", None),
        (InputError("tp=3 is wrong; allowed: 1, 2"), "input", "tp=3 is wrong; allowed: 1, 2"),
    ],
)
def test_kind_and_message(error: Exception, kind: str, message: str | None) -> None:
    found = describe(error, 1)
    assert (found.rank, found.kind) == (1, kind)
    assert "\n" not in found.message
    assert message is None or found.message == message


def test_the_first_failure_is_not_its_victims() -> None:
    reports = [
        report(0, CLOSED, time=1.0, kind="connection"),
        report(1, "MemoryError", time=2.0, kind="out of memory"),
        report(2, "ValueError: later", time=3.0),
    ]
    told, code = explain(Evidence(ranks=3, timeout=8.0, reports=reports))
    assert (told, code) == ("rank 1 failed at step 4, action step: MemoryError", 1)


def test_wrong_input_on_a_rank_keeps_its_exit_code() -> None:
    found = Evidence(ranks=2, timeout=8.0, reports=[report(0, "cannot write x", kind="input")])
    assert explain(found)[1] == 2


def test_a_hung_rank_is_the_silent_one_furthest_behind() -> None:
    places = {0: (4, "step"), 1: (4, "step"), 2: (3, "step"), 3: (4, "step")}
    late = report(0, LATE, kind="timeout")
    told, code = explain(Evidence(ranks=4, timeout=8.0, reports=[late], places=places))
    assert told == "rank 2 gave no answer for --timeout=8 s at step 3, action step"
    assert code == 1


def test_several_silent_ranks_are_all_named() -> None:
    late = report(0, LATE, kind="timeout")
    told, _ = explain(Evidence(ranks=3, timeout=8.0, reports=[late]))
    assert told.startswith("one of the ranks 1, 2 gave no answer for --timeout=8 s before")


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (-9, "rank 1 was killed by SIGKILL at step 7, action record (short of memory, "),
        (-11, "rank 1 was killed by SIGSEGV at step 7, action record"),
        (3, "rank 1 ended with exit code 3 at step 7, action record"),
    ],
)
def test_exit_codes_are_read_from_the_log(tmp_path: Path, code: int, told: str) -> None:
    (tmp_path / "log.txt").write_text(LOG.format(code=code))
    place = Place(step=7, action="record")
    place.keep(tmp_path, 1)
    if code < 0:  # its victim spoke, and says nothing new
        write_report(tmp_path, report(0, CLOSED, kind="connection"))
    assert explain(Evidence.read(tmp_path, 2, 8.0))[0].startswith(told)


def test_an_aborted_rank_is_a_victim_of_what_failed_before(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text(LOG.format(code=-6))
    write_report(tmp_path, report(0, "OutOfMemoryError: CUDA", kind="out of memory"))
    assert explain(Evidence.read(tmp_path, 2, 8.0))[0].startswith("rank 0 failed at step 4")


def test_nothing_known() -> None:
    assert explain(Evidence(ranks=2, timeout=8.0)) == ("the ranks ended, and none said why", 1)


def test_a_place_is_overwritten_whole(tmp_path: Path) -> None:
    place = Place()
    place.keep(tmp_path, 0)
    place.enter("a longer action", 1234)
    place.enter("step", 5)
    assert Evidence.read(tmp_path, 1, 8.0).places == {0: (5, "step")}


@pytest.mark.parametrize(
    ("failure", "code", "kind"),
    [("ValueError('odd')", 1, "error"), ("InputError('no x; allowed: y')", 2, "input")],
)
def test_a_failing_rank_reports_and_ends(
    tmp_path: Path, failure: str, code: int, kind: str
) -> None:
    script = (
        "import sys, pathlib\n"
        "from executor.faults import HERE, fatal\n"
        "from parsim.errors import InputError\n"
        "HERE.enter('record', 9)\n"
        f"with fatal(pathlib.Path(sys.argv[1]), 3): raise {failure}\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == code
    assert "Traceback" in done.stderr  # goes to the log
    found = json.loads((tmp_path / "errors" / "rank3.json").read_text())
    assert set(found) == {"rank", "step", "action", "kind", "message", "time"}
    assert (found["step"], found["action"], found["kind"]) == (9, "record", kind)


def test_the_action_of_the_runtime_is_named() -> None:
    compat = pytest.importorskip("executor.compat")

    def perform(action: object) -> None:
        raise RuntimeError(f"no {action}")

    with pytest.raises(RuntimeError, match="no 1F2") as raised:
        perform(compat.TorchAction.from_str("1F2"))
    assert describe(raised.value, 0).action == "1F2"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_full_disk_is_named() -> None:
    path = Path("/dev/full")
    with pytest.raises(InputError, match="cannot write /dev/full: No space left on device; "):
        _fill(path)


def _fill(path: Path) -> None:
    with writing(path):
        path.write_text("x")


# Real processes


class Run:
    """`parsim run` in the background, and the processes that belong to it."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.out = folder / "out"
        (folder / "tiny.yaml").write_text(SCENARIO)
        command = [sys.executable, "-m", "parsim", "run", str(folder / "tiny.yaml")]
        self.process = subprocess.Popen(
            [*command, "--out", str(self.out), "--warmup", "0", *words],
            cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def left(self) -> list[int]:
        """Living processes with the folder in their command line."""
        wanted = str(self.out).encode()
        return [pid for pid in _pids() if wanted in _read(pid, "cmdline")]

    def rank(self, number: int) -> int:
        """The process of a rank that has taken at least two steps."""
        place = self.out / "errors" / f"rank{number}.step"
        deadline = time.monotonic() + 60.0
        while not (place.exists() and int((place.read_text().split() or ["-1"])[0]) >= 2):
            assert time.monotonic() < deadline, "no step within 60 s"
            assert self.process.poll() is None, "ended before its second step"
            time.sleep(0.05)
        return next(
            pid for pid in self.left()
            if f"RANK={number}".encode() in _read(pid, "environ").split(b"\0")
        )  # fmt: skip

    def end(self, timeout: float) -> tuple[int, str]:
        """Exit code and the last line of stderr, within `timeout` seconds."""
        _, told = self.process.communicate(timeout=timeout)
        assert "Traceback" not in told
        assert _gone(self), f"still running: {self.left()}"
        return self.process.returncode, told.strip().splitlines()[-1]


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _gone(run: Run) -> bool:
    deadline = time.monotonic() + 3.0
    while run.left() and time.monotonic() < deadline:
        time.sleep(0.1)
    return not run.left()


@pytest.fixture
def endless(tmp_path: Path) -> Iterator[Run]:
    """A run that lasts until something ends it."""
    pytest.importorskip("torch")
    if sys.platform != "linux":
        pytest.skip("processes are found in /proc")
    run = Run(tmp_path, "--steps", "1000000", "--timeout", "8")
    yield run
    for pid in [*run.left(), run.process.pid]:
        if run.process.returncode is None or pid != run.process.pid:
            os.kill(pid, signal.SIGKILL)
    run.process.wait(10)


@pytest.mark.distributed
def test_a_killed_rank(endless: Run) -> None:
    os.kill(endless.rank(1), signal.SIGKILL)
    code, told = endless.end(timeout=30.0)
    assert code == 1
    assert told.startswith("error: rank 1 was killed by SIGKILL at step ")
    assert told.endswith(f"; the full log is {endless.out / 'log.txt'}")


@pytest.mark.distributed
def test_a_stopped_rank(endless: Run) -> None:
    os.kill(endless.rank(1), signal.SIGSTOP)
    code, told = endless.end(timeout=8.0 + 25.0)
    assert code == 1
    assert told.startswith("error: rank 1 gave no answer for --timeout=8 s at step ")


@pytest.mark.distributed
def test_an_interrupt(endless: Run) -> None:
    endless.rank(1)
    os.kill(endless.process.pid, signal.SIGINT)
    assert endless.end(timeout=20.0)[0] == 130


@pytest.mark.distributed
def test_an_interrupt_while_a_rank_is_stopped(endless: Run) -> None:
    os.kill(endless.rank(0), signal.SIGSTOP)
    os.kill(endless.process.pid, signal.SIGINT)
    assert endless.end(timeout=20.0)[0] == 130


@pytest.mark.distributed
def test_a_disk_that_is_full(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    if not Path("/dev/full").exists():
        pytest.skip("the system has no /dev/full")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "timeline.json").symlink_to("/dev/full")
    run = Run(tmp_path, "--steps", "1")
    code, told = run.end(timeout=60.0)
    assert code == 2
    assert f"cannot write {run.out / 'timeline.json'}: No space left on device" in told


@pytest.mark.distributed
def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "out").write_text("a file")
    run = Run(tmp_path)
    code, told = run.end(timeout=60.0)
    assert code == 2
    assert told.startswith(f"error: cannot write {run.out}: ")
