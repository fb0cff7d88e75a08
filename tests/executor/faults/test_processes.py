"""Faults of real runs: one rank is named, nothing is left running, training goes on."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from parsim.errors import InputError
from parsim.launch.lock import locked
from parsim.timelines.reader import load_timeline
from tests.executor.running import ROOT, SCENARIO, Run, Start, pids, read

LARGE = (
    SCENARIO.replace("vocab_size: 256", "vocab_size: 2048")
    .replace(": 32}", ": 256}")
    .replace("seq_len: 32", "seq_len: 256")
)


@pytest.fixture
def endless(start: Start) -> Run:
    """A run that lasts until something ends it."""
    return start("--steps", "1000000")


@pytest.mark.distributed
def test_a_killed_rank(endless: Run) -> None:
    os.kill(endless.rank(1), signal.SIGKILL)
    code, told = endless.end(timeout=180.0)
    assert code == 5
    assert told[-1].startswith("error: rank 1 was killed by SIGKILL at step ")
    assert told[-1].endswith(f"; the full log is {endless.out / 'log.txt'}")


@pytest.mark.distributed
def test_a_stopped_rank(start: Start) -> None:
    run = start("--steps", "1000000", "--timeout", "8")
    os.kill(run.rank(1), signal.SIGSTOP)
    code, told = run.end(timeout=180.0)
    assert code == 5
    assert told[-1].startswith("error: rank 1 gave no answer for --timeout=8 s at step ")


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.distributed
def test_a_signal_to_end(endless: Run) -> None:
    endless.rank(1)
    os.kill(endless.process.pid, signal.SIGTERM)
    code, told = endless.end(timeout=180.0)
    assert (code, told[-1]) == (143, "error: ended by SIGTERM")


@pytest.mark.distributed
def test_a_second_run_is_refused_and_a_killed_one_leaves_nothing(endless: Run) -> None:
    endless.rank(1)
    scenario = endless.out.parent / "tiny.yaml"
    words = ["-m", "parsim", "run", str(scenario), "--out", str(endless.out)]
    second = subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert second.returncode == 2
    told = f"error: --out={endless.out} is in use: process {endless.process.pid} on "
    assert second.stderr.splitlines()[-1].startswith(told)
    before = endless.step(1)
    endless.until(lambda: endless.step(1) > before)  # undisturbed
    os.kill(endless.process.pid, signal.SIGKILL)
    endless.process.wait(30)
    deadline = time.monotonic() + 5.0
    while (endless.left() or not _free(endless.out)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not endless.left()
    assert _free(endless.out)
    assert load_timeline(endless.out / "predicted.json").ranks == (0, 1)
    steps = [json.loads(line) for line in (endless.out / "steps.jsonl").read_text().splitlines()]
    assert [step["step"] for step in steps] == list(range(len(steps)))
    assert len(steps) > before


def _free(folder: Path) -> bool:
    """Whether a run could begin in a folder."""
    try:
        with locked(folder):
            return True
    except InputError:
        return False


@pytest.mark.slow
@pytest.mark.distributed
def test_a_rank_short_of_memory(start: Start) -> None:
    # blocks are given back to the system and asked for again in each step
    forget = {
        "MALLOC_MMAP_MAX_": "65536",
        "MALLOC_MMAP_THRESHOLD_": "1048576",
        "MALLOC_TOP_PAD_": "0",
        "MALLOC_TRIM_THRESHOLD_": "0",
    }
    run = start("--steps", "1000000", scenario=LARGE, **forget)
    rank = run.rank(1)
    limit = _least_address_space(run, rank) + (1 << 20)  # the logits have 4 MiB
    resource.prlimit(rank, resource.RLIMIT_AS, (limit, limit))
    code, told = run.end(timeout=180.0)
    assert code == 5
    assert re.match(
        r"error: rank 1 failed at step \d+, action [^:]+: out of memory \(.*\); what helps: a "
        r"smaller plan.microbatch_size, plan.recompute=full, or a higher plan.zero_stage; the full",
        told[-1],
    )


def _least_address_space(run: Run, rank: int) -> int:
    """Bytes that the process of rank 1 has while it holds the fewest blocks, of some steps."""
    sizes, last = [], run.step(1) + 3
    while run.step(1) <= last:
        sizes.append(int(read(rank, "statm").split()[0]))
        time.sleep(0.001)
    return min(sizes) * resource.getpagesize()


@pytest.mark.slow
@pytest.mark.distributed
def test_ranks_of_a_calibration_die_with_torchrun(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    if sys.platform != "linux":
        pytest.skip("processes are found in /proc")
    process = subprocess.Popen(
        [sys.executable, "-m", "parsim", "calibrate", "--out", str(tmp_path / "mine.yaml")],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    try:
        deadline = time.monotonic() + 240.0
        while not (ranks := [pid for pid in _ranks(tmp_path) if _has_socket(pid)]):
            assert time.monotonic() < deadline, "no rank within 240 s"
            assert process.poll() is None, "ended too early"
            time.sleep(0.01)
        os.kill(_parent(ranks[0]), signal.SIGKILL)
        told = process.communicate(timeout=180.0)[1]
        assert process.returncode == 5
        assert re.search(r"error: the ranks of the calibration failed: .+; see ", told)
        deadline = time.monotonic() + 10.0
        while any(read(pid, "cmdline") for pid in ranks) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not any(read(pid, "cmdline") for pid in ranks)
    finally:
        process.kill()
        for pid in _ranks(tmp_path):
            os.kill(pid, signal.SIGKILL)
        process.wait(10)


def _ranks(folder: Path) -> list[int]:
    """Ranks with a folder in their command line."""
    wanted = str(folder).encode()
    named = [pid for pid in pids() if wanted in read(pid, "cmdline")]
    return [pid for pid in named if b"\0RANK=" in read(pid, "environ")]


def _has_socket(pid: int) -> bool:
    """Whether a rank has begun to talk to the others, and so has read its options."""
    with suppress(OSError):
        links = Path(f"/proc/{pid}/fd").iterdir()
        return any(os.readlink(link).startswith("socket:") for link in links)
    return False


def _parent(pid: int) -> int:
    return int(read(pid, "stat").rpartition(b")")[2].split()[1])
