"""Which layouts on a mesh a plan may have, and the error that says why not."""

from __future__ import annotations

from collections.abc import Iterator

from parsim.cluster.hardware import Cluster
from parsim.errors import PlanError, shown
from parsim.layout.candidates import Options
from parsim.layout.mesh import REPLICAS, Mesh
from parsim.layout.stated import options_of
from parsim.model.model import Model
from parsim.plan.activations import Recompute
from parsim.plan.record import Plan
from parsim.plan.strategies import Layout

MOST_AXES = 3
"""Axes of a mesh: the signatures of an operation are as many as those of an axis to this power."""


def layout_rules(plan: Plan, strategy: Layout, model: Model, cluster: Cluster) -> Iterator[str]:
    """What is wrong with a layout: mesh, model, switches of the plan, then what is stated."""
    yield from _mesh(plan, strategy)
    if model.graph is None:
        yield (
            f"name={strategy.name} lays out the operations of a graph (networks of the catalog, "
            f"model files), and {model.name} is layers of a transformer, whose plans have axes; "
            f"use dp for batch, tp for heads, ffn and vocab together, cp for sequence, ep for "
            f"experts"
        )
        return
    if cluster.groups:
        yield f"name={strategy.name} needs nodes of one kind; use cluster.system"
    if plan.recompute is not Recompute.NONE or plan.recompute_modules:
        yield f"name={strategy.name} keeps what its operations make; use recompute=none"
    if plan.sync_batch_norm:
        yield (
            f"name={strategy.name} always normalises over the samples of all devices, as one "
            f"device would; use sync_batch_norm=false"
        )
    yield from _stated(plan, strategy, model)


def _mesh(plan: Plan, strategy: Layout) -> Iterator[str]:
    if len(strategy.mesh) > MOST_AXES:
        yield f"mesh has {len(strategy.mesh)} axes; use at most {MOST_AXES}"
    for name, size in strategy.mesh:
        if name == REPLICAS:
            yield f"mesh: '{REPLICAS}' is the axis of copies of the mesh; use another name"
        if size < 2:
            yield f"mesh.{shown(name)}={size} splits nothing; use at least 2, or leave it out"
    if plan.dp % strategy.sharers:
        yield (
            f"mesh has {strategy.sharers} devices, which do not divide dp={plan.dp} workers; use a "
            f"mesh whose sizes multiply to a divisor of it"
        )
    if strategy.layout is not None and strategy.signatures is not None:
        yield "layout and signatures both state the layout; leave one of them out"


def _stated(plan: Plan, strategy: Layout, model: Model) -> Iterator[str]:
    """What a user says of dimensions or operations that cannot be."""
    if model.graph is None or plan.dp % strategy.sharers or len(strategy.mesh) > MOST_AXES:
        return
    if strategy.names is None and not strategy.stated:
        return
    mesh = Mesh(strategy.mesh).repeated(plan.dp // strategy.sharers)
    try:
        options_of(Options(model.graph, mesh), strategy.names, strategy.stated)
    except PlanError as reason:
        yield str(reason)
