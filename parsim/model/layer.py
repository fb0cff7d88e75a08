"""A layer: operators one after another, some of them side by side in branches that join again.

    input --> norm --> product --+--> product --> gelu --+--> residual --> output
                                 +--> product -----------+
                                 +-----------------------+      an empty path passes its input on

The unit that stage cuts and recomputation work on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from parsim.model.operators import Elementwise, Experts, Linear, Operator, forward_flops


@dataclass(frozen=True, slots=True, kw_only=True)
class Branches:
    """Paths that start from one tensor and join; a device runs them one after another.

    What joins them (a sum, a concatenation) is the operator behind them.
    """

    paths: tuple[tuple[Part, ...], ...]


Part = Operator | Branches


def is_trained(part: Part) -> bool:
    """Whether backward makes gradients of a part's parameters: of one on a path of branches too."""
    if isinstance(part, Branches):
        return any(is_trained(each) for path in part.paths for each in path)
    if isinstance(part, Elementwise) and not part.repeated_parameters:
        return False
    return bool(getattr(part, "trained", False))


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Operators in execution order, and the values of a sample that cross the layer's two borders.

    `inputs` values enter and `outputs` leave. An `outer` layer (embedding, head) stands before or
    behind those that stage cuts count: it is never recomputed nor quantised, and belongs to the
    sharded root. `operators` are those of all paths, in the order in which one device runs them.
    """

    name: str
    parts: tuple[Part, ...]
    inputs: int
    outputs: int
    outer: bool = False
    operators: tuple[Operator, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "operators", tuple(_in_order(self.parts)))

    @property
    def make_up(self) -> str:
        """Which operators it has, in the order of each one's first, and how many: norm2-linear4."""
        counts = Counter(
            getattr(op, "kind", "") or type(op).__name__.lower() for op in self.operators
        )
        return "-".join(f"{kind}{count if count > 1 else ''}" for kind, count in counts.items())

    @property
    def split_parameters(self) -> int:
        """Parameters divided by tensor parallelism."""
        return sum(op.split_parameters for op in self.operators)

    @property
    def repeated_parameters(self) -> int:
        """Parameters held by every tensor-parallel rank."""
        return sum(op.repeated_parameters for op in self.operators)

    @property
    def parameters(self) -> int:
        """All parameters of the layer."""
        return self.split_parameters + self.repeated_parameters + self.expert_parameters

    @property
    def parameter_tensors(self) -> int:
        """How many tensors its parameters are: matrices, biases, gains and shifts one by one."""
        return sum(_tensors(op) for op in self.operators)

    def with_heads_gathered(self, gathered: bool) -> Layer:
        """The layer with its shared heads gathered or copied; itself if it is so already."""
        shared = [getattr(op, "shared", None) for op in self.operators]
        if all(heads is None or heads.gathered is gathered for heads in shared):
            return self
        return replace(self, parts=tuple(_with_heads(self.parts, gathered)))

    @property
    def experts(self) -> Experts | None:
        """The layer's experts, if it has any."""
        return next((op for op in self.operators if isinstance(op, Experts)), None)

    @property
    def expert_parameters(self) -> int:
        """Parameters of experts, routers not among them; divided by ep and etp."""
        return sum(op.expert_parameters for op in self.operators if isinstance(op, Experts))

    @property
    def shared_inputs(self) -> frozenset[int]:
        """Positions of products whose input is that of another path's first product, kept there."""
        return frozenset(_shared_inputs(self.parts, 0))

    def forward_flops(self, batch: int) -> int:
        """Model FLOPs of one forward pass of `batch` samples (matrix products only)."""
        return sum(forward_flops(op, batch) for op in self.operators)

    def step_flops(self, batch: int) -> int:
        """Model FLOPs of a forward and a backward pass of `batch` samples."""
        passes = ((3 if getattr(op, "trained", True) else 2, op) for op in self.operators)
        return sum(count * forward_flops(op, batch) for count, op in passes)


def _tensors(op: Operator) -> int:
    """Tensors of an operator: a pass's are a gain and a shift, a product has a bias or none."""
    if isinstance(op, Elementwise):
        return 2 if op.repeated_parameters else 0
    parameters = op.split_parameters + op.repeated_parameters
    return (1 + bool(getattr(op, "bias", False))) if parameters else 0


def _with_heads(parts: tuple[Part, ...], gathered: bool) -> Iterator[Part]:
    for part in parts:
        if isinstance(part, Branches):
            yield Branches(paths=tuple(tuple(_with_heads(p, gathered)) for p in part.paths))
        elif isinstance(part, Linear | Elementwise) and part.shared is not None:
            yield replace(part, shared=replace(part.shared, gathered=gathered))
        else:
            yield part


def _in_order(parts: tuple[Part, ...]) -> Iterator[Operator]:
    for part in parts:
        if isinstance(part, Branches):
            for path in part.paths:
                yield from _in_order(path)
        else:
            yield part


def _shared_inputs(parts: tuple[Part, ...], start: int) -> Iterator[int]:
    """Positions, of operators counted from `start`, that begin a path like one before it."""
    for part in parts:
        if not isinstance(part, Branches):
            start += 1
            continue
        kept = False
        for path in part.paths:
            yield from _shared_inputs(path, start)
            operators = tuple(_in_order(path))
            if operators and isinstance(operators[0], Linear):
                if kept:
                    yield start
                kept = kept or operators[0].trained
            start += len(operators)
