"""Parts of a step that sum to its time, and what a reader must know of the numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from parsim.cluster.hardware import System
from parsim.cost.software import Software
from parsim.cost.step import StepCosts

Array = NDArray[np.float64]


def step_breakdown(  # noqa: PLR0913 - the moments of a step
    costs: StepCosts,
    mean: Callable[[Array], float],
    *,
    pipeline: float,
    busy: float,
    before: float,
    updated: float,
    norm: float,
    gather: float,
    step: float,
) -> dict[str, float]:
    """Parts of the step that sum to `step`, mean over ranks, seconds.

    forward, backward and recompute are kernels; exposed_communication is tensor-parallel and
    sharding traffic inside actions that nothing hides; bubble is idle time of the pipeline phase
    (waiting for messages included); gradient_reduction is what follows the last backward.

    Args:
        costs: seconds of actions by stage.
        mean: seconds by stage -> seconds of a step, mean over ranks.
        pipeline: end of the last backward.
        busy: of the pipeline phase, mean over ranks.
        before: all gradients are reduced.
        updated: the slowest rank has its new parameters.
        norm: of the gradients.
        gather: of updated parameters, on the slowest rank.
        step: end of the step, stragglers included.
    """
    recompute = mean(costs.recomputed)
    return {
        "forward": mean(costs.forward) - mean(costs.exposed_forward),
        "backward": mean(costs.backward) - mean(costs.exposed_backward) - recompute,
        "recompute": recompute,
        "exposed_communication": mean(costs.exposed_forward) + mean(costs.exposed_backward),
        "bubble": pipeline - busy,
        "gradient_reduction": before - pipeline,
        "gradient_norm": norm,
        "optimizer": updated - before - norm - gather,
        "parameter_gather": gather,
        "straggler": step - updated,
    }


def source_notes(systems: Sequence[System], software: Software) -> tuple[str, ...]:
    """Where the constants came from, each once."""
    said = [
        f"{what} {one.id}: catalog constants, not measured on this machine"
        for system in systems
        for what, one in (("device", system.device), ("system", system))
        if not one.calibrated
    ]
    said.append(f"software {software.id}: {software.description}")
    return tuple(dict.fromkeys(said))
