"""LoRA: trained low-rank maps beside a transformer's frozen linear ones.

    y = W x + (alpha / r) B A x       A (r, inputs), B (outputs, r), W frozen

Maps of one input that parsim counts as one product (queries, keys and values; gate and what it
gates) share an A, as Megatron-Bridge's do.

Source: Hu et al. 2021 (arXiv:2106.09685), section 4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from executor.model.attention.self_attention import Attention
from executor.model.blocks import Mlp
from parsim.model.adapters import TARGETS
from parsim.model.transformer import TransformerSpec

SCALE = 2.0
"""alpha / r: NeMo's and Megatron-Bridge's recipes have alpha 32 with rank 16."""

NAMES = ("adapter", "columns")
"""What adapters are called in the module of a product, and in one whose maps share an input."""

SECOND = tuple(f"{name}.b.weight" for name in NAMES)
"""How names of second factors end, which begin as zero: training starts at the model."""


class Adapter(nn.Module):  # type: ignore[misc]
    """The low-rank map (alpha / r) B A."""

    def __init__(self, inputs: int, outputs: int, rank: int) -> None:
        super().__init__()
        self.a = nn.Linear(inputs, rank, bias=False)
        self.b = nn.Linear(rank, outputs, bias=False)

    def low_rank(self, x: Tensor) -> Tensor:
        """Map (b, s, inputs) to (b, s, outputs)."""
        return self.b(self.a(x)) * SCALE


class AdaptedColumns(Adapter):
    """Applies linear maps that share their input, each with its rows of one adapter."""

    def forward(self, x: Tensor, linears: Sequence[nn.Linear]) -> tuple[Tensor, ...]:
        """Each linear map of the same input."""
        added = self.low_rank(x).split([linear.out_features for linear in linears], dim=-1)
        return tuple(linear(x) + part for linear, part in zip(linears, added, strict=True))


class Adapted(nn.Linear):  # type: ignore[misc]
    """A linear map with an adapter of its own beside it."""

    def __init__(self, linear: nn.Linear, rank: int) -> None:
        super().__init__(linear.in_features, linear.out_features, bias=linear.bias is not None)
        self.adapter = Adapter(linear.in_features, linear.out_features, rank)

    def forward(self, x: Tensor) -> Tensor:
        """Map (b, s, inputs) to (b, s, outputs)."""
        return super().forward(x) + self.adapter.low_rank(x)


def is_adapters(name: str) -> bool:
    """Whether a parameter is a factor of an adapter, by its name."""
    return not set(NAMES).isdisjoint(name.split("."))


def add_adapters(stage: nn.Module, spec: TransformerSpec) -> None:
    """Freeze all that a stage has, and put adapters beside the products that the spec names."""
    stage.requires_grad_(False)
    names = {TARGETS[target] for target in spec.lora_targets or TARGETS}
    for module in tuple(stage.modules()):
        if isinstance(module, Attention):
            _adapt(module, "qkv", "projection", names, spec.lora_rank)
        elif isinstance(module, Mlp):
            _adapt(module, "fc1", "fc2", names, spec.lora_rank)


def _adapt(module: Attention | Mlp, first: str, last: str, names: set[str], rank: int) -> None:
    """Adapters of a module's first maps, which share their input, and of its last one."""
    if first in names:
        linears = tuple(_columns(module).values())
        outputs = sum(linear.out_features for linear in linears)
        module.columns = AdaptedColumns(linears[0].in_features, outputs, rank)
    if last in names:
        adapted = Adapted(getattr(module, last), rank)
        adapted.requires_grad_(False)
        adapted.adapter.requires_grad_(True)
        setattr(module, last, adapted)


def _columns(module: Attention | Mlp) -> dict[str, nn.Linear]:
    """A module's maps that share their input, by name, in the order of their adapter's rows."""
    names = ("q", "k", "v") if isinstance(module, Attention) else ("fc1", "gate")
    linears = {name: getattr(module, name) for name in names}
    return {name: linear for name, linear in linears.items() if linear is not None}


def merged_with(stage: nn.Module, name: str, whole: Callable[[Tensor], Tensor]) -> Tensor | None:
    """What adapters add to a frozen weight, or None; `whole` puts a parameter's parts together.

    All ranks that hold parts take part.
    """
    path, _, last = name.rpartition(".")
    if last != "weight" or not path:
        return None
    module = stage.get_submodule(path)
    if isinstance(module, Adapted):
        return _added(module.adapter, whole)
    owner, _, mine = path.rpartition(".")
    parent = stage.get_submodule(owner)
    if not isinstance(parent, Attention | Mlp) or not isinstance(parent.columns, AdaptedColumns):
        return None
    linears = _columns(parent)
    if mine not in linears:
        return None
    sizes = [linear.out_features for linear in linears.values()]
    parts = _added(parent.columns, whole).split(sizes)
    return dict(zip(linears, parts, strict=True))[mine]


@torch.no_grad()  # type: ignore[untyped-decorator]
def _added(adapter: Adapter, whole: Callable[[Tensor], Tensor]) -> Tensor:
    return SCALE * (whole(adapter.b.weight) @ whole(adapter.a.weight))
