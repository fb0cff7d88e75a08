"""What it costs to run parsim's schedules instead of torch's own schedule classes.

Two CPU ranks hold the same modules under both; steps alternate (A B, B A, A B ...), so that other
load on the machine meets both alike, and the least step of either counts, over several launches:
the least step of one process differs from the next one's by more than the two from one another,
though torch's own interleaved class is the same interpreter of the same list
(`tests/executor/pipeline/test_runtime.py`).
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tests.benchmarks.measure import Benchmark, NotRun
from tests.executor.launch import LaunchError, die_with_parent, launch, results

LIMIT = 1.03
"""Ours may take 3 % longer: that is what repeated measurements of the same thing differ by."""

RANKS = 2
LAUNCHES = 3
MICROBATCHES = 8
WARMUP, LEAST_PAIRS, MOST_PAIRS = 4, 40, 120
STILL = 25
"""Pairs of steps without a faster one of either kind, after which the least ones are known."""

SIZES: dict[str, Any] = {
    "num_layers": 4,
    "hidden_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 32,
    "ffn_hidden_size": 512,
    "vocab_size": 512,
    "seq_len": 64,
    "positions": 64,
    "dropout": False,
}
SCHEDULES = {"gpipe": 1, "1f1b": 1, "interleaved_1f1b": 2}
"""Schedules that torch has too, by chunks a rank."""


def runtime() -> Iterator[Benchmark]:
    """All rows of this file."""
    for name in SCHEDULES:
        yield Benchmark(
            name=f"{name} of 2 ranks through the executor, over torch's own class",
            demand=LIMIT,
            unit="times",
            measure=lambda name=name: ratio(name),  # type: ignore[misc]
        )


def ratio(name: str) -> float:
    """Our least step over torch's."""
    ours, theirs = measured()[name]
    return ours / theirs


@cache
def measured() -> dict[str, tuple[float, float]]:
    """Least seconds of a step by schedule: ours, torch's.

    Raises:
        NotRun: torch is missing, or a rank failed.
    """
    if importlib.util.find_spec("torch") is None:
        raise NotRun("torch is not installed: pip install torch")
    result = [_launched() for _ in range(LAUNCHES)]
    return {
        name: (min(entry[name][0] for entry in result), min(entry[name][1] for entry in result))
        for name in SCHEDULES
    }


def _launched() -> dict[str, tuple[float, float]]:
    """The least seconds of one launch."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            result = launch(Path(__file__), ranks=RANKS, folder=Path(folder), timeout=600.0)
        except LaunchError as error:
            raise NotRun(str(error).splitlines()[0]) from None
    return {name: (pair[0], pair[1]) for name, pair in result[0].items()}


def compare(name: str, chunks: int) -> tuple[float, float]:
    """On a rank: least seconds of alternating steps, ours and torch's, of the slower rank."""
    import torch

    from executor.model.module import build_stage
    from parsim.model.reader import model_spec
    from parsim.model.transformer import with_options
    from parsim.schedule import build_schedule

    spec = with_options(model_spec("gpt2"), **SIZES)
    schedule = build_schedule(name, pp=RANKS, num_microbatches=MICROBATCHES, v=chunks)
    count = schedule.num_stages
    share = spec.num_layers // count
    modules = {
        stage: build_stage(
            spec,
            first_layer=stage * share,
            num_layers=share,
            embedding=stage == 0,
            head=stage == count - 1,
        )
        for stage in schedule.stages_on(torch.distributed.get_rank())
    }
    generator = torch.Generator().manual_seed(1)
    batch = torch.randint(512, (2, MICROBATCHES, 64), generator=generator)
    steps = (_ours(schedule, modules), _torchs(name, count, modules))
    return _alternate([lambda step=step: step(*batch) for step in steps], modules)  # type: ignore[misc]


def _edges(count: int) -> list[Any]:
    import torch

    from executor.pipeline.tensor_spec import TensorSpec

    hidden = TensorSpec((1, SIZES["seq_len"], SIZES["hidden_size"]), torch.float32)
    logits = TensorSpec((1, SIZES["seq_len"], SIZES["vocab_size"]), torch.float32)
    return [TensorSpec((1, SIZES["seq_len"]), torch.int64), *[hidden] * (count - 1), logits]


def _ours(schedule: Any, modules: dict[int, Any]) -> Callable[..., object]:
    import torch

    from executor.model.loss import cross_entropy
    from executor.pipeline.runner import PipelineRunner

    return PipelineRunner(
        schedule,
        modules,
        edges=_edges(schedule.num_stages),
        loss_fn=cross_entropy,
        group=torch.distributed.group.WORLD,
        device=torch.device("cpu"),
    ).step


def _torchs(name: str, count: int, modules: dict[int, Any]) -> Callable[..., object]:
    """Torch's class for the schedule; losses are read as our runner reads them."""
    import torch
    from torch.distributed.pipelining import (
        PipelineStage,
        Schedule1F1B,
        ScheduleGPipe,
        ScheduleInterleaved1F1B,
    )

    from executor.model.loss import cross_entropy

    edges = _edges(count)
    stages = [
        PipelineStage(
            module,
            stage,
            count,
            torch.device("cpu"),
            input_args=(edges[stage].example(requires_grad=stage > 0),),
            output_args=(edges[stage + 1].example(requires_grad=True),),
        )
        for stage, module in modules.items()
    ]
    made: dict[str, Callable[[], Any]] = {
        "gpipe": lambda: ScheduleGPipe(stages[0], MICROBATCHES, loss_fn=cross_entropy),
        "1f1b": lambda: Schedule1F1B(stages[0], MICROBATCHES, loss_fn=cross_entropy),
        "interleaved_1f1b": lambda: ScheduleInterleaved1F1B(
            stages, MICROBATCHES, loss_fn=cross_entropy
        ),
    }
    run = made[name]()

    def step(tokens: object, targets: object) -> list[float]:
        losses: list[Any] = []
        args = (tokens,) if 0 in modules else ()
        target = targets if count - 1 in modules else None
        run.step(*args, target=target, losses=losses, return_outputs=False)
        return torch.stack(losses).tolist() if losses else []

    return step


def _alternate(steps: list[Callable[[], object]], modules: dict[int, Any]) -> tuple[float, float]:
    """Go on until neither gets faster, so that the end does not depend on who is ahead."""
    least, still = [float("inf"), float("inf")], 0
    for number in range(WARMUP + MOST_PAIRS):
        still += 1
        for which, step in list(enumerate(steps))[:: 1 if number % 2 else -1]:  # A B, B A, A B ...
            for module in modules.values():
                module.zero_grad()
            seconds = _slowest(step)
            if number >= WARMUP and seconds < least[which]:
                still = still if seconds > 0.995 * least[which] else 0
                least[which] = seconds
        if number >= WARMUP + LEAST_PAIRS and still >= STILL:
            break
    return least[0], least[1]


def _slowest(step: Callable[[], object]) -> float:
    import gc
    import time

    import torch
    import torch.distributed as dist

    gc.collect()  # a collection in the middle would be charged to either
    dist.barrier()
    began = time.perf_counter()
    step()
    lasted = torch.tensor([time.perf_counter() - began], dtype=torch.float64)
    dist.all_reduce(lasted, op=dist.ReduceOp.MAX)
    return float(lasted)


def worker() -> None:
    """Measure as one rank of two."""
    import torch
    import torch.distributed as dist

    die_with_parent()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    try:
        result = {name: compare(name, chunks) for name, chunks in SCHEDULES.items()}
        results(sys.argv[1], int(os.environ["RANK"]), result)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    worker()
