"""Which layouts on a mesh a plan may have, and the error that says why not."""

from __future__ import annotations

from collections.abc import Iterator

from parsim.cluster.hardware import Cluster
from parsim.errors import PlanError
from parsim.model.model import Model
from parsim.plan.layout_axes import MOST_AXES, axes_words, in_axes, mesh_mistakes
from parsim.plan.names import Recompute
from parsim.plan.record import Plan
from parsim.plan.strategies import Layout


def layout_rules(plan: Plan, strategy: Layout, model: Model, cluster: Cluster) -> Iterator[str]:
    """What is wrong with a layout: mesh, model, switches of the plan, then what is stated."""
    if model.graph is None:
        yield _of_axes(plan, model)
        return
    yield from mesh_mistakes(plan, strategy)
    if cluster.groups:
        yield f"name={strategy.name} needs nodes of one kind; use cluster.system"
    if plan.recompute is not Recompute.NONE or plan.recompute_modules:
        yield f"name={strategy.name} keeps what its operations make; use recompute=none"
    if plan.sync_batch_norm:
        yield (
            f"name={strategy.name} always normalises over the samples of all devices, as one "
            f"device would; use sync_batch_norm=false"
        )
    if model.graph.further_inputs:
        others = ", ".join(model.graph.further_inputs)
        yield f"name={strategy.name} lays out graphs of one input; {model.name} also takes {others}"
        return
    yield from _stated(plan, strategy, model)


def _of_axes(plan: Plan, model: Model) -> str:
    """The axes that say what a layout of a transformer does, or why none do."""
    try:
        words = axes_words(in_axes(plan, model))
    except PlanError as reason:
        return str(reason).removeprefix("strategy.")
    return f"layout of {model.name} is the plan {words}; take that, as `in_axes` makes it"


def _stated(plan: Plan, strategy: Layout, model: Model) -> Iterator[str]:
    """What a user says of dimensions or operations that cannot be."""
    if model.graph is None or plan.dp % strategy.sharers or len(strategy.mesh) > MOST_AXES:
        return
    if strategy.names is None and not strategy.stated:
        return
    from parsim.layout.candidates import Options  # of graphs alone
    from parsim.layout.mesh import Mesh
    from parsim.layout.names import options_of

    mesh = Mesh(strategy.mesh).repeated(plan.dp // strategy.sharers)
    try:
        options_of(Options(model.graph, mesh), strategy.names, strategy.stated)
    except PlanError as reason:
        yield str(reason)
