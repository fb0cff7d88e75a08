"""What a module's forward is called with: a tensor for each argument, of one batch or another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from torch import Tensor, nn

from parsim.model.graph.record import INPUT

MANY = 8
"""Samples from which on the other batch is a smaller one."""
TIMES = 4
"""How much larger or smaller the other batch is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Tensors that forward takes by position, then by name; the first one's first size is `size`.

    A tensor that begins with another size is the same one for every batch, such as a mask of
    tokens by tokens. `names` are what a graph calls the tensors, the first of them `input`.
    """

    given: tuple[Tensor, ...]
    named: Mapping[str, Tensor] = field(default_factory=dict)
    names: tuple[str, ...] = (INPUT,)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors, in the order of `names`."""
        return (*self.given, *self.named.values())

    @property
    def size(self) -> int:
        """Samples in the batch."""
        return len(self.tensors[0])

    @property
    def other_size(self) -> int:
        """Samples of `another` batch."""
        return self.size // TIMES if self.size > MANY else self.size * TIMES

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of a sample of the first tensor; of single numbers it is (1,)."""
        return tuple(map(int, self.tensors[0].shape[1:])) or (1,)

    def another(self) -> Batch:
        """A batch of another size of the same samples: repeated, or fewer of them."""
        return self.each(self._resized)

    def each(self, change: Callable[[Tensor], Tensor]) -> Batch:
        """The batch with every tensor changed."""
        named = {name: change(tensor) for name, tensor in self.named.items()}
        return replace(self, given=tuple(map(change, self.given)), named=named)

    def through(self, model: nn.Module) -> object:
        """What a module makes of the batch."""
        made: object = model(*self.given, **self.named)
        return made

    def _resized(self, tensor: Tensor) -> Tensor:
        if len(tensor) != self.size:
            return tensor
        if self.other_size < self.size:
            return tensor[: self.other_size]
        return tensor.repeat(TIMES, *(1 for _ in tensor.shape[1:]))
