"""The layout of a transformer nearest to a stated one that is a plan of axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from parsim.model.model import Model
from parsim.model.operators import Linear

TENSOR = ("heads", "ffn", "vocab")
"""What tensor parallelism splits, all of it."""


class _Taken(NamedTuple):
    """The axes of a mesh that samples, heads and tokens lie on; None: on no axis yet."""

    batch: str | None
    tensor: str | None
    context: str | None


def nearest_layout(stated: Mapping[str, str], axes: Sequence[str], model: Model) -> dict[str, str]:
    """The layout nearest to a stated one that is a plan: itself, where it is one.

    An axis that nothing is left for takes samples, then heads, then tokens. Empty: there is none.
    """
    taken = _with_free_axes(_stated_axes(stated, axes, model), axes)
    if taken is None:
        return {}
    laid = {
        "batch": taken.batch,
        "sequence": taken.context,
        **dict.fromkeys(TENSOR, taken.tensor),
    }
    return {dim: axis for dim, axis in _with_experts(laid, stated, axes, model).items() if axis}


def _stated_axes(stated: Mapping[str, str], axes: Sequence[str], model: Model) -> _Taken:
    """The axes that a layout states, each for one thing; axes that the mesh has not count not."""
    known = {dim: axis for dim, axis in stated.items() if axis in axes}
    batch, context = known.get("batch"), known.get("sequence")
    tensor = next((axis for axis in map(known.get, TENSOR) if axis not in (None, batch)), None)
    if tensor is None and _experts_alone(model) and stated.get("experts") != batch:
        tensor = known.get("experts")
    return _Taken(batch, tensor, None if context == batch else context)


def _with_free_axes(taken: _Taken, axes: Sequence[str]) -> _Taken | None:
    """Give the axes that nothing lies on to samples, heads, tokens; None: one is left over."""
    for axis in axes:
        if axis in taken:
            continue
        if taken.batch is None:
            taken = taken._replace(batch=axis)
        elif taken.tensor is None:
            taken = taken._replace(tensor=axis)
        elif taken.context in (None, taken.tensor):
            taken = taken._replace(context=axis)
        else:
            return None
    return taken


def _with_experts(
    laid: Mapping[str, str | None], stated: Mapping[str, str], axes: Sequence[str], model: Model
) -> dict[str, str | None]:
    """A layout with the experts where they are stated, if ranks that are neighbours share them."""
    wanted, batch, tensor = stated.get("experts"), laid["batch"], laid["heads"]
    if wanted is None or model.experts is None:
        return dict(laid)
    outside = axes if tensor is None else axes[:-1]
    if wanted == tensor == axes[-1] and "ffn" not in stated and _experts_alone(model):
        return {**laid, "ffn": None, "experts": tensor}
    if tensor in (None, axes[-1]) and [batch] == list(outside[-1:]):
        return {**laid, "experts": batch}
    return dict(laid)


def _experts_alone(model: Model) -> bool:
    """Whether no layer has a feed-forward network that every token meets."""
    every = (op for layer in model.kinds for op in layer.operators)
    return model.experts is not None and not any(
        isinstance(op, Linear) and op.name == "fc2" for op in every
    )
