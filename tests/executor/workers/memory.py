"""Worker: measures the peak memory of plans, each beside its prediction.

Arguments: folder for the results, file of a scenario and overrides for each case by its name.
"""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from executor.devices.all_ranks import gathered
from executor.devices.mesh import process_group
from executor.measure.memory import peak_bytes
from executor.parallel.context import rank_part
from executor.training.build import build_trainer
from parsim.scenario import load_scenario
from parsim.sim import simulate
from tests.executor.launch import die_with_parent, results

CPU = torch.device("cpu")


def measured(path: Path, overrides: dict[str, str]) -> dict[str, list[float]]:
    """Peak bytes of every rank after three steps, and what was predicted for each.

    The higher of two steps: once in some hundred runs the profiler's record of a step lacked 1 MiB.
    """
    scenario = load_scenario(path, overrides)
    spec, plan = scenario.spec, scenario.fixed_plan()
    trainer = build_trainer(spec, plan, device=CPU, seed=0)
    generator = torch.Generator().manual_seed(1)
    shape = (plan.global_batch_size, spec.seq_len + 1)
    ids = torch.randint(spec.vocab_size, shape, generator=generator)
    batch = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
    mine = rank_part(spec, plan, dist.get_rank(), batch)
    for _ in range(3):  # DDP makes its buckets anew in the second
        trainer.step(*mine)
    steps = [gathered(peak_bytes(trainer, CPU, lambda: trainer.step(*mine))) for _ in range(2)]
    peaks = [max(ranks) for ranks in zip(*steps, strict=True)]
    return {"measured": peaks, "predicted": list(simulate(scenario.job, plan).peak_allocated)}


def main(folder: str, scenario: str, cases: str) -> None:
    die_with_parent()
    torch.set_num_threads(1)
    with process_group("gloo", 180.0):  # what a stalled machine has been seen to take
        result = {}
        for name, overrides in json.loads(Path(cases).read_text()).items():
            result[name] = measured(Path(scenario), overrides)
            gc.collect()
        results(folder, dist.get_rank(), result)


if __name__ == "__main__":
    main(*sys.argv[1:])
