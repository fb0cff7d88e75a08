"""Experts that Megatron-LM's arguments describe: how many, which layers have them, the router."""

from __future__ import annotations

import ast
from typing import Any

from parsim.errors import InputError, shown
from parsim.frameworks.reading.arguments import Reader
from parsim.model.spec_rules import MAX_LAYERS
from parsim.units import whole_number


def expert_sizes(reader: Reader, layers: int, width: int) -> dict[str, Any]:
    """Fields of a model that has experts; none of one that has not."""
    count = reader.number("--num-experts", 0)
    if not count:
        return {}
    sizes: dict[str, Any] = {
        "num_experts": count,
        "experts_per_token": reader.number("--moe-router-topk", 2),
        "expert_ffn_hidden_size": reader.number("--moe-ffn-hidden-size", width),
        **_router(reader),
        **_expert_layers(reader, layers),
    }
    shared = reader.number("--moe-shared-expert-intermediate-size", 0)
    return sizes | ({"shared_expert_ffn_hidden_size": shared} if shared else {})


def _router(reader: Reader) -> dict[str, Any]:
    """How a token's experts are chosen and weighed."""
    router: dict[str, Any] = {}
    if reader.has("--moe-router-num-groups"):
        router["expert_groups"] = reader.number("--moe-router-num-groups", 1)
        router["groups_per_token"] = reader.number("--moe-router-group-topk", 1)
    if reader.first("--moe-router-score-function") in ("sigmoid", "softmax"):
        router["router_scoring"] = reader.word("--moe-router-score-function", "softmax")
    if reader.has("--moe-router-enable-expert-bias"):
        router["router_bias"] = True
    if reader.has("--moe-router-topk-scaling-factor"):
        router["routed_scaling_factor"] = reader.real("--moe-router-topk-scaling-factor", 1.0)
    if reader.has("--moe-aux-loss-coeff"):
        router["router_aux_loss_coef"] = reader.real("--moe-aux-loss-coeff", 0.0)
    return router


def _expert_layers(reader: Reader, layers: int) -> dict[str, int]:
    """Which layers have experts, as the dense ones before them and the distance between them.

    Raises:
        InputError: the pattern is none, is of other layers, or neither of the two says it.
    """
    flag = "--moe-layer-freq"
    text = reader.word(flag, "1").strip()
    every = whole_number(text)
    if every == 1:
        return {}
    pattern = [int(layer % max(every, 1) == 0) for layer in range(layers)] if every else []
    pattern = pattern or numbers(flag, text)
    if len(pattern) != layers:
        raise InputError(f"{flag} {shown(text)} names {len(pattern)} of --num-layers {layers}")
    return _as_dense_and_every(reader, pattern)


def _as_dense_and_every(reader: Reader, pattern: list[int]) -> dict[str, int]:
    """The two numbers that say a pattern, or as many experts elsewhere and a note of it."""
    sparse = [number for number, kind in enumerate(pattern) if kind]
    if not sparse:
        raise InputError("--moe-layer-freq leaves no layer with experts; leave out --num-experts")
    every = sparse[1] - sparse[0] if len(sparse) > 1 else 1
    dense = sparse[0] - every + 1
    even = sparse == list(range(sparse[0], len(pattern), every))
    if even and dense >= 0:
        return {"dense_layers": dense, "expert_every": every}
    if even and len(pattern) // every == len(sparse):
        reader.notes.append(
            f"--moe-layer-freq: experts are taken in the last of each {every} layers"
        )
        return {"expert_every": every}
    reader.notes.append(
        f"--moe-layer-freq: the last {len(sparse)} layers are taken as those with experts"
    )
    return {"dense_layers": len(pattern) - len(sparse)}


def numbers(flag: str, text: str) -> list[int]:
    """The list that an expression of lists, numbers, + and * makes, as `_eval_pattern` of Megatron.

    Raises:
        InputError: it is no such expression, or a longer list than any model has layers.
    """
    try:
        return _list(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InputError(
            f"{flag} {shown(text)} must be a number, or a list such as ([0]*3+[1]*58)"
        ) from None


def _list(node: ast.expr) -> list[int]:
    match node:
        case ast.List():
            return [_number(item) for item in node.elts]
        case ast.BinOp(op=ast.Add()):
            both = _list(node.left) + _list(node.right)
        case ast.BinOp(op=ast.Mult()):
            items, times = _list(node.left), _number(node.right)
            both = items * min(times, MAX_LAYERS)
        case _:
            raise ValueError
    if len(both) > MAX_LAYERS:
        raise ValueError
    return both


def _number(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    raise ValueError
