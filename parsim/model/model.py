"""A model: layers in order, those that stage cuts count between those that stand at the ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from parsim.errors import ModelError
from parsim.model.graph.record import Graph
from parsim.model.layer import Layer
from parsim.model.operators import Attention, Experts, Lookup, Loss
from parsim.model.paths import Branching


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Layers in order, and what is needed to count them.

    Stage cuts count the `blocks`; outer layers stand `before` them (an embedding) or `behind` (a
    head) and belong to the first and the last stage. Equal layers are the same object; `kinds` are
    the distinct blocks in order of first appearance, each of which the cost model prices once.
    `tokens` are those of a sample, in which throughput is given. `tied_embeddings` means the last
    layer reuses the first one's table, so that with more than one stage both ends hold a copy and
    all-reduce its gradient. `branching` is what of a model that was built from a graph may run at
    the same time, `graph` what it was built from; both None of one whose layers follow one another.
    `trained` are the same layers with their trained operators alone; None: all are trained.
    """

    name: str
    layers: tuple[Layer, ...] = field(hash=False)
    tokens: int
    tied_embeddings: bool = False
    branching: Branching | None = field(default=None, repr=False, compare=False)
    graph: Graph | None = field(default=None, repr=False, compare=False)
    trained: Model | None = field(default=None, repr=False, compare=False)
    before: tuple[Layer, ...] = field(init=False, repr=False, compare=False)
    blocks: tuple[Layer, ...] = field(init=False, repr=False, compare=False)
    behind: tuple[Layer, ...] = field(init=False, repr=False, compare=False)
    kinds: tuple[Layer, ...] = field(init=False, repr=False, compare=False)

    def __repr__(self) -> str:
        size = f"{self.parameters:,} parameters, {self.num_layers} layers"
        return f"<Model {self.name}: {size}, {self.tokens} tokens>"

    def __post_init__(self) -> None:
        inner = [i for i, layer in enumerate(self.layers) if not layer.outer]
        if not inner or inner != list(range(inner[0], inner[-1] + 1)):
            raise ModelError(
                f"model {self.name} needs layers that are not outer, with outer ones (embedding, "
                f"head) only before or behind them"
            )
        first, end = inner[0], inner[-1] + 1
        blocks = self.layers[first:end]
        object.__setattr__(self, "before", self.layers[:first])
        object.__setattr__(self, "blocks", blocks)
        object.__setattr__(self, "behind", self.layers[end:])
        distinct = {id(layer): layer for layer in blocks}
        object.__setattr__(self, "kinds", tuple(distinct.values()))

    @property
    def kind_counts(self) -> tuple[int, ...]:
        """How many layers of the chain there are of each of `kinds`."""
        return tuple(sum(block is kind for block in self.blocks) for kind in self.kinds)

    @property
    def updated(self) -> Model:
        """The part of the model whose parameters have gradients; itself if all have."""
        return self.trained or self

    @property
    def speed_unit(self) -> str:
        """What throughput counts: tokens, or the samples of a model that takes no tokens."""
        return "samples/s" if self.tokens == 1 else "tokens/s"

    @property
    def num_layers(self) -> int:
        """Number of blocks."""
        return len(self.blocks)

    @property
    def ends(self) -> tuple[Layer, ...]:
        """All outer layers."""
        return (*self.before, *self.behind)

    @property
    def lookup(self) -> Lookup | None:
        """The first layer's table of tokens, if the model begins with one."""
        return next((op for op in self.layers[0].operators if isinstance(op, Lookup)), None)

    @property
    def losses(self) -> tuple[Loss, ...]:
        """The last layer's losses over a vocabulary: one, or one a task, if it ends with any."""
        return tuple(op for op in self.layers[-1].operators if isinstance(op, Loss))

    @property
    def loss(self) -> Loss | None:
        """The first of the losses, if there is any."""
        return next(iter(self.losses), None)

    @property
    def border(self) -> int:
        """Values of a sample at the widest border between blocks."""
        return max(layer.inputs for layer in self.kinds)

    @property
    def parameters(self) -> int:
        """All parameters, the tied table counted once."""
        return self._total(lambda layer: layer.parameters)

    @property
    def parameter_tensors(self) -> int:
        """How many tensors the parameters are; experts of a layer count as one."""
        return sum(layer.parameter_tensors for layer in self.layers)

    @property
    def experts(self) -> Experts | None:
        """The first layer's experts, of the layers that have any."""
        return next((layer.experts for layer in self.kinds if layer.experts is not None), None)

    @property
    def active_parameters(self) -> int:
        """Parameters that one token meets: of the experts only those that the router picks."""
        idle = sum(
            (op.count - op.top_k) * op.one_expert
            for op in (layer.experts for layer in self.layers)
            if op is not None
        )
        return self.parameters - idle

    @property
    def attention(self) -> Attention | None:
        """The first attention operator, whose heads tensor parallelism must divide."""
        for layer in self.kinds:
            for op in layer.operators:
                if isinstance(op, Attention):
                    return op
        return None

    def with_heads_gathered(self, gathered: bool) -> Model:
        """The model with its shared heads gathered or copied; itself if it is so already."""
        kinds = {id(layer): layer.with_heads_gathered(gathered) for layer in self.layers}
        layers = tuple(kinds[id(layer)] for layer in self.layers)
        same = all(new is old for new, old in zip(layers, self.layers, strict=True))
        if same:
            return self
        trained = self.trained and self.trained.with_heads_gathered(gathered)
        return replace(self, layers=layers, trained=trained)

    def forward_flops(self, batch: int) -> int:
        """Model FLOPs of a forward pass over `batch` samples."""
        return self._total(lambda layer: layer.forward_flops(batch))

    def step_flops(self, batch: int) -> int:
        """Model FLOPs of a training step: backward is twice forward, recomputation not counted.

        Of frozen weights it is once forward: they have no gradient.
        Equals 72 B L s h^2 (1 + s/(6h) + V/(12 h L)) for a GPT (Korthikanti et al. 2022).
        """
        return self._total(lambda layer: layer.step_flops(batch))

    def _total(self, of: Callable[[Layer], int]) -> int:
        """The sum of something over all layers; layers that stand in several places asked once."""
        layers = {id(layer): layer for layer in self.layers}
        places = Counter(map(id, self.layers))
        return sum(count * of(layers[each]) for each, count in places.items())
