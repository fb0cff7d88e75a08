"""Memory that autograd keeps for backward, by the operation that asks for it.

Several tensors may be views of one storage, and several operations may keep it: it counts once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

VALUE = torch.finfo(torch.float32).bits // 8
"""Bytes of a value, in which kept memory is written to the model file."""


def memory_of(tensor: Tensor) -> int:
    """Where a tensor's storage begins: views of one storage have the same number."""
    return int(tensor.untyped_storage().data_ptr())


class Stored:
    """Writes down what is stored inside of its `with`, for the operation that `at` names.

    Memory of `without`, parameters and buffers, is there in any case and not counted.
    """

    def __init__(self, without: Iterable[Tensor]) -> None:
        self.at = ""
        self._without = {memory_of(tensor) for tensor in without}
        self._by_name: dict[str, dict[int, int]] = {}
        self._alive: list[Tensor] = []
        self._hooks = saved_tensors_hooks(self._packed, lambda tensor: tensor)

    def __enter__(self) -> Stored:
        """Begin to write down."""
        self._hooks.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        """End writing down what is stored."""
        self._hooks.__exit__()

    def _packed(self, tensor: Tensor) -> Tensor:
        where = memory_of(tensor)
        if where not in self._without:
            self._by_name.setdefault(self.at, {})[where] = tensor.untyped_storage().nbytes()
            self._alive.append(tensor.detach())  # else its memory may be given to another
        return tensor

    def values(self, names: Collection[str], batch: int) -> dict[str, int]:
        """Values of a sample that only the named operations keep, each counted for the first."""
        counted = {
            where for name, memory in self._by_name.items() if name not in names for where in memory
        }
        return dict(self._counted(names, counted, batch * VALUE))

    def _counted(
        self, names: Collection[str], counted: set[int], unit: int
    ) -> Iterator[tuple[str, int]]:
        for name in names:
            memory = self._by_name.get(name, {})
            new = sum(size for where, size in memory.items() if where not in counted)
            counted.update(memory)
            yield name, -(-new // unit)
