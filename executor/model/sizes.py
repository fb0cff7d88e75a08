"""What the executor asks of a model's description, whichever of the two kinds it is."""

from __future__ import annotations

from parsim.model.graph.record import Graph
from parsim.model.reader import Description


def layer_count(spec: Description) -> int:
    """Layers that stage cuts count."""
    return len(spec.layers) if isinstance(spec, Graph) else spec.num_layers


def has_experts(spec: Description) -> bool:
    """Whether any layer of a model has experts."""
    return not isinstance(spec, Graph) and spec.num_experts > 0


def answers(spec: Description) -> int:
    """Words or classes among which a model's loss chooses, padding not among them."""
    if isinstance(spec, Graph):
        return spec.shapes[spec.nodes[-1].inputs[0]][-1]
    return spec.vocab_size
