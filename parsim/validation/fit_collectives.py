"""Fit the constants of collectives and the catalog's curves to public curves, and say how well.

Minimises the Huber loss of ln(predicted / measured) (each curve weighs as the root of its points,
sizes below 1 MiB count 0.3) plus log-normal priors, by damped Gauss-Newton with numeric
derivatives. Flagged rows (see the table's column) are left out of every fit.

The constants of `parsim/cost/shape.py` are fitted to all curves, and once more without each curve,
which tells the error on a system that nobody measured. A catalog curve is fitted to the points of
its group, with the constants' figures as prior; its error is told for every second size, fitted to
the others. Nothing here runs when parsim predicts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from parsim.cluster.hardware import System
from parsim.cost.collectives import Kind
from parsim.cost.placed import Groups, inter_bandwidth
from parsim.cost.shape import Constants, Shape, bandwidths, generation, modelled
from parsim.validation.collective_rows import (
    CALL_OF_TORCH,
    MeasuredCollective,
    parse_collective,
    read_collectives,
)
from parsim.validation.schema import RowSkipped

Array = NDArray[np.float64]
Log = Callable[[Array], Array]

HUBER = 0.05
"""Errors beyond 5 % count linearly: NCCL's protocol dips must not steer the constants."""
PRIOR = 0.02
SMALL = 0.3
LEAST_POINTS = 5
"""Curves with fewer points take part in the fit but are not left out by themselves."""
MIB = 2.0**20
BARS = ("< 64 KiB", "64 KiB to 1 MiB", "1 to 64 MiB", "> 64 MiB", ">= 1 MiB")


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """One measured curve: a collective on a group, at several sizes."""

    name: str
    system: System
    where: Groups
    kind: Kind
    algorithm: str
    place: str
    size: Array
    seconds: Array
    overhead: float

    def only(self, chosen: NDArray[np.bool_]) -> Points:
        """Some of its sizes."""
        return replace(self, size=self.size[chosen], seconds=self.seconds[chosen])

    def weights(self) -> Array:
        """How much each point counts in a fit over curves."""
        return np.asarray(np.where(self.size >= MIB, 1.0, SMALL) / np.sqrt(len(self.size)))


def load_points(paths: Sequence[Path]) -> list[Points]:
    """Unflagged collectives of the tables, by curve: one source, group, kind and algorithm."""
    found: dict[tuple[object, ...], list[MeasuredCollective]] = {}
    for path in paths:
        for row in read_collectives(path):
            try:
                one = parse_collective(row)
            except RowSkipped:
                continue
            if not one.flag and one.kind != "send_recv":
                shaped = one.system.id, one.kind, one.algorithm, *_group(one.where)
                found.setdefault((row["source"], row["tool"], *shaped), []).append(one)
    return [_points(str(key[1]), rows) for key, rows in found.items()]


def _group(where: Groups) -> tuple[int, int]:
    return int(where.size[0]), int(where.nodes[0])


def _points(tool: str, rows: Sequence[MeasuredCollective]) -> Points:
    first = rows[0]
    ranks, nodes = _group(first.where)
    name = f"{first.system.id} {first.kind} {ranks} on {nodes} {first.algorithm}".strip()
    return Points(
        name=f"{name}, {tool.split()[0]}",
        system=replace(first.system, curves=()),
        where=first.where,
        kind=first.kind,  # type: ignore[arg-type]
        algorithm=first.algorithm,
        place=first.place,
        size=np.array([row.size for row in rows]),
        seconds=np.array([row.seconds for row in rows]),
        overhead=first.overhead,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """Constants of all systems, and by link generation the share that a ring reaches of a link."""

    constants: Constants
    ring: Mapping[str, float]
    torch: float = CALL_OF_TORCH

    def on(self, one: Points) -> Shape:
        """The modelled shape of a curve's group, with the algorithm that its rows forced."""
        share = self.ring.get(generation(one.system), one.system.intra.efficiency)
        system = replace(one.system, intra=replace(one.system.intra, efficiency=share))
        if system.network is not None and one.place == "across nodes":
            system = replace(system, network=replace(system.network, efficiency=NETWORK))
        found = modelled(system, one.kind, one.where, self.constants)
        if one.algorithm in ("ring", "nvls"):
            forced = bandwidths(system, one.kind, one.where, self.constants)[one.algorithm]  # type: ignore[index]
            found = replace(found, bandwidth=np.where(forced > 0, forced, found.bandwidth))
        return replace(found, latency=found.latency + (self.torch if one.overhead else 0.0))

    def errors(self, one: Points) -> Array:
        """ln(predicted / measured) of every point."""
        return np.asarray(np.log(self.on(one).seconds(one.size) / one.seconds))


START = Fitted(
    constants=Constants(
        call=12e-6,
        ramp={
            "volta": Constants().ramp["volta"],
            "ampere": 25e-6,
            "hopper": 11e-6,
            "blackwell": 11e-6,
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
SPREADS = {"call": TIMES, "torch": TIMES, "ring": RATES, "nvls": 0.1, "ramp": TIMES,
           "idle": TIMES}  # fmt: skip
GENERATIONS = {"ring": ("ampere", "hopper", "blackwell"), "nvls": ("hopper", "blackwell"),
               "ramp": ("ampere", "hopper", "blackwell"), "idle": ("ampere", "bridge")}  # fmt: skip
NAMES = ("call", "torch", *(f"{k} {g}" for k, gens in GENERATIONS.items() for g in gens))


def moved(start: Fitted, move: Array) -> Fitted:
    """The start with each constant of NAMES multiplied by exp(move)."""
    by = dict(zip(NAMES, np.exp(move).tolist(), strict=True))

    def scaled(kind: str, values: Mapping[str, float]) -> dict[str, float]:
        return {made: value * by.get(f"{kind} {made}", 1.0) for made, value in values.items()}

    old = start.constants
    constants = replace(
        old,
        call=old.call * by["call"],
        ramp=scaled("ramp", old.ramp),
        nvls=scaled("nvls", old.nvls),
        idle=scaled("idle", old.idle),
    )
    return Fitted(
        constants=constants, ring=scaled("ring", start.ring), torch=start.torch * by["torch"]
    )


def fit_constants(curves: Sequence[Points]) -> Fitted:
    """Constants of all systems from some curves."""
    spread = np.array([SPREADS[name.split()[0]] for name in NAMES])
    weights = np.concatenate([one.weights() for one in curves])

    def errors(move: Array) -> Array:
        found = moved(START, move)
        return np.concatenate([found.errors(one) for one in curves])

    return moved(START, least(errors, weights, spread))


def fit_curve(curves: Sequence[Points], prior: Fitted) -> Shape:
    """One group's latency, bandwidth and ramp from the points of one or more sources.

    The tool's overhead is taken off the latency. A size range that does not show one of the three
    leaves it at the prior's.
    """
    model = replace(prior, torch=0.0).on(curves[0])
    start = np.array([model.latency[0], model.bandwidth[0], model.ramp[0]])
    weights = np.concatenate([one.weights() for one in curves])

    def shape(move: Array) -> Shape:
        latency, bandwidth, ramp = (np.array([x]) for x in start * np.exp(move))
        return Shape(latency=latency, bandwidth=bandwidth, ramp=ramp)

    def errors(move: Array) -> Array:
        found = shape(move)
        parts = [
            np.log((found.seconds(one.size) + bool(one.overhead) * prior.torch) / one.seconds)
            for one in curves
        ]
        return np.concatenate(parts)

    rate = KNOWN if curves[0].where.nodes[0] == 1 else UNKNOWN
    return shape(least(errors, weights, np.array([TIMES, rate, TIMES])))


def least(errors: Log, weights: Array, spread: Array, rounds: int = 40) -> Array:
    """The move of least Huber loss plus priors; Levenberg-Marquardt over reweighted errors."""
    move, damping = np.zeros(len(spread)), 1e-3

    def loss(found: Array, at: Array) -> float:
        size = np.abs(found)
        huber = np.where(size < HUBER, size**2 / (2 * HUBER), size - HUBER / 2)
        return float(weights @ huber + PRIOR * np.sum((at / spread) ** 2))

    found = errors(move)
    best = loss(found, move)
    for _ in range(rounds):
        slopes = _slopes(errors, move, found)
        robust = weights * np.minimum(1.0, HUBER / np.maximum(np.abs(found), 1e-9)) / HUBER
        square = slopes.T @ (robust[:, None] * slopes) + np.diag(2 * PRIOR / spread**2)
        pull = slopes.T @ (robust * found) + 2 * PRIOR * move / spread**2
        step = np.linalg.solve(square + damping * np.diag(np.diag(square)), -pull)
        tried = errors(move + step)
        new = loss(tried, move + step)
        if new < best:
            gain, best = best - new, new
            move, found, damping = move + step, tried, damping / 3
            if gain < 1e-6:
                break
        else:
            damping *= 5
    return move


def _slopes(errors: Log, at: Array, found: Array) -> Array:
    width = 1e-4
    return np.stack([(errors(at + one) - found) / width for one in width * np.eye(len(at))], axis=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """ln(predicted / measured) per curve: constants fitted without it, and its own unseen sizes.

    `unseen` holds sizes and errors, none where a curve has too few points.
    """

    fitted: Fitted
    left_out: tuple[Array, ...]
    unseen: tuple[tuple[Array, Array], ...]


def score(curves: Sequence[Points]) -> Scores:
    """Fit everything, and each curve once more from the others and from half of itself."""
    fitted = fit_constants(curves)
    left_out, unseen = [], []
    for one in curves:
        others = [other for other in curves if other is not one]
        alone = len(one.size) < LEAST_POINTS
        left_out.append((fitted if alone else fit_constants(others)).errors(one))
        unseen.append((np.zeros(0), np.zeros(0)) if alone else _unseen(one, fitted))
    return Scores(fitted=fitted, left_out=tuple(left_out), unseen=tuple(unseen))


def _unseen(one: Points, fitted: Fitted) -> tuple[Array, Array]:
    """Sizes and errors of every second point by a fit to the others, both ways."""
    even = np.arange(len(one.size)) % 2 == 0
    sizes, errors = [], []
    for chosen in (even, ~even):
        test = one.only(~chosen)
        found = fit_curve([one.only(chosen)], fitted)
        predicted = found.seconds(test.size) + bool(one.overhead) * fitted.torch
        sizes.append(test.size)
        errors.append(np.log(predicted / test.seconds))
    return np.concatenate(sizes), np.concatenate(errors)


def catalog_curves(curves: Sequence[Points], fitted: Fitted) -> dict[str, list[str]]:
    """Lines for `curves:` in the catalog, by system: groups of enough points, sources together."""
    pooled: dict[tuple[object, ...], list[Points]] = {}
    for one in curves:
        if not one.algorithm and len(one.size) >= LEAST_POINTS:
            pooled.setdefault((one.system.id, one.kind, *_group(one.where)), []).append(one)
    lines: dict[str, list[str]] = {}
    for (system, kind, ranks, nodes), parts in pooled.items():
        lines.setdefault(str(system), []).extend(
            _curve_lines(fit_curve(parts, fitted), parts, str(kind), (ranks, nodes))
        )
    return lines


def _curve_lines(
    found: Shape, parts: Sequence[Points], kind: str, group: tuple[object, object]
) -> list[str]:
    sizes = np.concatenate([one.size for one in parts])
    system, where = parts[0].system, parts[0].where
    rates = f"link: {system.intra.bandwidth / 1e9:.4g}GB/s"
    if where.nodes[0] > 1 and system.network is not None:
        out = float(inter_bandwidth(system, where)[0]) / system.network.efficiency
        rates += f", node_bandwidth: {out / 1e9:.4g}GB/s"
    tools = sorted({"torch" if one.overhead else "nccl-tests or profiler" for one in parts})
    return [
        f"      - {{collective: {kind}, ranks: {group[0]}, nodes: {group[1]}, "
        f"latency: {found.latency[0] * 1e6:.3g}us,",
        f"         bandwidth: {found.bandwidth[0] / 1e9:.4g}GB/s, "
        f"ramp: {found.ramp[0] * 1e6:.3g}us, {rates},",
        f"         least: {sizes.min() / 1024:.6g}KiB, most: {sizes.max() / MIB:.6g}MiB,",
        f'         source: "make fit-collectives: {len(sizes)} public points of '
        f'{", ".join(tools)}"}}',
    ]
