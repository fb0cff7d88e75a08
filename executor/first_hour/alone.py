"""One rank in this process, and what a trainer without parallelism is held against."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from executor.devices.machine import probe, rank_device
from executor.model.first_values import seeded
from executor.model.loss import Batch
from executor.training.build import build_trainer
from executor.training.samples import Corpus, batches
from executor.training.trainer import Trainer
from executor.training.update_rule import OptimizerConfig
from parsim.model.transformer import TransformerSpec
from parsim.report.writing import write_text
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
        """The model that is trained."""
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
    with _only_rank(), _group_of_one(kind) as device:
        yield Alone(
            scenario=scenario,
            device=device,
            batches=_batches(scenario, device),
            trainer=_trainer(scenario, device),
        )


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


@contextmanager
def _group_of_one(kind: str) -> Iterator[torch.device]:
    """Be a process group by oneself; the rank's device."""
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
        yield device
    finally:
        dist.destroy_process_group()


def _batches(scenario: Scenario, device: torch.device) -> tuple[Batch, ...]:
    """The first batches of the corpus, on the device."""
    spec = scenario.spec
    source = batches(
        Corpus.load(),
        seed=0,
        global_batch_size=scenario.fixed_plan().global_batch_size,
        seq_len=spec.seq_len,
        masked=not spec.causal,
    )
    return tuple((x.to(device), y.to(device)) for x, y in islice(source, BATCHES))


def _trainer(scenario: Scenario, device: torch.device) -> Trainer:
    """A trainer of the scenario's plan with seeded weights, for only seconds count here."""
    return build_trainer(
        scenario.spec,
        scenario.fixed_plan(),
        device=device,
        seed=0,
        optimizer=OptimizerConfig(clip=CLIP),
        values=seeded(0, device, scenario.spec),
    )


def options_of(name: str, told: str) -> argparse.ArgumentParser:
    """What the commands of this room that run models alone have in common.

    Args:
        name: of the module.
        told: what it is for.
    """
    parser = argparse.ArgumentParser(prog=f"python -m executor.first_hour.{name}", description=told)
    parser.add_argument("out", type=Path, metavar="OUT.json")
    parser.add_argument("--model", action="append", required=True, help="model block, as JSON")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    return parser


def each_alone(
    options: argparse.Namespace,
    described: Callable[[Alone], dict[str, Any]],
    told: Callable[[dict[str, Any]], str],
) -> list[dict[str, Any]]:
    """Describe each model of the options; what is known is on disk after every one.

    Args:
        options: of the command, see `options_of`.
        described: what is to be known of a model on its rank.
        told: what is said of that, behind the model's name.
    """
    models: list[dict[str, Any]] = []
    for model in options.model:
        with alone(scenario_of(model, options.device, options.out.parent), options.device) as here:
            models.append({"model": here.spec.name, **described(here)})
        write_text(options.out, json.dumps(models, indent=2) + "\n")
        sys.stdout.write(f"{models[-1]['model']}: {told(models[-1])}\n")
    return models
