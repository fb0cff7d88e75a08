"""What the executor asks of a model and of its stages, whatever family the model is of."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from executor.model.mixture.experts import Mixture
from parsim.model.graph.losses import classes
from parsim.model.graph.record import Graph
from parsim.model.graph.texts import Embedding
from parsim.model.reader import Description
from parsim.plan import Recompute


class Stage(nn.Module):  # type: ignore[misc]
    """Layers by their number in the whole model, so that parameter names are the whole model's.

    `gives_logits` is False on stages that hand hidden states on.
    """

    layers: nn.ModuleDict
    gives_logits = False
    tied = False

    def tie(self) -> None:
        """Let both ends of a tied table share it, where both are here; most models have none."""

    def tied_parameters(self) -> tuple[nn.Parameter, ...]:
        """The table whose other copy is on another stage; their gradients must be summed."""
        return ()

    def mixtures(self) -> dict[str, Mixture]:
        """The layers' mixtures of experts by their path."""
        return {}


def recompute_first(layers: Iterable[nn.Module], first: int, others: Recompute) -> None:
    """Let the first layers be computed again as a whole, and the others as `others` says."""
    for number, layer in enumerate(layers):
        layer.recompute_as(Recompute.FULL if number < first else others)


def average_balance(stage: Stage, passes: float) -> None:
    """Balance a stage's experts by the mean over so many passes, as its loss is taken."""
    for mixture in stage.mixtures().values():
        mixture.balance.passes = passes


def layer_count(spec: Description) -> int:
    """Layers that stage cuts count."""
    return len(spec.layers) if isinstance(spec, Graph) else spec.num_layers


def has_experts(spec: Description) -> bool:
    """Whether any layer of a model has experts."""
    return not isinstance(spec, Graph) and spec.num_experts > 0


def answers(spec: Description) -> int:
    """Words or classes among which a model's loss chooses, padding not among them."""
    if isinstance(spec, Graph):
        return max(classes(spec))
    return spec.vocab_size


def reads_text(spec: Description) -> bool:
    """Whether a model takes token ids, not images."""
    return not isinstance(spec, Graph) or bool(_tables(spec))


def words(spec: Description) -> int:
    """Tokens that a model which reads text knows, on both of its sides."""
    if not isinstance(spec, Graph):
        return spec.vocab_size
    return min(answers(spec), *(table.num_embeddings for table in _tables(spec)))


def text_length(spec: Description) -> int:
    """Tokens of a sample."""
    return spec.input_shape[0] if isinstance(spec, Graph) else spec.seq_len


def hides_words(spec: Description) -> bool:
    """Whether a model learns by words that are hidden from it, not by the next word of each."""
    return not isinstance(spec, Graph) and not spec.causal


def _tables(graph: Graph) -> list[Embedding]:
    return [node.operation for node in graph.nodes if isinstance(node.operation, Embedding)]
