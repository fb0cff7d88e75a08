"""Sizes that a row leaves blank: a known model's are looked up, others follow from the family.

    looked up   layers, width, heads, key-value heads, feed-forward width, vocabulary, experts: of
                the catalog's model with the row's name, unless the row states another width
    derived     feed-forward width 4 h where the family's MLP has no gate, the family's vocabulary

Each has its reason beside it, which `parsim validate -v` prints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from parsim.model.transformer import TransformerSpec
from parsim.units import whole_number
from parsim.validation.step.known_models import is_named_after, known_model
from parsim.validation.step.model_family import MIXTURE, has_gate, model_family

Filled = dict[str, tuple[str, str]]
"""Column -> the cell that it gets, and why."""

SIZES = {
    "n_layers": "num_layers",
    "hidden_size": "hidden_size",
    "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "ffn_hidden_size": "ffn_hidden_size",
    "vocab_size": "vocab_rows",
}
"""Column of the schema -> what the spec calls it."""

EXPERTS = {
    "n_experts": "num_experts",
    "moe_topk": "experts_per_token",
    "moe_ffn_hidden_size": "expert_ffn_hidden_size",
}
"""Sizes that mixtures of experts have beside them."""


def blank_sizes(row: Mapping[str, str]) -> Filled:
    """The cells that fill a row's blanks; a blank that nothing is known of stays."""
    filled = dict(_looked_up(row))
    return {**filled, **dict(_derived({**row, **filled_cells(filled)}))}


def filled_cells(filled: Filled) -> dict[str, str]:
    """The filled cells without their reasons."""
    return {column: cell for column, (cell, _) in filled.items()}


def _looked_up(row: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, str]]]:
    name = row.get("model", "")
    spec = known_model(name)
    if spec is None:
        return
    columns = {**(SIZES if _is_that(row, spec) else {}), **(EXPERTS if spec.num_experts else {})}
    for column, field in columns.items():
        if not row.get(column):
            yield column, (str(getattr(spec, field)), f"{spec.name} of the catalog")


def _is_that(row: Mapping[str, str], spec: TransformerSpec) -> bool:
    """Whether a row is of this very model: by its width, else by a size in its name."""
    if row.get("hidden_size"):
        return _whole(row["hidden_size"]) == spec.hidden_size
    return is_named_after(row["model"], spec)


def _whole(cell: str) -> int | None:
    """A count as tables write it, 4096 or 4096.0; None for anything else, which is told later."""
    head, _, tail = cell.partition(".")
    return None if tail.strip("0") else whole_number(head)


def _derived(row: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, str]]]:
    heads, groups = row.get("n_heads", ""), row.get("n_kv_heads", "")
    width, inner = (_whole(row.get(name, "")) for name in ("hidden_size", "ffn_hidden_size"))
    grouped = groups not in ("", heads)
    later = grouped if width is None or inner is None else has_gate(width, inner)
    family = model_family(row.get("model", ""), later=later)
    mixture = row.get("n_experts", "") not in ("", "0")
    if not groups and heads:
        yield "n_kv_heads", (heads, "no grouped queries are stated")
    if not row.get("ffn_hidden_size") and family.plain_mlp and not mixture and width:
        yield "ffn_hidden_size", (str(4 * width), f"4 x hidden_size, as of family {family.name}")
    if not row.get("vocab_size"):
        kind = MIXTURE if mixture else family
        yield "vocab_size", (str(kind.vocabulary), f"family {kind.name}")
