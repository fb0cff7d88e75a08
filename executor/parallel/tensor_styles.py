"""What a module becomes on tensor ranks: which rows of its weights it has, what it exchanges.

Torch's own styles serve where they fit; these are for the rest. `tensor.py` says which module of a
stage gets which.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Placement,
    Replicate,
    Shard,
    distribute_tensor,
)
from torch.distributed.tensor import parallel as tp
from torch.nn import functional as F

from executor.model.adapters import Adapted
from executor.model.factors import copied_part


class Style(tp.ParallelStyle):  # type: ignore[misc]  # torch has no types here
    """A function that changes a module in place, in the form that torch wants."""

    def __init__(self, change: Callable[[nn.Module, DeviceMesh], None]) -> None:
        super().__init__()
        self._change = change

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        self._change(module, device_mesh)
        return module


def _distribute(module: nn.Module, mesh: DeviceMesh, *placements: Placement) -> None:
    for name, parameter in tuple(module.named_parameters(recurse=False)):
        values = distribute_tensor(parameter.detach(), mesh, placements)
        module.register_parameter(name, nn.Parameter(values, parameter.requires_grad))


def output_rows(module: nn.Module, mesh: DeviceMesh) -> None:
    """A linear map split by outputs, applied by `SplitColumns`: rows of weight and bias."""
    _distribute(module, mesh, Shard(0))


def copied_rows(ranks: DeviceMesh, module: nn.Module, _mesh: DeviceMesh) -> None:
    """A linear map split by outputs over heads, whose copies have the same rows (`copied_part`)."""
    _distribute(module, ranks, Shard(0), Replicate())


def input_columns(between: Placement, module: nn.Linear, mesh: DeviceMesh) -> None:
    """A linear map split by inputs, whose sum over ranks is exchanged, alone or beside an adapter.

    Torch's own style takes what is inside such a map for parts of it. A bias has no gradient here.
    """
    for name, parameter in tuple(module.named_parameters(recurse=False)):
        where = Shard(1) if name == "weight" else Replicate()
        values = distribute_tensor(parameter.detach(), mesh, (where,))
        module.register_parameter(name, nn.Parameter(values, parameter.requires_grad))

    def apply(x: Tensor) -> Tensor:
        part = F.linear(x, module.weight.to_local())
        total = DTensor.from_local(part, mesh, (Partial(),), run_check=False)
        summed = total.redistribute(placements=(between,)).to_local()
        return summed if module.bias is None else summed + module.bias.to_local()

    setattr(module, "frozen" if isinstance(module, Adapted) else "forward", apply)


def repeated(module: nn.Module, mesh: DeviceMesh) -> None:
    """Parameters that each rank has whole, for its own tokens or heads; gradients are summed."""
    _distribute(module, mesh, Replicate())
    module.repeated = copied_part


def local_tokens_linear(module: nn.Module, mesh: DeviceMesh) -> None:
    """A linear map that a rank has whole and applies to its tokens; gradients are summed.

    Torch 2.11 refuses it on a DTensor (b, s, h) split along s, which it would have to flatten.
    """
    _distribute(module, mesh, Replicate())

    def local(parameter: Any) -> Tensor:  # noqa: ANN401
        whole = parameter.redistribute(placements=(Replicate(),))
        return whole.to_local(grad_placements=(Partial(),))

    def apply(tokens: Tensor) -> Tensor:
        bias = None if module.bias is None else local(module.bias)
        return F.linear(tokens, local(module.weight), bias)

    module.forward = apply


def vocabulary_rows(between: Placement, module: nn.Module, mesh: DeviceMesh) -> None:
    """A token table split by rows: each rank looks up the tokens it has, the rest are zeros.

    Torch's own style gives every rank a gradient of the whole table, which is tp times the memory.
    """
    _distribute(module, mesh, Shard(0))
    first = mesh.get_local_rank() * module.weight.to_local().shape[0]

    def lookup(tokens: Tensor) -> Tensor:
        table = module.weight.to_local()
        local = tokens - first
        elsewhere = (local < 0) | (local >= table.shape[0])
        rows = F.embedding(local.masked_fill(elsewhere, 0), table)
        part = rows.masked_fill(elsewhere.unsqueeze(-1), 0.0)
        total = DTensor.from_local(part, mesh, (Partial(),), run_check=False)
        return total.redistribute(placements=(between,)).to_local()

    module.forward = lookup


def local_tokens(module: nn.Module, mesh: DeviceMesh) -> None:
    """Passes on the position rows (s, h) of a rank's tokens; gradients are gathered."""

    def rows_here(_module: nn.Module, _inputs: Any, rows: Tensor) -> Tensor:  # noqa: ANN401
        whole = DTensor.from_local(rows, mesh, (Replicate(),), run_check=False)
        return whole.redistribute(placements=(Shard(0),)).to_local()

    module.register_forward_hook(rows_here)


def all_tokens(module: nn.Module, mesh: DeviceMesh) -> None:
    """A row (1, h) added to all tokens: its gradient is summed over the ranks' tokens."""

    def shared(_module: nn.Module, _inputs: Any, row: Tensor) -> Tensor:  # noqa: ANN401
        whole = DTensor.from_local(row, mesh, (Replicate(),), run_check=False)
        return whole.to_local(grad_placements=(Partial(),))

    module.register_forward_hook(shared)
