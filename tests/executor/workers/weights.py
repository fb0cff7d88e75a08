"""Worker: starts plans from a published model, exports them at once, and again after a step.

Arguments: folder for the results, folder of the published models, file of the cases by name.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from executor.devices.mesh import process_group
from executor.parallel.context import rank_part
from executor.training.build import build_trainer
from executor.training.update_rule import OptimizerConfig, Rate
from executor.weights.export import export
from executor.weights.published import Published
from executor.weights.safetensors import File
from parsim.model.config.file import read_config
from parsim.model.huggingface import spec_from_config
from parsim.plan import Plan
from tests.executor.launch import die_with_parent, results

SGD = OptimizerConfig(name="sgd", rate=Rate(peak=0.5), weight_decay=0.0)


def run(source: Path, plan: Plan, out: Path, changes: dict[str, Any]) -> None:
    """Export into `out/first`, and after one step of SGD into `out/second`."""
    spec = spec_from_config(read_config(source), name="published", seq_len=32)
    spec = replace(spec, dropout=False, **changes)
    trainer = build_trainer(
        spec,
        plan,
        device=torch.device("cpu"),
        seed=0,
        optimizer=SGD,
        values=Published(source, spec),
    )
    export(trainer, spec, out / "first")
    given = File(source / "expected.safetensors")
    rows = [given.tensor(name)[:1].repeat(4, 1) for name in ("tokens", "targets")]
    trainer.step(*rank_part(spec, plan, dist.get_rank(), rows))
    export(trainer, spec, out / "second")
    dist.barrier()


def main(folder: str, published: str, cases: str) -> None:
    die_with_parent()
    torch.set_num_threads(1)
    with process_group("gloo", 60.0):
        for name, case in json.loads(Path(cases).read_text()).items():
            source = Path(published, case["model"])
            plan = Plan(**case["plan"])
            try:
                run(source, plan, Path(folder, name), case.get("changes", {}))
            except Exception as error:
                raise RuntimeError(name) from error
        results(folder, dist.get_rank(), "done")


if __name__ == "__main__":
    main(*sys.argv[1:])
