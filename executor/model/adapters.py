"""LoRA: trained low-rank maps beside a transformer's frozen linear ones.

    y = W x + (alpha / r) B A x       A (r, inputs), B (outputs, r), W frozen

Maps of one input that parsim counts as one product (queries, keys and values; gate and what it
gates) share an A, as Megatron-Bridge's do. Each has a B of its own, which tensor ranks split as
they split the map: one matrix of all Bs would be joined again in each forward, and kept till its
backward. `executor.parallel.tensor` says what a rank has of them.

Source: Hu et al. 2021 (arXiv:2106.09685), section 4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from executor.model.attention.self_attention import Attention, Columns, apart, itself
from executor.model.blocks import Mlp
from executor.model.factors import copied_part
from parsim.model.adapters import EMBEDDING, HEAD, TARGETS
from parsim.model.transformer import TransformerSpec

SCALE = 2.0
"""alpha / r: NeMo's and Megatron-Bridge's recipes have alpha 32 with rank 16."""

MODULES = {EMBEDDING: "embedding.token", HEAD: "head.logits"}
"""Where a stage has what a spec's `modules_to_save` name."""

NAMES = ("adapter", "columns")
"""What adapters are called in the module of a product, and in one whose maps share an input."""


class Adapter(nn.Module):  # type: ignore[misc]
    """The low-rank map (alpha / r) B A."""

    def __init__(self, inputs: int, outputs: int, rank: int) -> None:
        super().__init__()
        self.a = nn.Linear(inputs, rank, bias=False)
        self.b = nn.Linear(rank, outputs, bias=False)

    def low_rank(self, x: Tensor) -> Tensor:
        """Map (b, s, inputs) to (b, s, outputs)."""
        return self.b(self.a(x)) * SCALE


class AdaptedColumns(nn.Module):  # type: ignore[misc]
    """Applies linear maps that share their input and the first factor of their adapters.

    `apart` applies plain maps of one input, `everywhere` gives all ranks what they need of the r
    values of each token; tensor parallelism puts its own in place of both.
    """

    def __init__(self, inputs: int, outputs: Mapping[str, int], rank: int) -> None:
        super().__init__()
        self.a = nn.Linear(inputs, rank, bias=False)
        self.b = nn.ModuleDict(
            {name: nn.Linear(rank, width, bias=False) for name, width in outputs.items()}
        )
        self.apart: Columns = apart
        self.everywhere: Callable[[Tensor], Tensor] = itself

    def forward(self, x: Tensor, linears: Sequence[nn.Linear]) -> tuple[Tensor, ...]:
        """Each linear map of the same input, in the order of the second factors."""
        outputs, low = self.apart(x, linears), self.everywhere(self.a(x))
        added = (F.linear(low, copied_part(b.weight)) * SCALE for b in self.b.values())
        return tuple(output + part for output, part in zip(outputs, added, strict=True))


class Adapted(nn.Linear):  # type: ignore[misc]
    """A linear map with an adapter of its own beside it."""

    def __init__(self, linear: nn.Linear, rank: int) -> None:
        super().__init__(linear.in_features, linear.out_features, bias=linear.bias is not None)
        self.adapter = Adapter(linear.in_features, linear.out_features, rank)

    def forward(self, x: Tensor) -> Tensor:
        """Map (b, s, inputs) to (b, s, outputs)."""
        return self.frozen(x) + self.adapter.low_rank(x)

    def frozen(self, x: Tensor) -> Tensor:
        """The map itself; tensor parallelism puts its own in place."""
        return super().forward(x)


def is_adapters(name: str) -> bool:
    """Whether a parameter is a factor of an adapter, by its name."""
    return not set(NAMES).isdisjoint(name.split("."))


def begins_as_zero(name: str) -> bool:
    """Whether a parameter is a second factor, by its name: training starts at the model."""
    words = name.split(".")
    return any(words[at] in NAMES and words[at + 1] == "b" for at in range(len(words) - 1))


def add_adapters(stage: nn.Module, spec: TransformerSpec) -> None:
    """Freeze all that a stage has, and put adapters beside the products that the spec names.

    The table of tokens and the head's matrix stay trained where the spec says so.
    """
    stage.requires_grad_(False)
    for path in spec.modules_to_save:
        _unfreeze(stage, MODULES[path])
    names = {TARGETS[target] for target in spec.lora_targets or TARGETS}
    for module in tuple(stage.modules()):
        if isinstance(module, Attention):
            _adapt(module, "qkv", "projection", names, spec.lora_rank)
        elif isinstance(module, Mlp):
            _adapt(module, "fc1", "fc2", names, spec.lora_rank)


def _unfreeze(stage: nn.Module, path: str) -> None:
    """Train a module of the stage's ends, if the stage has it."""
    end, name = path.split(".")
    module = getattr(stage, end)
    if module is not None:
        getattr(module, name).requires_grad_(True)


def _adapt(module: Attention | Mlp, first: str, last: str, names: set[str], rank: int) -> None:
    """Adapters of a module's first maps, which share their input, and of its last one."""
    if first in names:
        linears = _columns(module)
        outputs = {name: linear.out_features for name, linear in linears.items()}
        inputs = next(iter(linears.values())).in_features
        module.columns = AdaptedColumns(inputs, outputs, rank)
    if last in names:
        adapted = Adapted(getattr(module, last), rank)
        adapted.requires_grad_(False)
        adapted.adapter.requires_grad_(True)
        setattr(module, last, adapted)


def _columns(module: Attention | Mlp) -> dict[str, nn.Linear]:
    """A module's maps that share their input, by name, in the order in which it applies them."""
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
        return _added(module.adapter.a, module.adapter.b, whole)
    owner, _, mine = path.rpartition(".")
    columns = getattr(stage.get_submodule(owner), "columns", None)
    if not isinstance(columns, AdaptedColumns) or mine not in columns.b:
        return None
    return _added(columns.a, columns.b[mine], whole)


@torch.no_grad()  # type: ignore[untyped-decorator]
def _added(a: nn.Linear, b: nn.Linear, whole: Callable[[Tensor], Tensor]) -> Tensor:
    return SCALE * (whole(b.weight) @ whole(a.weight))
