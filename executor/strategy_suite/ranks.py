"""What every rank of the suite does: delayed workers, and strategies in turns.

Argument: the folder with `order.json`. Rank 0 writes `measured.json`.
"""

from __future__ import annotations

import gc
import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from executor.devices.all_ranks import gathered, largest
from executor.devices.machine import use_one_thread
from executor.devices.mesh import process_group
from executor.faults.parent import end_with_parent
from executor.measure.steps import mean_over_ranks, run_timed
from executor.model.loss import Batch
from executor.run.part import RankPart
from executor.run.run import optimizer_of
from executor.run.strategy_document import Measured
from executor.run.strategy_run import strategy_work
from executor.strategies.clock import clock_of_ranks
from executor.strategies.compute import samples_by_process
from executor.strategies.link import Link
from executor.strategies.replays.log import Ended, ages
from executor.strategies.replica import FlatReplica
from executor.strategies.train import train
from executor.strategies.work import Work
from executor.strategy_suite.cases import (
    AGED,
    DELAYED_ROUNDS,
    MEASURED,
    MEASURED_ASYNCHRONOUS,
    WARMUP,
    delays,
)
from executor.suite.models import TINY
from executor.training.build import build_trainer
from executor.training.trainer import Trainer
from executor.training.update_rule import OptimizerConfig
from parsim.errors import ParsimError
from parsim.launch.options import RunOptions
from parsim.model.reader import model_spec
from parsim.model.transformer import TransformerSpec, with_options
from parsim.plan import Plan
from parsim.plan.strategies import AsynchronousGossip, AsynchronousServer
from parsim.report.writing import write_text
from parsim.scenario import load_scenario

CPU = torch.device("cpu")
SPEC_SEED = 3
TRIES = 3
"""Times that a case is run in a turn at most."""


def main() -> None:
    """Do what the order says and write what came out."""
    end_with_parent()
    folder = Path(sys.argv[1])
    order = json.loads((folder / "order.json").read_text(encoding="utf-8"))
    use_one_thread()
    with process_group("gloo", 600.0):
        done = {"ages": _ages, "turns": _turns, "steps": _steps}[order["what"]](folder, order)
        if dist.get_rank() == 0:
            write_text(folder / "measured.json", json.dumps(done) + "\n")


def _ages(_folder: Path, order: Mapping[str, Any]) -> dict[str, Any]:
    """Ages of gradients with workers that sleep for the delays of the order's mean."""
    spec = _tiny()
    slept = delays(order["delay_s"])
    return {
        name: ages(_log(spec, AsynchronousServer(**options), slept))
        for name, options in AGED.items()
    }


def _log(spec: TransformerSpec, strategy: AsynchronousServer, slept: Any) -> Any:  # noqa: ANN401
    work = Work(
        plan=Plan(dp_replicate=dist.get_world_size(), strategy=strategy, precision="fp32"),
        replica=FlatReplica(spec, seed=SPEC_SEED, device=CPU),
        batches=_random_batches(spec),
        config=OptimizerConfig(name="sgd"),
        rounds=DELAYED_ROUNDS,
        clock=clock_of_ranks(CPU),
        delay=lambda worker, number: float(slept[number, worker]),
    )
    return [entry for here in gathered(train(work).applied) for entry in here]


def _tiny() -> TransformerSpec:
    changes = {key: value for key, value in TINY.items() if key not in ("family", "name")}
    changes |= {"num_key_value_heads": 4, "head_dim": 16, "ffn_hidden_size": 256, "positions": 32}
    return with_options(model_spec("gpt2"), dropout=False, **changes)


def _random_batches(spec: TransformerSpec) -> Callable[[int, int], Batch]:
    def batch(worker: int, number: int) -> Batch:
        draw = torch.Generator().manual_seed(1000 * worker + number)
        ids = torch.randint(0, spec.vocab_size, (1, spec.seq_len + 1), generator=draw)
        return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()

    return batch


def _turns(folder: Path, order: Mapping[str, Any]) -> dict[str, list[float]]:
    """Seconds of a step in every turn of every case; each turn trains anew."""
    parts = {name: _part(folder / path) for name, path in order["cases"].items()}
    rate = order.get("bytes_per_s") or math.inf
    return _rotated({name: partial(_turn, part, rate) for name, part in parts.items()}, order)


def _steps(folder: Path, order: Mapping[str, Any]) -> dict[str, list[float]]:
    """Seconds of a step in every turn of every case, all of which stay ready: turns are short."""
    parts = {name: _part(folder / path) for name, path in order["cases"].items()}
    ready = {name: _second_step(_trainer(part), part) for name, part in parts.items()}
    gc.freeze()  # else each collection looks through all of them, and who makes most objects pays
    return _rotated(ready, order)


def _rotated(
    takers: Mapping[str, Callable[[], float]], order: Mapping[str, Any]
) -> dict[str, list[float]]:
    """What each case takes in every turn, in the order of the turns, until their time is over."""
    seconds: dict[str, list[float]] = {name: [] for name in takers}
    until = time.monotonic() + order["seconds"]
    for turn in range(order["turns"]):
        for name, take in takers.items():
            seconds[name].append(take())
            if dist.get_rank() == 0:
                print(f"turn {turn}, {name}: {seconds[name][-1]:.3f} s", flush=True)  # noqa: T201
        late = mean_over_ranks([float(time.monotonic() > until)], CPU)
        if late and turn >= order["least"] - 1:
            break
    return seconds


def _second_step(trainer: Trainer, part: RankPart) -> Callable[[], float]:
    """Takes two steps and gives the seconds of the second: the first finds a stranger's caches."""
    batches = part.batches()

    def take() -> float:
        trainer.step(*next(batches))
        lasted, _ = run_timed(partial(trainer.step, *next(batches)), CPU)
        return largest(lasted, CPU)

    return take


def _part(path: Path) -> RankPart:
    scenario = load_scenario(path)
    alone = isinstance(scenario.fixed_plan().strategy, AsynchronousServer | AsynchronousGossip)
    steps = MEASURED_ASYNCHRONOUS if alone else MEASURED
    return RankPart.of(scenario, RunOptions(out=path.parent, warmup=WARMUP, steps=steps), CPU)


def _turn(part: RankPart, rate: float) -> float:
    """Seconds of a step in one turn of a case, tried again where workers were never together.

    Of workers that do not wait for each other the machine may hold one up until the others are
    done: then there is no time in which all worked.
    """
    for _ in range(TRIES):
        seconds = _step(part, rate)
        if math.isfinite(seconds):
            return seconds
    raise ParsimError(f"{part.options.out}: in {TRIES} tries workers were never at work together")


def _step(part: RankPart, rate: float) -> float:
    """Seconds of a step of a case, NaN without any in which all worked; idle ranks wait."""
    plan = part.scenario.fixed_plan()
    rounds = _strategy_rounds(part, rate) if plan.strategy.own_program else _ddp_rounds(part)
    rows = [row for row in gathered(rounds) if row]
    measured = Measured(rounds=rows, warmup=WARMUP, samples=samples_by_process(plan))
    return measured.step_time


def _strategy_rounds(part: RankPart, rate: float) -> list[Ended]:
    """The rounds of a strategy, its batches drawn before any rank begins."""
    work = strategy_work(part)
    workers, numbers = range(work.plan.dp), range(work.rounds)
    batches = {
        (worker, number): part.of_rank(worker, number) for worker in workers for number in numbers
    }
    clock = clock_of_ranks(CPU)
    if work.plan.strategy.one_process and dist.get_rank():
        return []
    return train(
        replace(
            work,
            batches=lambda worker, number: batches[worker, number],
            clock=clock,
            link=Link(rate),
        )
    ).rounds


def _ddp_rounds(part: RankPart) -> list[Ended]:
    """The trainer's steps, timed as those of a strategy are: nobody waits between them."""
    trainer, rank = _trainer(part), dist.get_rank()
    rounds_of_turn = part.options.warmup + part.options.steps
    batches = [part.of_rank(rank, number) for number in range(rounds_of_turn)]
    clock, rounds = clock_of_ranks(CPU), []
    for number, batch in enumerate(batches):
        losses = trainer.step(*batch)
        rounds.append(Ended(number, clock(), sum(losses), 0.0))
    return rounds


def _trainer(part: RankPart) -> Trainer:
    config = optimizer_of(part.scenario, part.options)
    plan = part.scenario.fixed_plan()
    return build_trainer(part.scenario.model, plan, device=CPU, seed=0, optimizer=config)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
