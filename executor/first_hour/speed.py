"""Is a step of the executor as fast as the same step in plain torch?

    python -m executor.first_hour.speed OUT.json --model '{"name": "gpt2"}'

Both train the same module with AdamW and clipped gradients, in one process, in turn. Plain torch
is what anybody would write: forward, loss, backward, `clip_grad_norm_`, the optimizer's step. The
ratio is that of the fastest steps: what a shared machine adds is never negative.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from executor.devices.accelerator import accelerator
from executor.faults.parent import command
from executor.first_hour.alone import CLIP, Alone, each_alone, options_of
from executor.model.loss import Batch
from executor.model.stage import Stage
from executor.parallel.precision import is_autocast

TrainStep = Callable[[torch.Tensor, torch.Tensor], object]

BOUND = 1.02
"""Largest ratio that counts as equal."""


def compared(here: Alone, steps: int) -> dict[str, Any]:
    """The fastest and the median step of both, seconds, and the ratio of the fastest."""
    steps_of: dict[str, TrainStep] = {"executor": here.trainer.step, "plain": plain_step(here)}
    source = here.endless()
    seconds: dict[str, list[float]] = {"executor": [], "plain": []}
    for number in range(steps + 3):
        for name, step in steps_of.items():
            lasted = _timed(here, step, next(source))
            if number >= 3:  # warm-up
                seconds[name].append(lasted)
    least = {name: min(values) for name, values in seconds.items()}
    return {
        "model": here.spec.name,
        "device": str(here.device),
        "precision": here.scenario.fixed_plan().precision,
        "steps": steps,
        "least_step_s": least,
        "median_step_s": {name: sorted(v)[len(v) // 2] for name, v in seconds.items()},
        "ratio": least["executor"] / least["plain"],
        "bound": BOUND,
    }


def plain_model(here: Alone) -> Stage:
    """A copy of the model with its class's forward, and parameters of its own."""
    [replica] = here.trainer.replicas
    model = copy.deepcopy(replica.stage)
    model.__dict__.pop("forward", None)  # that of `apply_autocast` runs the original's parameters
    return model


def plain_step(here: Alone) -> TrainStep:
    """A step of a copy of the model in plain torch."""
    model = plain_model(here)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True
    )
    precision = here.scenario.fixed_plan().precision
    loss_fn = here.trainer.loss_fn

    def step(tokens: torch.Tensor, targets: torch.Tensor) -> object:
        optimizer.zero_grad()
        with torch.autocast(here.device.type, torch.bfloat16, enabled=is_autocast(precision)):
            outputs = model(tokens)
        loss = loss_fn(outputs, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        return loss.detach()

    return step


def _timed(here: Alone, step: TrainStep, batch: Batch) -> float:
    accelerator(here.device).synchronize()
    begin = time.perf_counter()
    step(*batch)
    accelerator(here.device).synchronize()
    return time.perf_counter() - begin


def main() -> int:
    """Compare each model and write what was found; 1 if the executor was slower than allowed."""
    parser = options_of("speed", __doc__)
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    return command(lambda: _work(options))


def _work(options: argparse.Namespace) -> int:
    cases = each_alone(options, lambda here: compared(here, options.steps), _told)
    judged = options.device == "cuda"  # a rehearsal's model is too small to say anything
    return int(judged and any(case["ratio"] > BOUND for case in cases))


def _told(case: Mapping[str, Any]) -> str:
    return f"executor / plain {case['ratio']:.3f}"


if __name__ == "__main__":
    raise SystemExit(main())
