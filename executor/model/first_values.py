"""First values of parameters: drawn from a seed by name, so that every rank's part is the same."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch
from torch import Tensor

from executor.devices.machine import drawing_threads
from executor.model.adapters import begins_as_zero
from executor.model.mixture.experts import Experts
from executor.model.stage import Stage
from parsim.model.reader import Description
from parsim.model.transformer import TransformerSpec

INITIAL_STD = 0.02
"""Standard deviation of first weights (GPT-2 and BERT configurations: initializer_range)."""

TOKEN_TABLE = "embedding.token.weight"
OUTPUT_TABLE = "head.logits.weight"

Values = Callable[[str, tuple[int, ...]], Tensor]
"""Gives a parameter's first values for its name and shape, on any device."""


@torch.no_grad()  # type: ignore[untyped-decorator]
def fill_parameters(stage: Stage, values: Values) -> None:
    """Overwrite every (unsharded) parameter with its first values.

    Where cores are idle several threads draw: each parameter's values hang on its name alone.
    """
    devices = [parameter.device for parameter in stage.parameters()]
    threads = drawing_threads(devices[0]) if devices else 1
    if threads == 1:
        for fill in _fills(stage, values):
            fill()
        return
    with ThreadPoolExecutor(threads) as pool:
        for ended in [pool.submit(fill) for fill in _fills(stage, values)]:
            ended.result()


def _fills(stage: Stage, values: Values) -> Iterator[Callable[[], None]]:
    """What gives each parameter, or each expert's part of one, its first values."""
    for name, parameter in stage.named_parameters():
        tied_copy = stage.tied and name == OUTPUT_TABLE
        source = TOKEN_TABLE if tied_copy else name
        if ".experts." not in name:
            yield partial(_set, parameter, values, source, tuple(parameter.shape))
    for path, mixture in stage.mixtures().items():
        yield from _expert_fills(f"{path}.experts", mixture.experts, values)


def _expert_fills(path: str, experts: Experts, values: Values) -> Iterator[Callable[[], None]]:
    """Each expert's values hang on its number in the layer, of which a rank may hold a slice."""
    share = experts.share
    for name, parameter in experts.named_parameters():
        for number, mine in enumerate(parameter, experts.first):
            if name.endswith("bias"):
                mine.zero_()
                continue
            rows, width, *rest = mine.shape
            shape = (rows, width * share.etp, *rest)
            part = slice(share.slice * width, (share.slice + 1) * width)
            yield partial(_set, mine, values, f"{path}.{number}.{name}", shape, part)


@torch.no_grad()  # type: ignore[untyped-decorator]  # of the thread that draws
def _set(
    target: Tensor, values: Values, name: str, shape: tuple[int, ...], part: slice | None = None
) -> None:
    """Draw values, and keep all of them or a part of their second dim."""
    drawn = values(name, shape)
    target.copy_(drawn if part is None else drawn[:, part])


def seeded(
    seed: int, device: torch.device | str = "cpu", spec: Description | None = None
) -> Values:
    """First values that hang on the seed; drawn on a `device` they hang on its kind too.

    Norms of a `spec` may add 1 to their weights, which are 0 then.
    """
    gain = 0.0 if isinstance(spec, TransformerSpec) and spec.offset_norms else 1.0
    return partial(first_values, seed=seed, device=device, gain=gain)


def first_values(
    name: str,
    shape: tuple[int, ...],
    seed: int,
    device: torch.device | str = "cpu",
    gain: float = 1.0,
) -> Tensor:
    """Return the first fp32 values of a parameter, drawn on the CPU: the same for every device.

    Tables and matrices are normal, biases and second factors of adapters zero, the weights of norms
    `gain`. Where only seconds count another `device` draws values of its own, which takes no time.
    """
    if begins_as_zero(name):
        return torch.zeros(shape)
    if len(shape) < 2:
        bias = name.rpartition(".")[2].startswith("bias")  # torch's cells have bias_ih_l0
        return torch.full(shape, 0.0 if bias else gain)
    generator = torch.Generator(device).manual_seed(mixed(seed, name))
    return torch.empty(shape, device=device).normal_(0.0, INITIAL_STD, generator=generator)


def none_zero(values: Values) -> Values:
    """First values whose second factors of adapters are drawn too.

    Where these are zero the first factors have no gradient, and nothing could be wrong with it.
    """

    def drawn(name: str, shape: tuple[int, ...]) -> Tensor:
        other = name.replace(".b.", ".drawn.") if begins_as_zero(name) else name
        return values(other, shape)

    return drawn


def mixed(seed: int, *words: object) -> int:
    """Make a seed of a seed and words, the same on every machine."""
    text = ":".join(str(word) for word in (seed, *words))
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1  # below 2^63, the largest seed
