"""LoRA: a transformer whose weights are frozen, with trained low-rank products beside some of them.

    input --+--> product, frozen -----------+--> sum --> output      W x + (alpha / r) B A x
            +--> A: r outputs --> B --------+

Backward makes no gradient of a frozen weight, and keeps no input for one; A keeps it instead. Of a
column-split product every tensor-parallel rank has A whole and B's columns, of a row-split one A's
rows and B whole, so that only r values a token travel between them.

Source: Hu et al. 2021 (arXiv:2106.09685), section 4; Megatron-Bridge (commit 067f987d),
peft/lora_layers.py and peft/utils.py; PEFT 0.6.2, utils/other.py (ModulesToSaveWrapper). Leaves
out: dropout ahead of A; adapters of routed experts; that Megatron-Bridge divides the r outputs of a
column-split product's A over ranks; that nothing ahead of the first adapter goes backward, a part
of one layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from parsim.errors import ModelError
from parsim.model.layer import Branches, Layer, Part
from parsim.model.model import Model
from parsim.model.operators import Elementwise, Experts, Linear, Lookup, Operator, Region, Split
from parsim.model.transformer_operators import LOGITS

TARGETS: Mapping[str, str] = {
    "linear_qkv": "qkv",
    "linear_proj": "projection",
    "linear_fc1": "fc1",
    "linear_fc2": "fc2",
    "linear_q_down_proj": "q_down",
    "linear_q_up_proj": "q_up",
    "linear_kv_down_proj": "kv_down",
    "linear_kv_up_proj": "kv_up",
    "in_proj": "mamba_in",
    "out_proj": "mamba_out",
}
"""Products that may have an adapter, by Megatron-Core's names, and what they are called here."""

EMBEDDING, HEAD = "embed_tokens", "lm_head"
SAVED = (EMBEDDING, HEAD)
"""Modules that may be trained whole beside adapters, by their names in PEFT and Llama: the table of
tokens and the matrix of the logits."""

SCALED_SUM = (5.0, 2.0)
"""Values moved, forward and backward, of each output: B's is scaled (2) and added (3), its gradient
is scaled (2)."""

SUMMED_GRADIENTS = 3.0
"""Values moved backward of each input: the gradients of both paths are added."""


FIRST, SECOND = "_lora_a", "_lora_b"
"""How the names of an adapter's two products end."""


def is_first_beside_columns(op: Linear) -> bool:
    """Whether a product is the first factor of a column-split product's adapter: no rank splits it.

    Some stacks let it read a tensor rank's own tokens alone, others all that were gathered.
    """
    return op.split is Split.NONE and op.name.endswith(FIRST)


def with_adapters(
    model: Model, rank: int, targets: tuple[str, ...], saved: tuple[str, ...] = ()
) -> Model:
    """The model with frozen weights and an adapter of a rank beside each of the products named.

    Without targets every product of a block has one. Embedding and head have none: they are frozen,
    or, `saved`, trained whole.

    Raises:
        ModelError: a name is unknown, or none of the model's products is called so.
    """
    _check_targets(model.blocks, targets)
    names = frozenset(TARGETS[target] for target in targets or TARGETS)
    kinds = {id(layer): _adapted_layer(layer, rank, names, saved) for layer in model.layers}
    layers = tuple(kinds[id(layer)] for layer in model.layers)
    parts = {id(layer): _trained_part(layer) for layer in kinds.values()}
    trained = replace(
        model,
        layers=tuple(parts[id(layer)] for layer in layers),
        tied_embeddings=model.tied_embeddings and bool(saved),
    )
    return replace(model, layers=layers, trained=trained)


def adapters_note(model: Model) -> str | None:
    """What is trained of a model with adapters, in a sentence; None where all is."""
    if model.trained is None:
        return None
    share = 100.0 * model.trained.parameters / model.parameters
    ends = (saved_name(op) for layer in model.trained.ends for op in layer.operators)
    what = " and ".join(("adapters", *filter(None, ends)))
    return (
        f"LoRA: {model.trained.parameters:,} parameters of {what} are trained, {share:.2g} % of "
        f"all; frozen weights have neither gradients nor optimizer states"
    )


def saved_name(op: Operator) -> str | None:
    """What an operator is called where it is trained whole beside adapters; None of all others."""
    if isinstance(op, Lookup):
        return EMBEDDING
    return HEAD if isinstance(op, Linear) and op.name == LOGITS else None


def _adapted_layer(layer: Layer, rank: int, names: frozenset[str], saved: tuple[str, ...]) -> Layer:
    parts = _adapted(layer, rank, frozenset() if layer.outer else names, saved)
    return replace(layer, parts=tuple(parts))


def targets_of(layers: tuple[Layer, ...]) -> tuple[str, ...]:
    """Names of all products of some layers that may have an adapter."""
    names = {getattr(op, "name", "") for layer in layers for op in layer.operators}
    return tuple(target for target, product in TARGETS.items() if product in names)


def _check_targets(layers: tuple[Layer, ...], targets: tuple[str, ...]) -> None:
    known = targets_of(layers)
    for target in targets:
        if target not in known:
            has = ", ".join(known)
            raise ModelError(f"lora_targets={target}: no layer has that product; these have: {has}")


def _trained_part(layer: Layer) -> Layer:
    """What of a layer is trained: products of adapters, and modules that are saved."""
    return replace(layer, parts=tuple(_trained_operators(layer)))


def _trained_operators(layer: Layer) -> Iterator[Operator]:
    """Trained operators; of an embedding its table of tokens alone."""
    for op in layer.operators:
        if isinstance(op, Lookup) and op.trained:
            yield replace(op, positions=0, token_types=0)
        elif isinstance(op, Linear) and op.trained:
            yield op


def _adapted(
    layer: Layer, rank: int, names: frozenset[str], saved: tuple[str, ...]
) -> Iterator[Part]:
    kept: set[int] = set()
    for part in layer.parts:
        if isinstance(part, Linear) and part.name in names:
            yield from _beside(part, rank, keeps_input=part.keeps_input or part.inputs not in kept)
            kept.add(part.inputs)
        elif isinstance(part, Linear | Elementwise | Experts | Lookup):
            yield replace(part, trained=saved_name(part) in saved)
        else:
            yield part


def _beside(product: Linear, rank: int, *, keeps_input: bool) -> Iterator[Part]:
    """A frozen product with its adapter, and what adds them up, forward and backward."""
    by_row, by_column = product.split is Split.ROW, product.split is Split.COLUMN
    adapter = _adapter(product, rank, keeps_input=keeps_input)
    yield _pass(product, "copied", product.inputs, by_row, backward=SUMMED_GRADIENTS)
    yield Branches(paths=((replace(product, trained=False),), adapter))
    yield _pass(product, "summed", product.outputs, by_column, *SCALED_SUM)


def _adapter(product: Linear, rank: int, *, keeps_input: bool) -> tuple[Linear, Linear]:
    """The two narrow products beside a frozen one, split where that is."""
    ahead = replace(
        product,
        name=f"{product.name}{FIRST}",
        outputs=rank,
        split=Split.ROW if product.split is Split.ROW else Split.NONE,
        bias=False,
        keeps_input=keeps_input,
        shared=None,
    )
    behind = replace(
        product,
        name=f"{product.name}{SECOND}",
        inputs=rank,
        split=Split.COLUMN if product.split is Split.COLUMN else Split.NONE,
        on_sequence=product.on_sequence or product.split is Split.ROW,
        bias=False,
        keeps_input=True,
    )
    return ahead, behind


def _pass(
    product: Linear,
    name: str,
    width: int,
    divided: bool,
    forward: float = 0.0,
    backward: float = 0.0,
) -> Elementwise:
    """Values that a pass around an adapter moves; it keeps none.

    Scaling and adding are one more call of the host forward; backward autograd queues them from
    its own thread, without Python.
    """
    return Elementwise(
        name=f"{product.name}_lora_{name}",
        tokens=product.tokens,
        width=width,
        region=Region.TENSOR if divided else Region.SEQUENCE,
        forward=forward,
        backward=backward,
        launches=(1 if forward else 0, 0),
    )
