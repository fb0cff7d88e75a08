"""Tensor parallelism: which weights of a stage are split, and where activations are exchanged.

    norm -> [gather] -> q k v fc1 gate (columns) -> projection fc2 (rows) -> [sum] -> residual

One exchange enters and one leaves attention, likewise the MLP. Without sequence parallelism only
the sums are there (all-reduce forward behind rows, backward before columns). With it a rank holds
1/tp of the tokens between the borders, [gather] is an all-gather and [sum] a reduce-scatter.
The vocabulary is split over ranks, in the token table and in the output projection, and the logits
stay so: the loss is taken of each rank's part (executor/model/loss.py). Key-value heads that are
fewer than the ranks are copied, each to the ranks that have its query heads.

Adapters beside frozen weights: of a column-split map each rank has A whole, for its own tokens, and
the rows of B that are beside its rows of the map; of a row-split one A's columns beside its own and
B whole, for its own tokens. So r values a token are exchanged between A and B, as at the map's own
border. So PEFT's adapters of Megatron-Core's layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Placement, Replicate, Shard
from torch.distributed.tensor import parallel as tp

from executor.devices.mesh import ranks_of_heads
from executor.model.adapters import Adapted, AdaptedColumns
from executor.model.attention.latent import LatentAttention
from executor.model.attention.self_attention import Core
from executor.model.loss import LossFn, cross_entropy
from executor.model.module import TransformerStage
from executor.model.stage import answers
from executor.parallel.columns import SplitColumns
from executor.parallel.refused import check_splits
from executor.parallel.tensor_styles import (
    Style,
    all_tokens,
    copied_rows,
    input_columns,
    local_tokens,
    local_tokens_linear,
    output_rows,
    repeated,
    vocabulary_rows,
)
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
    styles.update(_adapter_styles(stage, styles, between))
    if stage.embedding is not None:
        styles.update(_embedding_styles(stage.embedding, between))
    if stage.head is not None:
        styles.update(_head_styles(stage.head, between))
    trained = {name: parameter.requires_grad for name, parameter in stage.named_parameters()}
    tp.parallelize_module(stage, mesh, styles)
    _exchange_in(stage, mesh, SplitColumns(group=mesh.get_group(), sequence=sequence_parallel))
    stage.tie()
    for name, parameter in stage.named_parameters():
        parameter.requires_grad_(trained[name])  # torch's styles of norms forget what is frozen


def _exchange_in(stage: TransformerStage, mesh: DeviceMesh, split: SplitColumns) -> None:
    """Let a stage's modules work on this rank's heads and columns."""
    for module in stage.modules():
        if hasattr(module, "columns"):
            if isinstance(module.columns, AdaptedColumns):
                module.columns.apart, module.columns.everywhere = split, split.everywhere
            else:
                module.columns = split
        if isinstance(module, Core) and module.shape.slopes is not None:
            slopes = module.shape.slopes.chunk(mesh.size())[mesh.get_local_rank()]
            module.shape = replace(module.shape, slopes=slopes)
        if isinstance(module, LatentAttention):
            module.everywhere = split.everywhere


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
    return {f"{path}.{name}": Style(partial(copied_rows, ranks)) for name in ("k", "v")}


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
        styles[f"{path}.mlp.router"] = Style(repeated)
    if stage.spec.qk_norm:
        styles |= {f"{path}.attention.{name}": Style(repeated) for name in ("q_norm", "k_norm")}
    styles |= {f"{path}.{name}": Style(output_rows) for name in columns}
    styles |= {f"{path}.{name}": tp.RowwiseParallel(output_layouts=between) for name in rows}
    after = ("attention_out_norm", "mlp_out_norm") if stage.spec.norms_after else ()
    before = ("attention_norm", "mlp_norm")[: 1 + (stage.spec.parallel_block != "shared_norm")]
    styles.update(_norm_styles(path, (*before, *after), between))
    return styles


def _adapter_styles(
    stage: TransformerStage, styles: Mapping[str, Any], between: Placement
) -> dict[str, Any]:
    """Factors of adapters: a second one beside a column-split map is split as the map is."""
    adapters: dict[str, Any] = {}
    for path, module in stage.named_modules():
        if isinstance(module, AdaptedColumns):
            owner = path.removesuffix(".columns")
            adapters |= _of_local_tokens(f"{path}.a", between)
            adapters |= {f"{path}.b.{name}": styles[f"{owner}.{name}"] for name in module.b}
        elif isinstance(module, Adapted):
            rows = Style(partial(input_columns, between))
            adapters |= {path: rows, f"{path}.adapter.a": rows}
            adapters |= _of_local_tokens(f"{path}.adapter.b", between)
    return adapters


def _of_local_tokens(path: str, between: Placement) -> dict[str, Any]:
    """A factor that each rank has whole: of all tokens it is left alone."""
    return {} if between == Replicate() else {path: Style(local_tokens_linear)}


def _latent_styles(spec: TransformerSpec, path: str, between: Placement) -> dict[str, Any]:
    """Projections down to latent values, which each rank has whole, and their norms.

    For all tokens they are left alone, as norms are.
    """
    if not spec.kv_lora_rank or between == Replicate():
        return {}
    kinds = ("q", "kv") if spec.q_lora_rank else ("kv",)
    styles: dict[str, Any] = {f"{path}.{kind}_down": Style(local_tokens_linear) for kind in kinds}
    return styles | _norm_styles(path, tuple(f"{kind}_norm" for kind in kinds), between)


def _norm_styles(path: str, names: tuple[str, ...], between: Placement) -> dict[str, Any]:
    """A norm of all tokens is left alone; of some tokens, its gradients are partial sums."""
    if between == Replicate():
        return {}
    return {f"{path}.{n}": tp.SequenceParallel(use_local_output=True) for n in names}


def _embedding_styles(embedding: nn.Module, between: Placement) -> dict[str, Any]:
    styles: dict[str, Any] = {"embedding.token": Style(partial(vocabulary_rows, between))}
    if between == Replicate():
        return styles
    if embedding.positions is not None:
        styles["embedding.positions"] = Style(local_tokens)
    if embedding.token_types is not None:
        styles["embedding.token_types"] = Style(all_tokens)
    if embedding.norm is not None:
        styles.update(_norm_styles("embedding", ("norm",), between))
    return styles


def _head_styles(head: nn.Module, between: Placement) -> dict[str, Any]:
    names = ("norm", "transform_norm")
    present = tuple(name for name in names if getattr(head, name) is not None)
    styles = _norm_styles("head", present, between)
    if head.transform is not None and between != Replicate():
        styles["head.transform"] = Style(local_tokens_linear)
    if head.logits is not None:
        styles["head.logits"] = Style(output_rows)
    return styles
