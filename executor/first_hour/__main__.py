"""The first hour on a GPU, in order of value: `python -m executor.first_hour OUT`.

    tests      do the code paths of CUDA work at all?             pytest -m gpu
    suite      how far are step time and memory off?              calibrate, predict, run, compare
    speed      is the executor as fast as plain torch?            one process, steps in turn
    kernels    which kernels run, and where does the GPU idle?    torch's profiler, two models
    sharing    do several ranks work on one GPU?                  NCCL from 2.30 on, or gloo
    faults     do faults end in seconds, with rank and step?      pytest, real ranks on the CPU

Each part is bounded and can be resumed: the same command again runs what is not done. With
`--device cpu` all of it runs on a machine without a GPU, in small: a rehearsal.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from executor.faults.parent import end_with_parent, exit_code
from executor.first_hour.parts import Part, Parts
from executor.suite.cases import GPT2, LLAMA, TINY
from executor.suite.machine import SHARING, Machine, look
from parsim.launch.lock import locked
from parsim.report.writing import write_text

SECONDS = {"cuda": 3300.0, "cpu": 600.0}
"""For all of it; an hour less what starting and looking takes."""

TESTS = Path("tests/executor")
DEVICE = "PARSIM_GPU_TESTS"
"""Names the device that the tests of a GPU run on: `cpu` rehearses them."""


def parts_of(out: Path, machine: Machine) -> tuple[Part, ...]:
    """The parts on this machine."""
    kind = machine.kind
    small = kind == "cpu"
    suite = ["-m", "executor.suite", str(out / "suite"), f"--device={kind}", "--resume"]
    models = [json.dumps(TINY)] if small else [json.dumps(GPT2), json.dumps(LLAMA)]
    return (
        _tests("tests", "do the code paths of CUDA work at all?", "gpu", kind, 300.0),
        Part(
            name="suite",
            answers="how far are step time and memory off?",
            words=[*suite, "--quick"] if small else [*suite, "--seconds=540"],
            seconds=240.0 if small else 600.0,
            writes="suite/report.md",
        ),
        *(_of_model(name, answers, out, models, kind) for name, answers in _OF_MODELS),
        Part(
            name="sharing",
            answers="do several ranks work on one device?",
            words=_sharing(out, machine),
            seconds=300.0,
            writes="sharing/run.json",
            variables=SHARING if kind == "cuda" else {},
        ),
        _tests("faults", "do faults end in seconds, with rank and step?", "distributed", kind),
    )


_OF_MODELS = (
    ("speed", "is the executor as fast as plain torch?"),
    ("kernels", "which kernels run, and where does the device idle?"),
)


def _of_model(name: str, answers: str, out: Path, models: Sequence[str], kind: str) -> Part:
    words = [f"--device={kind}", *(f"--model={model}" for model in models)]
    return Part(
        name=name,
        answers=answers,
        words=["-m", f"executor.first_hour.{name}", str(out / f"{name}.json"), *words],
        seconds=300.0,
        writes=f"{name}.json",
    )


def _tests(name: str, answers: str, marker: str, kind: str, seconds: float = 600.0) -> Part:
    """Tests of the checkout; on a CPU those of a GPU run there, and of faults only the first."""
    words = ["-m", "pytest", "-q", "-p", "no:xdist", "-m", marker]
    if marker == "gpu":
        words += [str(TESTS / "test_cuda.py"), str(TESTS / "test_cuda_whole.py")]
    else:
        words += [str(TESTS / "faults" / "test_processes.py")]
        words += ["-k", "killed_rank"] if kind == "cpu" else []
    return Part(
        name=name,
        answers=answers,
        words=words,
        seconds=seconds,
        writes=f"{name}.log",
        variables={DEVICE: kind},
    )


def _sharing(out: Path, machine: Machine) -> list[str]:
    """Two ranks of data parallelism on the first device, or on a core."""
    path = out / "sharing.yaml"
    system = "cpu" if machine.kind == "cpu" else "dgx-h100"
    write_text(
        path,
        f"description: two ranks that share a device\n"
        f"model: {json.dumps(TINY)}\n"
        f"cluster: {{system: {system}, nodes: 1, devices_per_node: 2}}\n"
        f"software: executor-{machine.kind}\n"
        f"training: {{global_batch_size: 8, precision: bf16}}\n"
        f"plan: {{dp: 2, microbatch_size: 2}}\n",
    )
    words = ["-m", "parsim", "run", str(path), f"--out={out / 'sharing'}", "--oversubscribe"]
    return [*words, "--steps=5", "--verify", f"--device={machine.kind}", "--timeout=60"]


def main() -> int:
    """Run what is not done; 0 if every part is."""
    end_with_parent()
    parser = argparse.ArgumentParser(
        prog="python -m executor.first_hour",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("out", type=Path, metavar="OUT", help="folder for everything")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: GPUs if there are any")
    parser.add_argument("--seconds", type=float, help="for all parts; default: 3300, cpu 600")
    parser.add_argument("--parts", type=lambda text: text.split(","), metavar="NAME,...")
    return exit_code(lambda: _work(parser.parse_args()))


def _work(options: argparse.Namespace) -> int:
    out: Path = options.out
    with locked(out):
        machine = look(options.device)
        parts = parts_of(out, machine)
        if options.parts:
            parts = tuple(part for part in parts if part.name in options.parts)
        seconds = options.seconds or SECONDS[machine.kind]
        try:
            return Parts(out=out, parts=parts, seconds=seconds).run()
        except KeyboardInterrupt:
            sys.stderr.write("error: interrupted; the same command goes on with what is left\n")
            return 130


if __name__ == "__main__":
    raise SystemExit(main())
