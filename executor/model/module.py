"""A model, or the part of it that a pipeline stage holds, as a torch module.

Built from the description (a TransformerSpec, a Graph) that the cost model prices. A parameter's
first values depend on its name, its shape and the seed alone, so any cut of a model starts from the
same weights.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor, nn

from executor.model.adapters import add_adapters
from executor.model.attention.rotary import Rotaries
from executor.model.blocks import Block, Embedding, Head
from executor.model.first_values import Values, fill_parameters, mixed, seeded
from executor.model.graph.modules import check_graph
from executor.model.graph.stage import GraphStage
from executor.model.mixture.experts import WHOLE, Mixture, Share
from executor.model.stage import Stage, layer_count
from parsim.errors import ModelError, PlanError
from parsim.model.graph.record import Graph
from parsim.model.reader import Description
from parsim.model.transformer import TransformerSpec, build_transformer, check_spec
from parsim.plan import Recompute
from parsim.plan.rules.executor.runnable import unbuildable


class TransformerStage(Stage):
    """Optional embedding, layers by their number in the whole model, optional head.

    Parameter names are therefore those of the whole model, whatever the stage holds.
    """

    def __init__(
        self,
        spec: TransformerSpec,
        *,
        layers: range,
        embedding: bool,
        head: bool,
        recompute: Recompute,
        share: Share,
    ) -> None:
        super().__init__()
        self.spec = spec
        self.tied = spec.tied_embeddings and spec.head != "none"
        rotary = Rotaries(spec)
        self.embedding = Embedding(spec) if embedding else None
        self.layers = nn.ModuleDict(
            {
                str(i): Block(
                    spec,
                    rotary=rotary.of_layer(i),
                    recompute=recompute,
                    share=share if spec.has_experts(i) else None,
                    window=spec.window if spec.has_window(i) else None,
                )
                for i in layers
            }
        )
        self.head = Head(spec) if head else None
        self.gives_logits = head
        self.tie()

    def forward(self, x: Tensor) -> Tensor:
        """Map token ids (b, s), or hidden states (b, s, h) from the stage before, to the output."""
        if self.embedding is not None:
            x = self.embedding(x)
        for layer in self.layers.values():
            x = layer(x)
        return x if self.head is None else self.head(x)

    def tie(self) -> None:
        """Let the output projection use the token table, where both are here and tied.

        To be called again after anything that replaced the parameters (sharding, `to_empty`).
        """
        ends = self._ends()
        if self.tied and len(ends) == 2:
            ends[1].weight = ends[0].weight

    def tied_parameters(self) -> tuple[nn.Parameter, ...]:
        """Return the table whose other copy is on another stage; their gradients must be summed.

        Empty where nothing is tied, where both ends share one table, between the ends, and where
        the table is frozen.
        """
        ends = self._ends()
        twice = self.tied and len(ends) == 1
        return (ends[0].weight,) if twice and ends[0].weight.requires_grad else ()

    def _ends(self) -> list[nn.Module]:
        tables = [] if self.embedding is None else [self.embedding.token]
        return tables if self.head is None else [*tables, self.head.logits]

    def mixtures(self) -> dict[str, Mixture]:
        """The layers' mixtures of experts by their path."""
        return {
            f"layers.{name}.mlp": layer.mlp
            for name, layer in self.layers.items()
            if isinstance(layer.mlp, Mixture)
        }


def build_stage(  # noqa: PLR0913 - the cut, the place and the numbers of a stage
    spec: Description,
    *,
    first_layer: int,
    num_layers: int,
    embedding: bool,
    head: bool,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    recompute: Recompute = Recompute.NONE,
    seed: int = 0,
    share: Share = WHOLE,
    values: Values | None = None,
    only: Collection[str] | None = None,
) -> Stage:
    """Build the stage that holds `num_layers` layers from `first_layer` on, with first weights.

    Of each layer's experts it has a `share`, of a graph's nodes `only` those named. `values` gives
    other first weights than `seeded`. On the meta device there are no weights. Leaves the global
    random generators alone.

    Raises:
        ModelError: the spec contradicts itself.
        PlanError: the model has not that many layers.
    """
    check_buildable(spec)
    layers = range(first_layer, first_layer + num_layers)
    _check_layers(spec, layers)
    stage: Stage
    with torch.device("meta"):
        if isinstance(spec, Graph):
            stage = GraphStage(spec, layers, recompute, only)
        else:
            stage = TransformerStage(
                spec,
                layers=layers,
                embedding=embedding,
                head=head,
                recompute=recompute,
                share=share,
            )
            if spec.lora_rank:
                add_adapters(stage, spec)
    _allocate(stage, torch.device(device), dtype)
    if torch.device(device).type != "meta":
        fill_parameters(stage, values or seeded(seed, spec=spec))
    return stage


def _check_layers(spec: Description, layers: range) -> None:
    """Refuse layers that the model does not have."""
    count = layer_count(spec)
    if layers.start < 0 or layers.stop < layers.start or layers.stop > count:
        raise PlanError(
            f"a stage of layers {layers.start}..{layers.stop - 1} is not in {spec.name}, "
            f"whose layers are 0..{count - 1}"
        )


def build_model(
    spec: Description,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    recompute: Recompute = Recompute.NONE,
    seed: int = 0,
    values: Values | None = None,
    only: Collection[str] | None = None,
) -> Stage:
    """Build the whole model as one stage; see `build_stage`."""
    return build_stage(
        spec,
        first_layer=0,
        num_layers=layer_count(spec),
        embedding=True,
        head=True,
        device=device,
        dtype=dtype,
        recompute=recompute,
        seed=seed,
        values=values,
        only=only,
    )


def _allocate(stage: Stage, device: torch.device, dtype: torch.dtype) -> None:
    # not .to() and .to_empty(): they cannot turn a meta parameter into a fake one
    for module in stage.modules():
        for name, old in tuple(module.named_parameters(recurse=False)):
            values = torch.empty(old.shape, device=device, dtype=dtype)
            module.register_parameter(name, nn.Parameter(values, requires_grad=old.requires_grad))
    stage.tie()


def seed_dropout(seed: int, *position: int) -> None:
    """Seed the generators that dropout draws from, from the seed and a place in the plan.

    Give the data-parallel replica and the pipeline rank. Tensor-parallel ranks must draw the same
    masks where they repeat the same tokens, so their number does not belong in `position`.
    """
    torch.manual_seed(mixed(seed, "dropout", *position))


def check_buildable(spec: Description) -> None:
    """Refuse models with parts that the executor does not build: only the simulator has them.

    Raises:
        ModelError: naming the part.
    """
    if isinstance(spec, Graph):
        check_graph(spec)
        return
    check_spec(spec)
    message = unbuildable(build_transformer(spec))
    if message is not None:
        raise ModelError(message)
    _check_mixture(spec)
    if spec.predicted_tokens:
        raise ModelError(
            f"predicted_tokens={spec.predicted_tokens} beyond the next can be simulated but not "
            f"run yet; use predicted_tokens=0"
        )
    if spec.kv_lora_rank and spec.rope_scaling == "yarn":
        raise ModelError(
            "rope_scaling=yarn with latent attention, which scales its scores too, can be "
            "simulated but not run yet; use rope_scaling none"
        )


def _check_mixture(spec: TransformerSpec) -> None:
    """Refuse routers and experts that are not as the executor's."""
    if spec.num_experts and spec.activation_kind != ("silu" if spec.gated_mlp else "gelu_tanh"):
        raise ModelError(
            f"activation={spec.activation} with experts can be simulated but not run yet; use "
            f"activation=usual"
        )
    if spec.router_scoring == "sigmoid" and spec.router_aux_loss_coef:
        raise ModelError(
            f"router_aux_loss_coef={spec.router_aux_loss_coef} balances shares among all experts, "
            f"which router_scoring=sigmoid has none of; use router_aux_loss_coef=0"
        )
