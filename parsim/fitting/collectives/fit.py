"""Fit the constants of collectives and the catalog's curves to public curves, and say how well.

Minimises the Huber loss of ln(predicted / measured) (each curve weighs as the root of its points,
sizes below 1 MiB count 0.3) plus log-normal priors, by damped Gauss-Newton with numeric
derivatives. Flagged rows (see the table's column) are left out of every fit.

The constants of `parsim/cost/collective/kinds.py` are fitted to all curves, and once more
without each curve, which tells the error on a system that nobody measured. A catalog curve is
fitted to the points of its group, with the constants' figures as prior; its error is told for every
second size, fitted to the others. Nothing here runs when parsim predicts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from parsim.arrays import Array
from parsim.cost.collective.kinds import Constants, generation
from parsim.cost.collective.modelled import Shape, bandwidths, modelled
from parsim.fitting.collectives.points import Points
from parsim.least_squares import Descent, Errors, Loss, least_loss, numeric_slopes
from parsim.validation.collective.measured_collective import CALL_OF_TORCH

HUBER = 0.05
"""Errors beyond 5 % count linearly: NCCL's protocol dips must not steer the constants."""

PRIOR = 0.02
DESCENT = Descent(rounds=40, enough=1e-6, harder=5.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedCollectives:
    """Constants of all systems, and by link generation the share that a ring reaches of a link."""

    constants: Constants
    ring: Mapping[str, float]
    torch: float = CALL_OF_TORCH

    def on(self, curve: Points) -> Shape:
        """The modelled shape of a curve's group, with the algorithm that its rows forced."""
        share = self.ring.get(generation(curve.system), curve.system.intra.efficiency)
        system = replace(curve.system, intra=replace(curve.system.intra, efficiency=share))
        if system.network is not None and curve.scope == "across nodes":
            system = replace(system, network=replace(system.network, efficiency=NETWORK))
        shape = modelled(system, curve.kind, curve.where, self.constants)
        if curve.algorithm in ("ring", "nvls"):
            forced = bandwidths(system, curve.kind, curve.where, self.constants)[curve.algorithm]  # type: ignore[index]
            shape = replace(shape, bandwidth=np.where(forced > 0, forced, shape.bandwidth))
        return replace(shape, latency=shape.latency + (self.torch if curve.overhead else 0.0))

    def errors(self, curve: Points) -> Array:
        """ln(predicted / measured) of every point."""
        return np.asarray(np.log(self.on(curve).seconds(curve.size) / curve.seconds))


START = FittedCollectives(
    constants=Constants(
        call=12e-6,
        ramp={
            "volta": Constants().ramp["volta"],
            "ampere": 25e-6,
            "hopper": 11e-6,
            "blackwell": 11e-6,
            **{name: Constants().ramp[name] for name in ("xgmi", "ici")},
            "pcie": 2e-6,
        },
        nvls={"hopper": 0.74, "blackwell": 0.71},
        idle={"ampere": 0.3, "bridge": 0.3},
    ),
    ring={"ampere": 0.82, "hopper": 0.82, "blackwell": 0.80},
    torch=24e-6,
)
"""Priors: NCCL uses 0.80 (Ampere, Blackwell), 0.82 (Hopper) of a link; NVLS 273 GB/s on H100."""

RATES = 0.03
TIMES = 0.5
KNOWN, UNKNOWN = 0.05, 0.5
"""How far a curve's bandwidth may be from the model's: inside a node, and where a network joins."""

NETWORK = 0.96
"""Share of its interfaces that a group reaches, for a network that nobody measured."""

SPREADS = {"call": TIMES, "torch": TIMES, "ring": RATES, "nvls": 0.1, "ramp": TIMES, "idle": TIMES}
GENERATIONS = {
    "ring": ("ampere", "hopper", "blackwell"),
    "nvls": ("hopper", "blackwell"),
    "ramp": ("ampere", "hopper", "blackwell"),
    "idle": ("ampere", "bridge"),
}
NAMES = ("call", "torch", *(f"{k} {g}" for k, gens in GENERATIONS.items() for g in gens))


def moved(start: FittedCollectives, move: Array) -> FittedCollectives:
    """The start with each constant of NAMES multiplied by exp(move)."""
    by = dict(zip(NAMES, np.exp(move).tolist(), strict=True))

    def scaled(kind: str, values: Mapping[str, float]) -> dict[str, float]:
        return {name: value * by.get(f"{kind} {name}", 1.0) for name, value in values.items()}

    old = start.constants
    constants = replace(
        old,
        call=old.call * by["call"],
        ramp=scaled("ramp", old.ramp),
        nvls=scaled("nvls", old.nvls),
        idle=scaled("idle", old.idle),
    )
    return FittedCollectives(
        constants=constants, ring=scaled("ring", start.ring), torch=start.torch * by["torch"]
    )


def fit_constants(curves: Sequence[Points]) -> FittedCollectives:
    """Constants of all systems from some curves."""
    spread = np.array([SPREADS[name.split()[0]] for name in NAMES])
    weights = np.concatenate([curve.weights() for curve in curves])

    def errors(move: Array) -> Array:
        fitted = moved(START, move)
        return np.concatenate([fitted.errors(curve) for curve in curves])

    return moved(START, _moves(errors, weights, spread))


def fit_curve(curves: Sequence[Points], prior: FittedCollectives) -> Shape:
    """One group's latency, bandwidth and ramp from the points of one or more sources.

    The tool's overhead is taken off the latency. A size range that does not show one of the three
    leaves it at the prior's.
    """
    model = replace(prior, torch=0.0).on(curves[0])
    start = np.array([model.waiting(np.inf)[0], model.bandwidth[0], model.ramp[0]])
    weights = np.concatenate([curve.weights() for curve in curves])

    def shape(move: Array) -> Shape:
        latency, bandwidth, ramp = (np.array([x]) for x in start * np.exp(move))
        return Shape(latency=latency, bandwidth=bandwidth, ramp=ramp)

    def errors(move: Array) -> Array:
        group_shape = shape(move)
        parts = [
            np.log(
                (group_shape.seconds(curve.size) + bool(curve.overhead) * prior.torch)
                / curve.seconds
            )
            for curve in curves
        ]
        return np.concatenate(parts)

    rate = KNOWN if curves[0].where.nodes[0] == 1 else UNKNOWN
    return shape(_moves(errors, weights, np.array([TIMES, rate, TIMES])))


def _moves(errors: Errors, weights: Array, spread: Array) -> Array:
    """The moves of least Huber loss plus priors, (K,); weights are of points, spreads of moves."""
    loss = Loss(weight=weights / HUBER, prior=PRIOR / spread**2, corner=HUBER)
    return least_loss(errors, numeric_slopes(errors, 1e-4), loss, DESCENT)[0]
