"""Parts of a step that sum to its time, and what a reader must know of the numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from parsim.arrays import Array
from parsim.cluster.hardware import System
from parsim.cost.software import Software
from parsim.cost.step.costs import StepCosts
from parsim.sim.recurrence.evaluate import Evaluation


def breakdown(evaluation: Evaluation) -> dict[str, float]:
    """Parts of the step that sum to `step_time`, mean over ranks of all replicas, seconds.

    forward, backward and recompute are kernels, and backward is the same whatever is recomputed;
    exposed_communication is tensor-parallel and sharding traffic inside actions that nothing hides,
    collectives that recomputation repeats among it; exposed_offload, of a plan that keeps
    activations in the host's memory, is what the copies take beyond compute; bubble is idle time of
    the pipeline phase (waiting for messages included); gradient_reduction is what follows the last
    backward; host_copies, of a plan that updates on the host, is what copies of gradients beyond
    the backward and of updated parameters take.
    """
    costs, pipeline = evaluation.step.costs, evaluation.pipeline_time
    copies = [_mean(evaluation, part) for part in _copied(costs)]
    before, updated = evaluation.barrier, evaluation.updated
    on_host = _on_host(costs)
    norm, gather = float(costs.norm[0]), float(costs.gather.max())
    recompute = _mean(evaluation, costs.recomputed)
    exposed = [_mean(evaluation, part) for part in (costs.exposed_forward, costs.exposed_backward)]
    return {
        "forward": _mean(evaluation, costs.forward) - exposed[0],
        "backward": _mean(evaluation, costs.backward) - exposed[1] - recompute,
        "recompute": recompute,
        "exposed_communication": exposed[0] + exposed[1] - sum(copies),
        **({"exposed_offload": sum(copies)} if copies else {}),
        "bubble": pipeline - _busy(evaluation),
        "gradient_reduction": before - pipeline,
        "gradient_norm": norm,
        "optimizer": updated - before - norm - gather - sum(on_host.values()),
        **on_host,
        "parameter_gather": gather,
        "straggler": evaluation.step_time - updated,
    }


def _copied(costs: StepCosts) -> Iterator[Array]:
    """What shows of copies to the host in forwards, and in backwards, where there are any."""
    yield from (part for part in (costs.copied_forward, costs.copied_backward) if part is not None)


def _on_host(costs: StepCosts) -> dict[str, float]:
    """Seconds of copies around an update on the host, of the rank that ends last."""
    if costs.host_copies is None:
        return {}
    last = costs.optimizer.argmax()
    return {"host_copies": float(costs.host_copies.flat[last])}


def _mean(evaluation: Evaluation, seconds: Array) -> float:
    """Seconds of a step from those of one micro-batch by stage and class, mean over ranks."""
    step = evaluation.step
    by_class = [
        float(seconds[:, c].sum()) * schedule.num_microbatches / (schedule.copies * step.plan.pp)
        for c, schedule in enumerate(map(step.schedule, range(step.num_classes)))
    ]
    return float(np.array(by_class) @ step.shares)


def _busy(evaluation: Evaluation) -> float:
    """Compute-stream seconds of the pipeline phase, mean over ranks."""
    by_class = [float(busy.mean()) for busy in evaluation.busy.T]
    return float(np.array(by_class) @ evaluation.step.shares)


def source_notes(systems: Sequence[System], software: Software) -> tuple[str, ...]:
    """Where the constants came from, each once."""
    notes = [
        f"{entry}: catalog constants, not measured on this machine"
        for system in systems
        for entry in system.uncalibrated
    ]
    notes.append(f"software {software.id}: {software.description}")
    return tuple(dict.fromkeys(notes))
