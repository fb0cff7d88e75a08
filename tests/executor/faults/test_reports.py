"""Faults of a rank: what it reports, and who is named as the first to fail."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from executor.faults.diagnosis import Evidence, explain
from executor.faults.reports import PeerError, Place, Report, describe, write_report, writing
from parsim.errors import InputError
from parsim.launch.watch import Terminated, ended_by_signals
from tests.commands import heard_signals

ROOT = Path(__file__).parents[3]
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
    result = describe(error, 1)
    assert (result.rank, result.kind) == (1, kind)
    assert "\n" not in result.message
    assert message is None or result.message == message


def test_the_cause_is_told_not_what_was_made_of_it() -> None:
    error = RuntimeError("[Stage 1] failed to run forward: args (1,)")
    error.__cause__ = RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 B")
    result = describe(error, 1)
    assert result.kind == "out of memory"
    assert result.message == "RuntimeError: DefaultCPUAllocator: can't allocate memory: 9 B"


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
    result = Evidence(ranks=2, timeout=8.0, reports=[report(0, "cannot write x", kind="input")])
    assert explain(result)[1] == 2


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
    position = Place(step=7, action="record")
    position.keep(tmp_path, 1)
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
    with heard_signals():
        _ended_by(number, code)


def test_a_signal_that_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup
    try:
        with ended_by_signals():
            os.kill(os.getpid(), signal.SIGHUP)
        with heard_signals():
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_DFL
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def _ended_by(number: signal.Signals, code: int) -> None:
    with pytest.raises(Terminated, match=f"ended by {number.name}") as raised, ended_by_signals():
        os.kill(os.getpid(), number)
    assert raised.value.exit_code == code
    assert signal.getsignal(number) == signal.SIG_DFL


def test_ranks_that_aborted_without_a_word_waited_for_the_one_that_had_to_be_killed() -> None:
    result = Evidence(ranks=2, timeout=8.0, places={1: (3, "step")}, exits={1: -9, 0: -6}, root=0)
    told = "rank 1 gave no answer for --timeout=8 s at step 3, action step"
    assert explain(result) == (told, 1)


def test_nothing_known() -> None:
    assert explain(Evidence(ranks=2, timeout=8.0)) == ("the ranks ended, and none said why", 1)


def test_a_place_is_overwritten_whole(tmp_path: Path) -> None:
    position = Place()
    position.keep(tmp_path, 0)
    position.enter("a longer action", 1234)
    position.enter("step", 5)
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
        "from executor.faults.reports import HERE, fatal\n"
        "from parsim.errors import InputError\n"
        "HERE.enter('record', 9)\n"
        f"with fatal(pathlib.Path(sys.argv[1]), 3): raise {failure}\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code
    assert "Traceback" in done.stderr  # goes to the log
    document = json.loads((tmp_path / "errors" / "attempt0" / "rank3.json").read_text())
    assert set(document) == {"rank", "step", "action", "kind", "message", "time"}
    assert (document["step"], document["action"], document["kind"]) == (9, "record", kind)


def test_the_action_of_the_runtime_is_named() -> None:
    runtime = pytest.importorskip("executor.torch_internals.pipelining")

    def perform(action: object) -> None:
        raise RuntimeError(f"no {action}")

    with pytest.raises(RuntimeError, match="no 1F2") as raised:
        perform(runtime.TorchAction.from_str("1F2"))
    assert describe(raised.value, 0).action == "1F2"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_full_disk_is_named() -> None:
    path = Path("/dev/full")
    with pytest.raises(InputError, match="cannot write /dev/full: No space left on device; "):
        _fill(path)


def _fill(path: Path) -> None:
    with writing(path):
        path.write_text("x")


@pytest.mark.parametrize(("rank", "expected"), [("0", "out\n"), (None, "out\nlate\n")])
def test_a_rank_ends_at_once_with_its_code_and_all_that_it_said(
    rank: str | None, expected: str
) -> None:
    words = (
        "import atexit; from executor.faults.reports import finish; "
        "atexit.register(print, 'late'); "
        "print('out'); finish(2)"
    )
    env = {key: value for key, value in os.environ.items() if key != "RANK"}
    env |= {"RANK": rank} if rank else {}
    done = subprocess.run(
        [sys.executable, "-c", words],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, expected)
