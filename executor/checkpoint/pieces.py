"""Which part of which tensor of the whole training state a rank holds, whatever the plan.

A rank of any plan holds of a tensor a box (tensor parallelism, fully sharded parameters, experts),
or of such a box a range of its values in row-major order (a share of a bucket of ZeRO-1):

    whole (6, 4)     box at (2, 0) of (2, 4)     range 3:8 of the box
    . . . .
    . . . .
    x x x x          x x x x                     . . . x
    x x x x          x x x x                     x x x x
    . . . .

    weight/<parameter>             fp32, or what the parameter has where no fp32 copy is kept
    exp_avg/.. exp_avg_sq/..       what the optimizer keeps of it
    rng/<rank>/<device>            what dropout draws from next
    losses                         of every step so far

Beside them numbers: the updates, and in fp16 the steps that were skipped and the loss's scale.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from executor.devices.accelerator import accelerator
from executor.model.first_values import OUTPUT_TABLE, TOKEN_TABLE
from executor.torch_internals.distributed import stored_tensor
from executor.training.optimizer import StageOptimizer
from executor.training.trainer import Trainer
from executor.training.updated_values import needs_masters

Sizes = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """Where a rank's part of a tensor begins in each dim, and how long it is there."""

    offsets: Sizes
    sizes: Sizes

    @classmethod
    def whole(cls, sizes: Sizes) -> Box:
        """All of a tensor."""
        return cls(offsets=(0,) * len(sizes), sizes=sizes)

    @property
    def count(self) -> int:
        """How many values it has."""
        return int(torch.Size(self.sizes).numel())

    def common(self, other: Box) -> tuple[tuple[slice, ...], tuple[slice, ...]] | None:
        """What two boxes share, as slices of the first and of the second; None if nothing."""
        mine, theirs = list[slice](), list[slice]()
        spans = zip(self.offsets, self.sizes, other.offsets, other.sizes, strict=True)
        for begin, size, other_begin, other_size in spans:
            low, high = max(begin, other_begin), min(begin + size, other_begin + other_size)
            if low >= high:
                return None
            mine.append(slice(low - begin, high - begin))
            theirs.append(slice(low - other_begin, high - other_begin))
        return tuple(mine), tuple(theirs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """The values `begin` to `end` of a box of a tensor, which has the shape `whole`.

    `values` are those of this rank, in its own memory, to be written or to be read into.
    """

    name: str
    whole: Sizes
    box: Box
    begin: int
    end: int
    values: Tensor = field(compare=False, repr=False)

    def fill(self, box: Tensor) -> None:
        """Overwrite the values with those of the whole box."""
        self.values.copy_(box.reshape(-1)[self.begin : self.end].view(self.values.shape))


def written_pieces(trainer: Trainer) -> list[Piece]:
    """What this rank can write of the state that its next steps depend on.

    Of parameters with fp32 copies only those: the parameters are their rounding.
    """
    pieces = (*_weights(trainer, rounded=False), *_states(trainer))
    return [piece for piece in pieces if piece.end > piece.begin]


def read_pieces(trainer: Trainer) -> list[Piece]:
    """What this rank must read to go on: parameters where there are fp32 copies of them too."""
    pieces = (*_weights(trainer, rounded=True), *_states(trainer))
    return [piece for piece in pieces if piece.end > piece.begin]


def _weights(trainer: Trainer, *, rounded: bool) -> Iterator[Piece]:
    """Every parameter here, or those alone that are not `rounded` from fp32 copies.

    What no gradient trains has no copy. A tied table has one name, whichever end holds it.
    """
    for replica in trainer.replicas:
        copied = needs_masters(replica)
        for name, parameter in replica.stage.named_parameters():
            if rounded or not (copied and parameter.requires_grad):
                local = stored_tensor(parameter).detach()
                yield _piece("weight", _shared_name(trainer, name), parameter, 0, local)


def _states(trainer: Trainer) -> Iterator[Piece]:
    for kind, name, parameter, first, values in trainer.optimizer.state_pieces():
        yield _piece(kind, _shared_name(trainer, name), parameter, first, values)


def _shared_name(trainer: Trainer, name: str) -> str:
    return TOKEN_TABLE if trainer.replicas[0].stage.tied and name == OUTPUT_TABLE else name


def _piece(kind: str, name: str, parameter: nn.Parameter, first: int, values: Tensor) -> Piece:
    """Values of the part of a parameter that is here, from its `first` one on."""
    return Piece(
        name=f"{kind}/{name}",
        whole=tuple(parameter.shape),
        box=_box(parameter),
        begin=first,
        end=first + values.numel(),
        values=values,
    )


def _box(parameter: Tensor) -> Box:
    if not isinstance(parameter, DTensor):
        return Box.whole(tuple(parameter.shape))
    (chunk,) = parameter.__create_chunk_list__()
    return Box(offsets=tuple(chunk.offsets), sizes=tuple(chunk.sizes))


def numbers_of(optimizer: StageOptimizer) -> dict[str, float]:
    """What updates depend on that is the same on all ranks."""
    numbers: dict[str, float] = {"updates": optimizer.updates}
    if optimizer.scaling is not None:
        numbers |= {"skipped": optimizer.skipped, **optimizer.scaling.state}
    return numbers


def set_numbers(optimizer: StageOptimizer, numbers: Mapping[str, float]) -> None:
    """Go on from them; a training that had no scale begins with a plan's own."""
    optimizer.updates = int(numbers["updates"])
    optimizer.skipped = int(numbers.get("skipped", 0))
    if optimizer.scaling is not None and "scale" in numbers:
        optimizer.scaling.state = numbers


def flat_piece(name: str, values: Tensor) -> Piece:
    """A tensor of one dim that is no parameter."""
    size = tuple(values.shape)
    return Piece(
        name=name, whole=size, box=Box.whole(size), begin=0, end=values.numel(), values=values
    )


def generator_states(device: torch.device) -> list[Piece]:
    """What this rank's generators of random numbers draw next, copied."""
    states = {"cpu": torch.get_rng_state(), "device": accelerator(device).generator_state()}
    return [
        flat_piece(f"rng/{dist.get_rank()}/{kind}", state)
        for kind, state in states.items()
        if state is not None
    ]


def set_generators(device: torch.device, states: list[Piece]) -> None:
    """Let this rank's generators go on from what was read."""
    for piece in states:
        if piece.name.endswith("cpu"):
            torch.set_rng_state(piece.values)
        else:
            accelerator(device).set_generator_state(piece.values)
