"""The record that every data-parallel strategy is: a name, options, and what it means for ranks."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, TypeVar, overload


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """A data-parallel strategy: its name in scenarios, and the options of its class."""

    name: ClassVar[str] = ""
    own_program: ClassVar[bool] = True
    """Whether its step is not that of the synchronous all-reduce."""
    one_process: ClassVar[bool] = False
    """Whether a single process has all devices."""
    shares_weights: ClassVar[bool] = True
    """Whether all workers go on with the same weights, or copies of a server's, in each round."""
    weighs_batches: ClassVar[bool] = False
    """Whether unequal batches of the workers still give the gradient of all samples."""

    @property
    def sharers(self) -> int:
        """Workers that hold a model together, and compute all their samples with it."""
        return 1

    def to_json(self) -> dict[str, Any]:
        """The name with the options that are set."""
        return {"name": self.name, **{k: v for k, v in asdict(self).items() if v is not None}}

    def label(self) -> str:
        """The name with the options that differ from the usual ones: `local_sgd every=8`."""
        usual = {field.name: field.default for field in fields(self)}
        given = ((k, v) for k, v in asdict(self).items() if v != usual[k])
        return " ".join([self.name, *(f"{key}={value}" for key, value in given)])


S = TypeVar("S", bound="Strategy")
T = TypeVar("T", bound="Strategy")


@overload
def of_kind(strategy: Strategy, kind: type[S], /) -> S: ...
@overload
def of_kind(strategy: Strategy, kind: type[S], other: type[T], /) -> S | T: ...
def of_kind(strategy: Strategy, /, *kinds: type[Strategy]) -> Strategy:
    """The strategy as one of these kinds, whose options the caller reads.

    Raises:
        TypeError: it is another one, which is a mistake in a table of functions by strategy.
    """
    if isinstance(strategy, kinds):
        return strategy
    names = " or ".join(kind.__name__ for kind in kinds)
    raise TypeError(f"strategy {strategy.name} is not {names}")
