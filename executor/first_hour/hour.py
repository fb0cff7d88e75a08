"""The parts of the first hour on a machine: what each runs, for how long, and in which order."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from executor.first_hour.parts import SECONDS_LEFT, HourPart
from executor.suite.machine import SHARING, Machine
from executor.suite.models import GPT2, LLAMA, TINY
from parsim.report.writing import write_text

TESTS = Path("tests/executor")
DEVICE = "PARSIM_GPU_TESTS"
"""Names the device that the tests of a GPU run on: `cpu` rehearses them."""

CORES = 12
"""From so many on, half as many tests are run at a time: each has two or three processes, of which
one computes."""

MOST_AT_A_TIME = 8

FEW_THREADS = {"TORCHINDUCTOR_COMPILE_THREADS": "1"}
"""Environment of tests that compile a few kernels each, several at a time: torch would start a pool
of as many processes as there are cores for each, which all import it first."""

NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
"""Environment of tests whose ranks belong on the CPU: two of them do not fit on one GPU."""


def parts_of(out: Path, machine: Machine, base: str | None = None) -> tuple[HourPart, ...]:
    """The parts on this machine.

    `base` is the catalog's device that stands in for a GPU that the catalog lacks.
    """
    kind = machine.kind
    small = kind == "cpu"
    suite = ["-m", "executor.suite", str(out / "suite"), f"--device={kind}", "--resume"]
    suite += [f"--base={base}"] if base else []
    models = [json.dumps(TINY)] if small else [json.dumps(GPT2), json.dumps(LLAMA)]
    return (
        _tests("tests", "do the code paths of CUDA work at all?", out, "gpu", kind, 300.0),
        HourPart(
            name="suite",
            answers="how far are step time and memory off?",
            words=[*suite, f"--seconds={SECONDS_LEFT}", *(["--quick"] if small else [])],
            seconds=240.0 if small else 600.0,
            least=0.0 if small else 120.0,
            writes="suite/report.md",
        ),
        *(_of_model(name, answers, out, models, kind) for name, answers in _OF_MODELS),
        _sharing(out, machine),
        _tests("faults", "do faults end in seconds, with rank and step?", out, "distributed", kind),
    )


_OF_MODELS = (
    ("speed", "is the executor as fast as plain torch?"),
    ("kernels", "which kernels run, and where does the device idle?"),
)


def _of_model(name: str, answers: str, out: Path, models: Sequence[str], kind: str) -> HourPart:
    words = [f"--device={kind}", *(f"--model={model}" for model in models)]
    return HourPart(
        name=name,
        answers=answers,
        words=["-m", f"executor.first_hour.{name}", str(out / f"{name}.json"), *words],
        seconds=300.0,
        least=40.0,
        writes=f"{name}.json",
    )


def _tests(
    name: str, answers: str, out: Path, marker: str, kind: str, seconds: float = 600.0
) -> HourPart:
    """Tests of the checkout; on a CPU those of a GPU run there, and of faults only the first.

    Whole runs come first: they say of each model family whether it works. A warning of another
    version of a package is no failure here. What a failed test wrote, its ranks' logs among it, is
    kept beside the log.
    """
    words = ["-m", "pytest", "-v", "-o", "filterwarnings=default", "-m", marker]
    words += ["-p", "executor.first_hour.at_once"]
    words += [f"--basetemp={out.resolve() / f'{name}-failed'}"]
    words += ["-o", "tmp_path_retention_policy=failed"]
    words += _at_a_time(kind)
    if marker == "gpu":
        words += [str(TESTS / "test_cuda_whole.py"), str(TESTS / "test_cuda.py")]
    else:
        words += [str(TESTS / "faults" / "test_processes.py")]
        words += ["-k", "killed_rank"] if kind == "cpu" else []
    return HourPart(
        name=name,
        answers=answers,
        words=words,
        seconds=seconds,
        least=120.0 if marker == "gpu" else 0.0,
        writes=f"{name}.log",
        variables={DEVICE: kind, **(FEW_THREADS if marker == "gpu" else NO_GPU)},
    )


def _at_a_time(kind: str) -> list[str]:
    """Several tests at a time where a GPU's machine has the cores and the package for it."""
    enough = kind == "cuda" and (os.cpu_count() or 1) >= CORES
    if not enough or find_spec("xdist") is None:
        return ["-p", "no:xdist"]
    # in runs of neighbours, so that the long ones, which come last, do not begin last
    return ["-n", str(min((os.cpu_count() or 1) // 2, MOST_AT_A_TIME)), "--dist", "worksteal"]


def _sharing(out: Path, machine: Machine) -> HourPart:
    """Two ranks of data parallelism on the first device, or on a core.

    Over gloo where NCCL is too old for several ranks on the only GPU.
    """
    path, over_gloo = _two_ranks(out, machine.kind), not machine.shares and machine.count == 1
    results, device = out / "sharing", f"--device={machine.kind}"
    words = ["-m", "parsim", "run", str(path), f"--out={results}", "--oversubscribe", "--steps=5"]
    staged = ["-m", "executor.first_hour.sharing", str(path), str(results), device]
    return HourPart(
        name="sharing",
        answers="do several ranks work on one device?",
        words=staged if over_gloo else [*words, "--verify", device, "--timeout=60"],
        seconds=300.0,
        least=40.0,
        writes="sharing/run.json",
        variables=SHARING if machine.kind == "cuda" and machine.shares else {},
    )


def _two_ranks(out: Path, kind: str) -> Path:
    path = out / "sharing.yaml"
    system = "cpu" if kind == "cpu" else "dgx-h100"
    write_text(
        path,
        f"description: two ranks that share a device\n"
        f"model: {json.dumps(TINY)}\n"
        f"cluster: {{system: {system}, nodes: 1, devices_per_node: 2}}\n"
        f"software: executor-{kind}\n"
        f"training: {{global_batch_size: 8, precision: bf16}}\n"
        f"plan: {{dp: 2, microbatch_size: 2}}\n",
    )
    return path
