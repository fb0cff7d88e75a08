"""Curves of the catalog's systems as the fit gives them, line by line."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from parsim.cost.collective.group_bandwidth import inter_bandwidth
from parsim.cost.collective.modelled import Shape
from parsim.fitting.collectives.fit import FittedCollectives, fit_curve
from parsim.fitting.collectives.points import LEAST_POINTS, Points, ranks_and_nodes
from parsim.units import MIB


def catalog_curves(curves: Sequence[Points], fitted: FittedCollectives) -> dict[str, list[str]]:
    """Lines for `curves:` in the catalog, by system: groups of enough points, sources together."""
    pooled: dict[tuple[object, ...], list[Points]] = {}
    for curve in curves:
        if not curve.algorithm and len(curve.size) >= LEAST_POINTS:
            key = (curve.system.id, curve.kind, *ranks_and_nodes(curve.where))
            pooled.setdefault(key, []).append(curve)
    lines: dict[str, list[str]] = {}
    for (system, kind, ranks, nodes), parts in pooled.items():
        lines.setdefault(str(system), []).extend(
            _curve_lines(fit_curve(parts, fitted), parts, str(kind), (ranks, nodes))
        )
    return lines


def _curve_lines(
    shape: Shape, parts: Sequence[Points], kind: str, group: tuple[object, object]
) -> list[str]:
    sizes = np.concatenate([curve.size for curve in parts])
    system, where = parts[0].system, parts[0].where
    rates = f"link: {system.intra.bandwidth / 1e9:.4g}GB/s"
    if where.nodes[0] > 1 and system.network is not None:
        out = float(inter_bandwidth(system, where)[0]) / system.network.efficiency
        rates += f", node_bandwidth: {out / 1e9:.4g}GB/s"
    tools = sorted({"torch" if curve.overhead else "nccl-tests or profiler" for curve in parts})
    return [
        f"      - {{collective: {kind}, ranks: {group[0]}, nodes: {group[1]}, "
        f"latency: {shape.latency[0] * 1e6:.3g}us,",
        f"         bandwidth: {shape.bandwidth[0] / 1e9:.4g}GB/s, "
        f"ramp: {shape.ramp[0] * 1e6:.3g}us, {rates},",
        f"         least: {sizes.min() / 1024:.6g}KiB, most: {sizes.max() / MIB:.6g}MiB,",
        f'         source: "make fit-collectives: {len(sizes)} public points of '
        f'{", ".join(tools)}"}}',
    ]
