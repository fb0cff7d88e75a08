"""One rank in this process, and what a trainer without parallelism is held against."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from executor.devices.machine import probe, rank_device
from executor.measure.steps import Batch
from executor.training.build import build_trainer
from executor.training.samples import Corpus, batches
from executor.training.trainer import Trainer
from executor.training.update_rule import OptimizerConfig
from parsim.model.transformer import TransformerSpec
from parsim.scenario import Scenario, load_scenario

CLIP = 1.0
BATCHES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone:
    """A model of one rank, a few batches of it on its device, and its trainer."""

    scenario: Scenario
    device: torch.device
    batches: tuple[Batch, ...]
    trainer: Trainer

    @property
    def spec(self) -> TransformerSpec:
        """The model."""
        return self.scenario.spec

    def endless(self) -> Iterator[Batch]:
        """The batches, over and over: nothing is made or copied while a step is timed."""
        return cycle(self.batches)


def scenario_of(model: str, kind: str, folder: Path) -> Scenario:
    """A scenario of one device from the JSON of its model block; its micro-batch is the batch."""
    block: dict[str, Any] = json.loads(model)
    large = kind == "cuda"
    document = {
        "description": "one rank",
        "model": block,
        "cluster": {"system": "dgx-h100" if large else "cpu", "nodes": 1, "devices_per_node": 1},
        "software": f"executor-{kind}",
        "training": {"global_batch_size": 4, "precision": "bf16_amp" if large else "fp32"},
        "plan": {"microbatch_size": 4},
    }
    path = folder / f"{block['name']}.yaml"
    path.write_text(json.dumps(document), encoding="utf-8")  # JSON is YAML
    return load_scenario(path)


@contextmanager
def alone(scenario: Scenario, kind: str) -> Iterator[Alone]:
    """Be the one rank of a scenario's plan, with AdamW and clipped gradients."""
    with _only_rank():
        yield from _alone(scenario, kind)


@contextmanager
def _only_rank() -> Iterator[None]:
    """Say in the environment, as torchrun does, that this is the only rank, and take it back.

    What this process starts afterwards would take itself for a rank.
    """
    before = {name: os.environ.get(name) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")}
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _alone(scenario: Scenario, kind: str) -> Iterator[Alone]:
    report = probe(kind)
    device = rank_device(report)
    dist.init_process_group(
        report.backend,
        rank=0,
        world_size=1,
        store=dist.HashStore(),
        device_id=device if device.type == "cuda" else None,
    )
    try:
        spec, plan = scenario.spec, scenario.fixed_plan()
        source = batches(
            Corpus.load(),
            seed=0,
            global_batch_size=plan.global_batch_size,
            seq_len=spec.seq_len,
            masked=not spec.causal,
        )
        here = tuple((x.to(device), y.to(device)) for x, y in islice(source, BATCHES))
        trainer = build_trainer(
            spec, plan, device=device, seed=0, optimizer=OptimizerConfig(clip=CLIP)
        )
        yield Alone(scenario=scenario, device=device, batches=here, trainer=trainer)
    finally:
        dist.destroy_process_group()
