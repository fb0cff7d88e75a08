"""Faults of `parsim run`: who is named, that nothing is left running, that training goes on."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from executor.checkpoint_folder import step_of, whole
from executor.diagnosis import Evidence, explain
from executor.faults import PeerError, Place, Report, describe, write_report, writing
from parsim.errors import InputError
from parsim.watch import Terminated, ended_by_signals

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
LARGE = (
    SCENARIO.replace("vocab_size: 256", "vocab_size: 2048")
    .replace(": 32}", ": 256}")
    .replace("seq_len: 32", "seq_len: 256")
)
SHARDED = SCENARIO.replace(
    "{pp: 2, microbatch_size: 2, schedule: 1f1b}",
    "{dp_shard: 2, zero_stage: 3, microbatch_size: 2}",
)
CLOSED = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:7"
LATE = "RuntimeError: Timed out waiting 8000ms for recv operation to complete"
RESTARTED = """
E1121 api.py:1002] failed (exitcode: {code}) local_rank: 1 (pid: 9) of binary: /usr/bin/python3
I1121 api.py:1002] [default] Worker group FAILED. 1/1 attempts left; will restart worker group
"""
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
        (RuntimeError("std::bad_alloc"), "out of memory", None),
        (PeerError("rank 1 failed"), "peer", "rank 1 failed"),
        (InputError("tp=3 is wrong; allowed: 1, 2"), "input", "tp=3 is wrong; allowed: 1, 2"),
    ],
)
def test_kind_and_message(error: Exception, kind: str, message: str | None) -> None:
    found = describe(error, 1)
    assert (found.rank, found.kind) == (1, kind)
    assert "\n" not in found.message
    assert message is None or found.message == message


def test_the_cause_is_told_not_what_was_made_of_it() -> None:
    error = RuntimeError("[Stage 1] failed to run forward: args (1,)")
    error.__cause__ = RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 B")
    found = describe(error, 1)
    assert found.kind == "out of memory"
    assert found.message == "RuntimeError: DefaultCPUAllocator: can't allocate memory: 9 B"


def test_the_first_failure_is_not_its_victims() -> None:
    reports = [
        report(0, CLOSED, time=1.0, kind="connection"),
        report(1, "MemoryError", time=2.0, kind="out of memory"),
        report(2, "ValueError: later", time=3.0),
    ]
    told, code = explain(Evidence(ranks=3, timeout=8.0, reports=reports))
    assert told == (
        "rank 1 failed at step 4, action step: out of memory (MemoryError); what helps: a smaller "
        "plan.microbatch_size, plan.recompute=full, or a higher plan.zero_stage"
    )
    assert code == 1


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
    assert told == (
        "ranks 1, 2 gave no answer for --timeout=8 s before the first step, action start; "
        "which of them was the first cannot be told"
    )


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


def test_an_attempt_that_others_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "log.txt").write_text(RESTARTED.format(code=-9) + RESTARTED.format(code=1))
    for attempt, step in (("0", 7), ("1", 9)):
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", attempt)
        Place(step=step, action="step").keep(tmp_path, 1)
        write_report(tmp_path, report(0, CLOSED, kind="connection"))
    told = [explain(Evidence.read(tmp_path, 2, 8.0, attempt=number))[0] for number in (0, 1)]
    assert told[0].startswith("rank 1 was killed by SIGKILL at step 7, action step")
    assert told[1] == "rank 1 ended without a word at step 9, action step"


def test_a_place_forgets_what_an_earlier_run_reported(tmp_path: Path) -> None:
    write_report(tmp_path, report(0, "old"))
    Place().keep(tmp_path, 0)
    assert Evidence.read(tmp_path, 1, 8.0).reports == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_to_end_unwinds(number: signal.Signals, code: int) -> None:
    with pytest.raises(Terminated, match=f"ended by {number.name}") as raised, ended_by_signals():
        os.kill(os.getpid(), number)
    assert raised.value.exit_code == code
    assert signal.getsignal(number) == signal.SIG_DFL


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
    found = json.loads((tmp_path / "errors" / "attempt0" / "rank3.json").read_text())
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

    def __init__(
        self, folder: Path, *words: str, scenario: str = SCENARIO, **variables: str
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.out = folder / "out"
        (folder / "tiny.yaml").write_text(scenario)
        command = [sys.executable, "-m", "parsim", "run", str(folder / "tiny.yaml")]
        self.process = subprocess.Popen(
            [*command, "--out", str(self.out), "--warmup", "0", *words],
            cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env={**os.environ, **variables},
        )  # fmt: skip

    def left(self) -> list[int]:
        """Living processes with the folder in their command line."""
        wanted = str(self.out).encode()
        return [pid for pid in _pids() if wanted in _read(pid, "cmdline")]

    def rank(self, number: int, attempt: int = 0) -> int:
        """The process of a rank that has taken at least two steps."""
        self.until(lambda: self.step(number, attempt) >= 2)
        wanted = {b"RANK=%d" % number, b"TORCHELASTIC_RESTART_COUNT=%d" % attempt}
        return next(pid for pid in self.left() if wanted <= set(_read(pid, "environ").split(b"\0")))

    def step(self, number: int, attempt: int = 0) -> int:
        """The step that a rank is at, -1 before the first."""
        place = self.out / "errors" / f"attempt{attempt}" / f"rank{number}.step"
        return int((place.read_text().split() or ["-1"])[0]) if place.exists() else -1

    def checkpoint(self, after: int) -> int:
        """The step of a whole checkpoint past a step, once there is one."""

        def newest() -> int:
            return max(map(step_of, whole(self.out / "checkpoints")), default=0)

        self.until(lambda: newest() > after)
        return newest()

    def until(self, happened: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 240.0
        while not happened():
            assert time.monotonic() < deadline, "not within 240 s"
            assert self.process.poll() is None, "ended too early"
            time.sleep(0.01)

    def end(self, timeout: float) -> tuple[int, list[str]]:
        """Exit code and the lines of stderr, within `timeout` seconds; nothing is left."""
        _, told = self.process.communicate(timeout=timeout)
        assert "Traceback" not in told
        assert _gone(self), f"still running: {self.left()}"
        return self.process.returncode, told.strip().splitlines()

    def kill(self) -> None:
        """End whatever is left."""
        for pid in [*self.left(), self.process.pid]:
            if self.process.returncode is None or pid != self.process.pid:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.process.wait(30)
        if self.process.stderr is not None:
            self.process.stderr.close()


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _gone(run: Run) -> bool:
    deadline = time.monotonic() + 15.0
    while run.left() and time.monotonic() < deadline:
        time.sleep(0.1)
    return not run.left()


Start = Callable[..., Run]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts runs, and ends what is left of them."""
    pytest.importorskip("torch")
    if sys.platform != "linux":
        pytest.skip("processes are found in /proc")
    runs: list[Run] = []

    def begin(*words: str, **given: str) -> Run:
        runs.append(Run(tmp_path / f"run{len(runs)}", *words, **given))
        return runs[-1]

    yield begin
    for run in runs:
        run.kill()


@pytest.fixture
def endless(start: Start) -> Run:
    """A run that lasts until something ends it."""
    return start("--steps", "1000000", "--timeout", "8")


@pytest.mark.distributed
def test_a_killed_rank(endless: Run) -> None:
    os.kill(endless.rank(1), signal.SIGKILL)
    code, told = endless.end(timeout=180.0)
    assert code == 1
    assert told[-1].startswith("error: rank 1 was killed by SIGKILL at step ")
    assert told[-1].endswith(f"; the full log is {endless.out / 'log.txt'}")


@pytest.mark.distributed
def test_a_stopped_rank(endless: Run) -> None:
    os.kill(endless.rank(1), signal.SIGSTOP)
    code, told = endless.end(timeout=180.0)
    assert code == 1
    assert told[-1].startswith("error: rank 1 gave no answer for --timeout=8 s at step ")


@pytest.mark.distributed
def test_an_interrupt(endless: Run) -> None:
    endless.rank(1)
    os.kill(endless.process.pid, signal.SIGINT)
    code, told = endless.end(timeout=180.0)
    assert (code, told[-1]) == (130, "interrupted")


@pytest.mark.distributed
def test_an_interrupt_while_a_rank_is_stopped(endless: Run) -> None:
    os.kill(endless.rank(0), signal.SIGSTOP)
    os.kill(endless.process.pid, signal.SIGINT)
    assert endless.end(timeout=180.0)[0] == 130


@pytest.mark.distributed
def test_a_signal_to_end(endless: Run) -> None:
    endless.rank(1)
    os.kill(endless.process.pid, signal.SIGTERM)
    code, told = endless.end(timeout=180.0)
    assert (code, told[-1]) == (143, "error: ended by SIGTERM")


@pytest.mark.distributed
@pytest.mark.parametrize(
    ("scenario", "stopped"), [(SCENARIO, 0), (SHARDED, 1)], ids=["pp", "zero3"]
)
def test_training_goes_on_after_a_killed_and_a_stopped_rank(
    start: Start, scenario: str, stopped: int
) -> None:
    words = ("--steps", "100", "--timeout", "8")
    disturbed = start(*words, "--checkpoint-every", "10", "--max-restarts", "2", scenario=scenario)
    victim = disturbed.rank(1)
    first = disturbed.checkpoint(after=0)
    os.kill(victim, signal.SIGKILL)
    victim = disturbed.rank(stopped, attempt=1)
    disturbed.checkpoint(after=first + 10)
    os.kill(victim, signal.SIGSTOP)
    code, told = disturbed.end(timeout=300.0)
    assert code == 0, told
    notes = [line for line in told if "restart" in line]
    went_on = r"at step \d+, action (step|checkpoint|\d[FB]\d)(.*); training goes on from step \d+"
    assert re.fullmatch(rf"note: rank 1 was killed by SIGKILL {went_on} \(restart 1\)", notes[0])
    assert re.fullmatch(
        rf"note: rank {stopped} gave no answer for --timeout=8 s {went_on} \(restart 2\)", notes[1]
    )
    assert not (disturbed.out / "errors").exists()
    through = start(*words, scenario=scenario)
    assert through.end(timeout=300.0)[0] == 0
    found, expected = (
        json.loads((run.out / "run.json").read_text())["measured"] for run in (disturbed, through)
    )
    assert (found["restarts"], expected["restarts"]) == (2, 0)
    assert found["step_time_s"]["n"] < expected["step_time_s"]["n"] == 100
    assert [f"{loss:.6g}" for loss in found["loss"]] == [f"{x:.6g}" for x in expected["loss"]]


@pytest.mark.distributed
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_disk_that_is_full_while_checkpointing(start: Start) -> None:
    run = start("--steps", "1000000", "--checkpoint-every", "50", "--max-restarts", "3")
    folder = run.out / "checkpoints"
    run.checkpoint(after=0)
    part = folder / ".step-00000150.part0"
    part.mkdir()
    (part / "__1_0.distcp").symlink_to("/dev/full")
    code, told = run.end(timeout=300.0)
    assert told[-1] == (
        f"error: rank 1 failed at step 150, action checkpoint: cannot write {part}: No space left "
        f"on device; choose another folder with --checkpoints, or free space there; the full log "
        f"is {run.out / 'log.txt'}"
    )
    assert code == 2
    assert not any("restart" in line for line in told)
    left = sorted(path.name for path in folder.iterdir())
    assert left == ["step-00000050", "step-00000100"]
    assert [path.name for path in whole(folder)] == left


@pytest.mark.distributed
def test_a_rank_short_of_memory(start: Start) -> None:
    # blocks are given back to the system and asked for again in each step
    forget = {
        "MALLOC_MMAP_MAX_": "65536",
        "MALLOC_MMAP_THRESHOLD_": "1048576",
        "MALLOC_TOP_PAD_": "0",
        "MALLOC_TRIM_THRESHOLD_": "0",
    }
    run = start("--steps", "1000000", "--timeout", "8", scenario=LARGE, **forget)
    rank = run.rank(1)
    limit = _least_address_space(run, rank) + (1 << 20)  # the logits have 4 MiB
    resource.prlimit(rank, resource.RLIMIT_AS, (limit, limit))
    code, told = run.end(timeout=180.0)
    assert code == 1
    assert re.match(
        r"error: rank 1 failed at step \d+, action [^:]+: out of memory \(.*\); what helps: a "
        r"smaller plan.microbatch_size, plan.recompute=full, or a higher plan.zero_stage; the full",
        told[-1],
    )


def _least_address_space(run: Run, rank: int) -> int:
    """Bytes that the process of rank 1 has while it holds the fewest blocks, of some steps."""
    sizes, last = [], run.step(1) + 3
    while run.step(1) <= last:
        sizes.append(int(_read(rank, "statm").split()[0]))
        time.sleep(0.001)
    return min(sizes) * resource.getpagesize()


@pytest.mark.distributed
def test_ranks_of_a_calibration_die_with_torchrun(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    if sys.platform != "linux":
        pytest.skip("processes are found in /proc")
    process = subprocess.Popen(
        [sys.executable, "-m", "parsim", "calibrate", "--out", str(tmp_path / "mine.yaml")],
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 240.0
        while not (ranks := [pid for pid in _ranks(tmp_path) if _has_socket(pid)]):
            assert time.monotonic() < deadline, "no rank within 240 s"
            assert process.poll() is None, "ended too early"
            time.sleep(0.01)
        os.kill(_parent(ranks[0]), signal.SIGKILL)
        told = process.communicate(timeout=180.0)[1]
        assert process.returncode == 1
        assert "error: the ranks of the calibration failed; see " in told
        deadline = time.monotonic() + 10.0
        while any(_read(pid, "cmdline") for pid in ranks) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not any(_read(pid, "cmdline") for pid in ranks)
    finally:
        process.kill()
        for pid in _ranks(tmp_path):
            os.kill(pid, signal.SIGKILL)
        process.wait(10)


def _ranks(folder: Path) -> list[int]:
    """Ranks with a folder in their command line."""
    wanted = str(folder).encode()
    named = [pid for pid in _pids() if wanted in _read(pid, "cmdline")]
    return [pid for pid in named if b"\0RANK=" in _read(pid, "environ")]


def _has_socket(pid: int) -> bool:
    """Whether a rank has begun to talk to the others, and so has read its options."""
    with suppress(OSError):
        links = Path(f"/proc/{pid}/fd").iterdir()
        return any(os.readlink(link).startswith("socket:") for link in links)
    return False


def _parent(pid: int) -> int:
    return int(_read(pid, "stat").rpartition(b")")[2].split()[1])


@pytest.mark.distributed
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_disk_that_is_full(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "timeline.json").symlink_to("/dev/full")
    run = Run(tmp_path, "--steps", "1")
    code, told = run.end(timeout=180.0)
    assert code == 2
    assert f"cannot write {run.out / 'timeline.json'}: No space left on device" in told[-1]


@pytest.mark.distributed
def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "out").write_text("a file")
    run = Run(tmp_path)
    code, told = run.end(timeout=180.0)
    assert code == 2
    assert told[-1].startswith(f"error: cannot write {run.out}: ")
