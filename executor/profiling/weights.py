"""Which parameters an exported graph's operations use, each counted where it is used first.

get_attr pos ── expand ──┐          a table that is no operation's weight belongs to
input ── conv ───────── add         the operation that takes it
input ── linear(w) ── linear(w)     the second use owns no weight
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from torch import fx, nn

from executor.profiling.stored import memory_of
from parsim.model.graph.operation import Operation
from parsim.model.graph.texts import Dense, Embedding


class Weights:
    """Parameters behind each node that no input reaches, and those that are counted already."""

    def __init__(self) -> None:
        self.behind: dict[str, list[nn.Parameter]] = {}
        self.counted: set[int] = set()
        self.tables: dict[tuple[int, ...], int] = {}
        """By the sizes of a table the memory of the first one, whose node owns it."""

    def made_of(self, n: fx.Node, result: object) -> None:
        """Note what a node that no input reaches is made of."""
        parameters = [result] if isinstance(result, nn.Parameter) else self.of(n)
        if parameters:
            self.behind[n.name] = parameters

    def of(self, n: fx.Node) -> list[nn.Parameter]:
        """The parameters among a node's arguments, or behind them."""
        return [p for arg in n.all_input_nodes for p in self.behind.get(arg.name, [])]

    def count(self, parameters: Iterable[nn.Parameter]) -> None:
        """Note that parameters belong to an operation."""
        self.counted.update(map(memory_of, parameters))

    def new(self, parameters: Iterable[nn.Parameter]) -> int:
        """Numbers in those parameters that belong to no operation yet."""
        first = {memory_of(parameter): parameter for parameter in parameters}
        return sum(p.numel() for memory, p in first.items() if memory not in self.counted)

    def owning(self, operation: Operation, weight: object) -> Operation:
        """The operation, which owns no weight where the first table of its sizes is the same one.

        Leaves out: a bias that is shared too, and weights of other operations, which count again.
        """
        if not isinstance(weight, nn.Parameter) or not isinstance(operation, Dense | Embedding):
            return operation
        memory = memory_of(weight)
        first = self.tables.setdefault(tuple(weight.shape), memory)
        again = memory in self.counted and first == memory
        return replace(operation, owns_weight=False) if again else operation
