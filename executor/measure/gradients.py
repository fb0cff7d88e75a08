"""Compares a plan's loss and gradients with those of one process, by global parameter name.

How far apart they may be says `executor.measure.tolerance`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from executor.model.first_values import OUTPUT_TABLE, TOKEN_TABLE, Values
from executor.model.loss import cross_entropy
from executor.model.module import TransformerStage, build_model
from executor.model.stage import Stage, answers, average_balance
from executor.parallel.context import token_places
from executor.parallel.gradients.split import whole_tensor
from executor.parallel.precision import compute_dtype, fp32_computed_as, is_autocast
from executor.parallel.replica import Replica
from executor.training.scaling import until_finite
from parsim.errors import InputError
from parsim.model.reader import Description
from parsim.model.transformer import TransformerSpec
from parsim.plan import Plan

Gradients = dict[str, Tensor]

SMALLEST_SHARE = 1e-3
"""A parameter whose gradient is below this share of the largest is compared on that scale: the
gradient of a key's bias is zero but for rounding, because softmax ignores a constant."""


class GradientError(NamedTuple):
    """The largest relative error, and the parameter that has it."""

    error: float
    parameter: str


def reference(
    spec: Description,
    plan: Plan,
    batch: tuple[Tensor, Tensor],
    seed: int,
    *,
    precision: str = "fp32",
    values: Values | None = None,
) -> tuple[float, Gradients]:
    """Loss and gradients of the global batch, in this process alone, on the CPU.

    The batch is cut as the plan cuts it, into micro-batches of which each weighs the same.
    `precision` is that of a plan, or "fp64". Gradients come back in fp32, of fp64 in fp64; those
    of 16-bit parameters are added up in what the plan says, those of fp16 on a scale that holds
    them. `values` gives the weights, see `build_stage`.
    """
    compute = partial(_computed, spec, plan, batch, seed, precision, values)
    narrow = precision != "fp64" and compute_dtype(precision) == torch.float16
    return until_finite(compute) if narrow else compute(1.0)


def _computed(
    spec: Description,
    plan: Plan,
    batch: tuple[Tensor, Tensor],
    seed: int,
    precision: str,
    values: Values | None,
    scale: float,
) -> tuple[float, Gradients]:
    """Loss, and gradients times a scale."""
    tokens, targets = batch
    dtype = _stored(precision)
    model = build_model(spec, device=tokens.device, dtype=dtype, seed=seed, values=values)
    pieces, wholes = _pieces(tokens, plan), _pieces(targets, plan)
    count = len(pieces)
    balance_as_cut(model, plan, count, scale)
    total, gradients = 0.0, Gradients()
    for inputs, wanted in zip(pieces, wholes, strict=True):
        with _computing(precision, tokens.device):
            logits = model(inputs.to(dtype) if inputs.is_floating_point() else inputs)
        loss = cross_entropy(logits, wanted, words=answers(spec)) / count
        with _computing(precision, tokens.device, autocast=False):
            (loss * scale).backward()
        total += float(loss.detach())
        if plan.gradient_precision == "fp32":
            _add_wide(model, gradients)
    _add_wide(model, gradients)
    if model.tied and plan.pp > 1 and TOKEN_TABLE in gradients:  # a frozen one has none
        # the first and the last stage each have a copy of the tied table, and the summed gradient
        gradients[OUTPUT_TABLE] = gradients[TOKEN_TABLE]
    return total, {name: gradient.cpu() for name, gradient in gradients.items()}


def _pieces(batch: Tensor, plan: Plan) -> Sequence[Tensor]:
    """What is computed at a time: a micro-batch, or where statistics are shared all replicas'."""
    parts: Sequence[Tensor] = batch.chunk(sum(plan.microbatches))
    if not plan.sync_batch_norm:
        return parts
    count = plan.num_microbatches
    return [torch.cat(list(parts[index::count])) for index in range(count)]


def _stored(precision: str) -> torch.dtype:
    """What the parameters of one process are stored in."""
    if precision == "fp64":
        return torch.float64
    return torch.float32 if is_autocast(precision) else compute_dtype(precision)


def balance_as_cut(model: Stage, plan: Plan, count: int, scale: float = 1.0) -> None:
    """Balance experts over the tokens that a rank of the plan has of a micro-batch, of `count`."""
    if not isinstance(model, TransformerStage):
        return
    parts = _parts_of_ranks(model.spec, plan)
    average_balance(model, count / scale)
    for mixture in model.mixtures().values():
        mixture.balance.parts = parts


def _parts_of_ranks(spec: TransformerSpec, plan: Plan) -> Tensor:
    """Which of the ranks that share a sequence has each of its tokens, (s,)."""
    parts = torch.empty(spec.seq_len, dtype=torch.long)
    slices = plan.tp if plan.sequence_parallel else 1
    for index in range(plan.cp):
        places = token_places(spec, plan.cp, index)
        parts[places] = index * slices + torch.arange(len(places)) // (len(places) // slices)
    return parts


@contextmanager
def _computing(precision: str, device: torch.device, *, autocast: bool = True) -> Iterator[None]:
    """Compute products and convolutions as a precision says; torch's settings are global."""
    enabled = autocast and precision != "fp64" and is_autocast(precision)
    narrow = compute_dtype(precision) if enabled else torch.bfloat16
    with (
        fp32_computed_as(precision),
        torch.autocast(device.type, dtype=narrow, enabled=enabled),
    ):
        yield


def _add_wide(model: nn.Module, sums: Gradients) -> None:
    """Move what backward left in `.grad` into sums of at least fp32."""
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            wide = parameter.grad.to(torch.promote_types(parameter.dtype, torch.float32))
            sums[name] = sums[name].add_(wide) if name in sums else wide
            parameter.grad = None


def gather_gradients(replicas: Sequence[Replica], mesh: DeviceMesh, plan: Plan) -> Gradients:
    """All gradients of the plan on rank 0 as whole fp32 tensors on the CPU; nothing elsewhere.

    On every rank at once, after `Replica.finish`, with all stages of the rank.
    """
    mine: Gradients = {}
    keep = not any(mesh.get_coordinate()[1:])  # on all axes but the pipeline's, the first
    for replica in replicas:
        for name, _, gradient in replica.gradients():
            whole = whole_tensor(gradient)
            if keep:
                mine[name] = whole.float().cpu().clone()
    if not keep or plan.pp == 1:
        return mine if keep else {}
    group, root = mesh["pp"].get_group(), mesh.get_coordinate()[0] == 0
    parts: list[Gradients] | None = [{} for _ in range(plan.pp)] if root else None
    dist.gather_object(mine, parts, group=group, group_dst=0)
    return {name: grad for part in parts or () for name, grad in part.items()}


def max_relative_error(
    gradients: Mapping[str, Tensor], expected: Mapping[str, Tensor]
) -> GradientError:
    """Largest |gradient - expected| of any element, relative to its parameter's largest gradient.

    Raises:
        InputError: a parameter is missing, additional, or of another shape.
    """
    _check_same(gradients, expected)
    floor = SMALLEST_SHARE * max((float(g.abs().max()) for g in expected.values()), default=0.0)
    worst = GradientError(error=0.0, parameter="")
    for name, wanted in expected.items():
        scale = max(float(wanted.abs().max()), floor)
        gap = float((gradients[name].to(wanted) - wanted).abs().max())
        error = gap / scale if scale else gap
        if math.isnan(error):
            return GradientError(error=math.inf, parameter=name)
        if error > worst.error:
            worst = GradientError(error=error, parameter=name)
    return worst


def _check_same(gradients: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    missing = sorted(set(expected) - set(gradients))
    extra = sorted(set(gradients) - set(expected))
    if missing or extra:
        raise InputError(
            f"gradients of different parameters: missing {', '.join(missing) or 'none'}; "
            f"additional {', '.join(extra) or 'none'}"
        )
    for name, wanted in expected.items():
        if gradients[name].shape != wanted.shape:
            raise InputError(
                f"gradient of {name} has shape {tuple(gradients[name].shape)}, "
                f"expected {tuple(wanted.shape)}"
            )
