"""What a graph, or a pipeline cut of it, must be to run here."""

from __future__ import annotations

from itertools import accumulate, pairwise

from executor.model.graph.modules import MODULES
from executor.model.graph.tokens import crosses
from parsim.errors import ModelError, PlanError
from parsim.model.graph.operations import NAMES
from parsim.model.graph.record import INPUT, Graph


def check_graph(graph: Graph) -> None:
    """Refuse operations that have no module.

    Raises:
        ModelError: naming the node and its operation.
    """
    for node in graph.nodes:
        if type(node.operation) not in MODULES:
            kind = NAMES[type(node.operation)]
            raise ModelError(
                f"{graph.name}: node '{node.name}' is {kind}, which can be simulated but not run: "
                f"only its time is known; describe it by its operations"
            )


def check_cut(graph: Graph, cut: tuple[int, ...]) -> None:
    """Refuse a pipeline cut that several tensors cross, or one between users of a table.

    Raises:
        PlanError: naming the layer and the tensors, or the nodes.
    """
    ends = [0, *accumulate(cut)]
    apart = crosses(graph, (range(first, end) for first, end in pairwise(ends)))
    if apart is not None:
        raise PlanError(
            f"stage_layers={list(cut)}: nodes '{apart[0]}' and '{apart[1]}' of {graph.name} share "
            f"a table, but would be in different stages; use pp=1"
        )
    end = 0
    for size in cut[:-1]:
        end += size
        names = graph.crossing()[end - 1] if end else (INPUT,)
        if len(names) != 1:
            raise PlanError(
                f"stage_layers={list(cut)}: {len(names)} tensors ({', '.join(names)}) cross the "
                f"cut behind layer {end - 1} of {graph.name}, but a stage hands on one; cut "
                f"elsewhere"
            )
