"""What Hugging Face calls each of our parameters, and how it stores it.

    ours                              theirs
    layers.3.attention.q.weight       model.layers.3.self_attn.q_proj.weight
    layers.3.attention.q.weight       transformer.h.3.attn.c_attn.weight
                                      the first third, transposed
    layers.3.attention.q.weight       gpt_neox.layers.3.attention.query_key_value.weight
                                      the first third of each head's rows
    layers.3.mlp.experts.5.up.0       model.layers.3.block_sparse_moe.experts.5.w1.weight

Ours are those of a `Stage`, but for experts, each of which counts for itself: `up.0` is the gate
and `up.1` what is gated. Sources: transformers' modeling files of each family.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from executor.model.first_values import OUTPUT_TABLE, TOKEN_TABLE
from executor.weights.family import FamilyNames
from executor.weights.family_names import FAMILIES
from parsim.model.config.family_of_spec import family_of
from parsim.model.spec import TransformerSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Theirs:
    """A tensor of a published file, in which ours is the rows from `begin` on, of `rows` together.

    `rows` 0 is the whole tensor. Rows are those of each of `groups` equal parts of the tensor (a
    head's), which ours has one after another. Where it is `transposed`, that holds after turning it
    round.
    """

    name: str
    begin: int = 0
    rows: int = 0
    groups: int = 1
    transposed: bool = False

    def part_of(self, tensor: Tensor, rows: int) -> Tensor:
        """Ours, of so many rows, in theirs."""
        turned = tensor.t() if self.transposed else tensor
        if not self.rows:
            return turned
        apart = turned.unflatten(0, (self.groups, -1))
        return apart.narrow(1, self.begin, rows // self.groups).flatten(0, 1)

    def joined(self, parts: list[Tensor]) -> Tensor:
        """Theirs, of all of ours that it holds, in order."""
        whole = parts[0]
        if self.rows:
            groups = [part.unflatten(0, (self.groups, -1)) for part in parts]
            whole = torch.cat(groups, dim=1).flatten(0, 1)
        return whole.t() if self.transposed else whole

    @property
    def stored_rows(self) -> int:
        """Rows of the whole tensor, 0 where it is ours alone."""
        return self.rows * self.groups

    def is_last(self, rows: int) -> bool:
        """Whether ours, of so many rows, ends the tensor."""
        return not self.rows or self.begin + rows // self.groups == self.rows


_EXPERT = re.compile(r"^mlp\.experts\.(\d+)\.(up\.[01]|down)$")


def theirs(spec: TransformerSpec, ours: str, kind: str = "") -> Theirs:
    """The published tensor that holds one of our parameters, of a family that may be named.

    Raises:
        ModelError: the model is of no published family.
    """
    family = FAMILIES[kind or family_of(spec)]
    if ours == OUTPUT_TABLE and spec.tied_embeddings:
        ours = TOKEN_TABLE
    if ours == "head.logits.bias":  # of masked words, which hangs above its decoder
        return Theirs(name=family.ends["head.logits.bias"])
    if not ours.startswith("layers."):
        module, kind = ours.rsplit(".", 1)
        return Theirs(name=f"{family.ends[module]}.{kind}")
    _, number, inner = ours.split(".", 2)
    return _in_layer(spec, family, family.layer.format(number), inner)


def _in_layer(spec: TransformerSpec, family: FamilyNames, prefix: str, inner: str) -> Theirs:
    """The tensor of a layer's parameter, all of whose names begin with `prefix`."""
    expert = _EXPERT.match(inner)
    if expert is not None:
        pattern = family.inside[f"mlp.experts.{{}}.{expert[2]}"]
        return Theirs(name=prefix + pattern.format(expert[1]))
    if inner == "attention.q_up.weight" and not spec.q_lora_rank:
        return Theirs(name=f"{prefix}self_attn.q_proj.weight")
    if inner == "mlp.router.bias_of_choice":
        return Theirs(name=f"{prefix}mlp.gate.e_score_correction_bias")
    module, kind = inner.rsplit(".", 1)
    begin, rows, groups = _place(spec, family, module)
    return Theirs(
        name=f"{prefix}{family.inside[module]}.{kind}",
        begin=begin,
        rows=rows,
        groups=groups,
        transposed=family.turned and kind == "weight" and not module.endswith("norm"),
    )


def _place(spec: TransformerSpec, family: FamilyNames, module: str) -> tuple[int, int, int]:
    """Where a module's rows begin in the tensor that holds them, of how many, in groups."""
    for together in family.joined:
        if module in together:
            groups = spec.num_attention_heads if family.by_head else 1
            widths = [_outputs(spec, name) // groups for name in together]
            return sum(widths[: together.index(module)]), sum(widths), groups
    return 0, 0, 1


def _outputs(spec: TransformerSpec, module: str) -> int:
    """Rows of a module's weight."""
    if module.startswith("mlp."):
        return spec.ffn_hidden_size
    queries = module == "attention.q"
    return spec.head_dim * (spec.num_attention_heads if queries else spec.num_key_value_heads)


def also_called(spec: TransformerSpec, name: str, kind: str = "") -> Iterator[str]:
    """A published name, and what older files, and files of more or fewer parts, have instead."""
    family = FAMILIES[kind or family_of(spec)]
    base, older = family.base, name
    for now, then in family.older.items():
        older = older.replace(now, then)
    for full in dict.fromkeys((name, older)):
        yield full
        if full.startswith(base):
            yield full.removeprefix(base)
        yield f"language_model.{full}"  # of a model that sees images too
        yield f"model.language_model.{full.removeprefix(base)}"
