"""Tensor parallelism: which weights of a stage are split, and where activations are exchanged.

    norm -> [gather] -> q k v fc1 gate (columns) -> projection fc2 (rows) -> [sum] -> residual

One exchange enters and one leaves attention, likewise the MLP. Without sequence parallelism only
the sums are there (all-reduce forward behind rows, backward before columns). With it a rank holds
1/tp of the tokens between the borders, [gather] is an all-gather and [sum] a reduce-scatter.
The vocabulary is split over ranks, in the token table and in the output projection, and the logits
stay so: the loss is taken of each rank's part (executor/model/loss.py). Key-value heads that are
fewer than the ranks are copied, each to the ranks that have its query heads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch.distributed as dist
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

from executor.devices.mesh import ranks_of_heads
from executor.model.attention.latent import LatentAttention
from executor.model.factors import copied_part
from executor.model.loss import LossFn, cross_entropy
from executor.model.module import TransformerStage
from executor.model.stage import answers
from executor.parallel.columns import SplitColumns
from executor.parallel.refused import check_splits
from parsim.model.reader import Description
from parsim.model.transformer import TransformerSpec
from parsim.plan import Plan

TOKENS = 1
"""Dim of the tokens in hidden states (b, s, h): what sequence parallelism splits."""


def apply_tensor_parallel(
    stage: TransformerStage, mesh: DeviceMesh, *, sequence_parallel: bool
) -> None:
    """Split a stage's weights over the 1-D mesh of its tensor ranks, in place.

    What passes between stages is a plain tensor: (b, s, h), or (b, s / tp, h) with sequence
    parallelism. What comes out of the head are the logits (b, s, V / tp) of this rank's part of
    the vocabulary: give them to `training_loss`. With sequence parallelism and dropout the ranks
    hold different tokens and heads, so each must seed its own masks.

    Raises:
        PlanError: tp does not divide heads, widths, or the tokens of a sequence.
    """
    if mesh.size() == 1:
        return
    check_splits(stage.spec, mesh.size(), sequence_parallel=sequence_parallel)
    keys = _key_ranks(stage.spec, mesh)
    between: Placement = Shard(TOKENS) if sequence_parallel else Replicate()
    styles: dict[str, Any] = {}
    for name in stage.layers:
        styles.update(_block_styles(stage, f"layers.{name}", between))
        styles.update(_key_styles(f"layers.{name}.attention", keys))
    if stage.embedding is not None:
        styles.update(_embedding_styles(stage.embedding, between))
    if stage.head is not None:
        styles.update(_head_styles(stage.head, between))
    tp.parallelize_module(stage, mesh, styles)
    split = SplitColumns(group=mesh.get_group(), sequence=sequence_parallel)
    for module in stage.modules():
        if hasattr(module, "columns"):
            module.columns = split
        if isinstance(module, LatentAttention):
            module.everywhere = split.everywhere
    stage.tie()


def training_loss(
    spec: Description,
    plan: Plan,
    mesh: DeviceMesh,
    context: dist.ProcessGroup | None = None,
) -> LossFn:
    """The loss of what a plan's last stage gives: whole logits, or this rank's part of them.

    `context` are the ranks that hold other tokens of its sequences, if unequally many may count.
    """
    tensor = mesh["tp"].get_group() if plan.tp > 1 else None
    return partial(cross_entropy, group=tensor, context=context, words=answers(spec))


def _key_ranks(spec: TransformerSpec, mesh: DeviceMesh) -> DeviceMesh | None:
    """The ranks as (heads, copies) where key-value heads are fewer than ranks; on all at once."""
    heads = spec.num_key_value_heads
    return ranks_of_heads(mesh, heads) if heads < mesh.size() and not spec.kv_lora_rank else None


def _key_styles(path: str, ranks: DeviceMesh | None) -> dict[str, Any]:
    """Projections to keys and values whose heads are copied."""
    if ranks is None:
        return {}
    return {f"{path}.{name}": _Style(partial(_copied_rows, ranks)) for name in ("k", "v")}


def _block_styles(stage: TransformerStage, path: str, between: Placement) -> dict[str, Any]:
    mixture = stage.mixtures().get(f"{path}.mlp")
    latent, rows = bool(stage.spec.kv_lora_rank), ["attention.projection"]
    columns = [f"attention.{name}" for name in (("q_up", "kv_up") if latent else ("q", "k", "v"))]
    styles: dict[str, Any] = _latent_styles(stage.spec, f"{path}.attention", between)
    if mixture is None or mixture.shared is not None:
        mlp = "mlp" if mixture is None else "mlp.shared"
        columns += [f"{mlp}.{name}" for name in ("fc1", "gate")[: 1 + stage.spec.gated_mlp]]
        rows += [f"{mlp}.fc2"]
    if mixture is not None:
        styles[f"{path}.mlp.router"] = _Style(_repeated)
    if stage.spec.qk_norm:
        styles |= {f"{path}.attention.{name}": _Style(_repeated) for name in ("q_norm", "k_norm")}
    styles |= {f"{path}.{name}": _Style(_output_rows) for name in columns}
    styles |= {f"{path}.{name}": tp.RowwiseParallel(output_layouts=between) for name in rows}
    after = ("attention_out_norm", "mlp_out_norm") if stage.spec.norms_after else ()
    styles.update(_norm_styles(path, ("attention_norm", "mlp_norm", *after), between))
    return styles


def _latent_styles(spec: TransformerSpec, path: str, between: Placement) -> dict[str, Any]:
    """Projections down to latent values, which each rank has whole, and their norms.

    For all tokens they are left alone, as norms are.
    """
    if not spec.kv_lora_rank or between == Replicate():
        return {}
    kinds = ("q", "kv") if spec.q_lora_rank else ("kv",)
    styles: dict[str, Any] = {f"{path}.{kind}_down": _Style(_local_tokens_linear) for kind in kinds}
    return styles | _norm_styles(path, tuple(f"{kind}_norm" for kind in kinds), between)


def _norm_styles(path: str, names: tuple[str, ...], between: Placement) -> dict[str, Any]:
    """A norm of all tokens is left alone; of some tokens, its gradients are partial sums."""
    if between == Replicate():
        return {}
    return {f"{path}.{n}": tp.SequenceParallel(use_local_output=True) for n in names}


def _embedding_styles(embedding: nn.Module, between: Placement) -> dict[str, Any]:
    styles: dict[str, Any] = {"embedding.token": _Style(partial(_vocabulary_rows, between))}
    if between == Replicate():
        return styles
    if embedding.positions is not None:
        styles["embedding.positions"] = _Style(_local_tokens)
    if embedding.token_types is not None:
        styles["embedding.token_types"] = _Style(_all_tokens)
    if embedding.norm is not None:
        styles.update(_norm_styles("embedding", ("norm",), between))
    return styles


def _head_styles(head: nn.Module, between: Placement) -> dict[str, Any]:
    names = ("norm", "transform_norm")
    present = tuple(name for name in names if getattr(head, name) is not None)
    styles = _norm_styles("head", present, between)
    if head.transform is not None and between != Replicate():
        styles["head.transform"] = _Style(_local_tokens_linear)
    if head.logits is not None:
        styles["head.logits"] = _Style(_output_rows)
    return styles


class _Style(tp.ParallelStyle):  # type: ignore[misc]  # torch has no types here
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


def _output_rows(module: nn.Module, mesh: DeviceMesh) -> None:
    """A linear map split by outputs, applied by `SplitColumns`: rows of weight and bias."""
    _distribute(module, mesh, Shard(0))


def _copied_rows(ranks: DeviceMesh, module: nn.Module, _mesh: DeviceMesh) -> None:
    """A linear map split by outputs over heads, whose copies have the same rows (`copied_part`)."""
    _distribute(module, ranks, Shard(0), Replicate())


def _repeated(module: nn.Module, mesh: DeviceMesh) -> None:
    """Parameters that each rank has whole, for its own tokens or heads; gradients are summed."""
    _distribute(module, mesh, Replicate())
    module.repeated = copied_part


def _local_tokens_linear(module: nn.Module, mesh: DeviceMesh) -> None:
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


def _vocabulary_rows(between: Placement, module: nn.Module, mesh: DeviceMesh) -> None:
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


def _local_tokens(module: nn.Module, mesh: DeviceMesh) -> None:
    """Passes on the position rows (s, h) of a rank's tokens; gradients are gathered."""

    def rows_here(_module: nn.Module, _inputs: Any, rows: Tensor) -> Tensor:  # noqa: ANN401
        whole = DTensor.from_local(rows, mesh, (Replicate(),), run_check=False)
        return whole.redistribute(placements=(Shard(0),)).to_local()

    module.register_forward_hook(rows_here)


def _all_tokens(module: nn.Module, mesh: DeviceMesh) -> None:
    """A row (1, h) added to all tokens: its gradient is summed over the ranks' tokens."""

    def shared(_module: nn.Module, _inputs: Any, row: Tensor) -> Tensor:  # noqa: ANN401
        whole = DTensor.from_local(row, mesh, (Replicate(),), run_check=False)
        return whole.to_local(grad_placements=(Partial(),))

    module.register_forward_hook(shared)
