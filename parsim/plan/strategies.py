"""What keeps the replicas of a model one model: the data-parallel strategies and their options.

A plan holds one of these records. The synchronous all-reduce of `AllReduce` (DDP, and ZeRO where
the plan shards) is what a plan has that names none; it goes with every other axis. The others are
for replicas that hold the whole model, but for `BranchParallel` and `Layout`, whose workers hold it
in groups.
`parsim/strategy/` has what each makes the ranks do.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from math import prod
from typing import Any, ClassVar, Literal, TypeVar, overload

Algorithm = Literal["ring", "tree", "hierarchical"]
Where = Literal["hosts", "devices"]
Topology = Literal["ring", "exponential"]
Compressing = Literal["top_k", "half"]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduce(Strategy):
    """Gradients are all-reduced in buckets; `algorithm` None is what the library chooses."""

    name: ClassVar[str] = "ddp"
    own_program: ClassVar[bool] = False
    weighs_batches: ClassVar[bool] = True
    algorithm: Algorithm | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleProcess(Strategy):
    """One process drives all devices of a node (nn.DataParallel)."""

    name: ClassVar[str] = "data_parallel"
    one_process: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers(Strategy):
    """Where weights are served, and how gradients go there.

    `servers` share out the parameters (None: one on each host, or each device). `compression` is
    the share of a gradient's bytes that is sent: the largest values with their indices ("top_k",
    what None means; what is not sent is added to the next gradient), or all in 16 bit ("half").
    """

    servers: int | None = None
    on: Where = "hosts"
    compression: float = 1.0
    compressor: Compressing | None = None

    @property
    def feeds_back(self) -> bool:
        """Whether workers keep what they did not send."""
        return self.compression < 1.0 and self.compressor != "half"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterServer(Servers):
    """Servers sum all gradients of a step; those of the last `backup_workers` are dropped.

    With `node_sums` the workers of a node sum their gradients first, each a part of them, and send
    the sum, and each fetches a part of the weights for the others (MXNet's `dist_device_sync`,
    TensorFlow's `distributed_replicated`, BytePS). With `overlap` a worker pushes each part of its
    gradient as soon as the last backward has made it.
    """

    name: ClassVar[str] = "parameter_server"
    weighs_batches: ClassVar[bool] = True
    backup_workers: int = 0
    node_sums: bool = False
    overlap: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AsynchronousServer(Servers):
    """Servers apply each gradient as it comes.

    No worker is more than `staleness` + 1 rounds ahead of the slowest (None: as far as it gets).
    `updates` of each worker are simulated.
    """

    name: ClassVar[str] = "asynchronous_server"
    staleness: int | None = None
    updates: int = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Gossip(Strategy):
    """Workers average their weights with neighbours in every step (D-PSGD)."""

    name: ClassVar[str] = "gossip"
    shares_weights: ClassVar[bool] = False
    topology: Topology = "ring"


@dataclass(frozen=True, slots=True, kw_only=True)
class AsynchronousGossip(Strategy):
    """Workers average their weights with a drawn peer, each at its own pace (AD-PSGD)."""

    name: ClassVar[str] = "asynchronous_gossip"
    shares_weights: ClassVar[bool] = False
    updates: int = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSGD(Strategy):
    """Workers average their weights every so-many-th step.

    Those of a node do so every `node_every` steps (None: with all). The first `after` of `steps`
    average gradients instead (post-local; `steps` None: until the first average of weights).
    """

    name: ClassVar[str] = "local_sgd"
    shares_weights: ClassVar[bool] = False
    every: int = 8
    node_every: int | None = None
    after: int = 0
    steps: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DiLoCo(Strategy):
    """The average of the workers' changes is the gradient of an outer optimizer.

    That is SGD with Nesterov momentum; the defaults are the paper's (arXiv 2311.08105).
    """

    name: ClassVar[str] = "diloco"
    shares_weights: ClassVar[bool] = False
    every: int = 500
    outer_lr: float = 0.7
    outer_momentum: float = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchParallel(Strategy):
    """So many neighbouring workers hold one model together: branches that may run at once, apart.

    `branches` are pairs of a branch's name and its device, 0 to `devices` - 1; what is not named is
    where the simulator puts it (None), or on the device of what it hangs on.
    """

    name: ClassVar[str] = "branch_parallel"
    devices: int = 2
    branches: tuple[tuple[str, int], ...] | None = None

    @property
    def sharers(self) -> int:
        """Workers that hold a model together."""
        return self.devices

    def to_json(self) -> dict[str, Any]:
        """The name with the options; branches as a mapping."""
        given = {} if self.branches is None else {"branches": dict(self.branches)}
        return {"name": self.name, "devices": self.devices, **given}

    def label(self) -> str:
        """How many devices, and how many branches are placed by hand."""
        placed = "" if self.branches is None else f" branches={len(self.branches)} placed"
        return f"{self.name} devices={self.devices}{placed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout(Strategy):
    """A mesh of workers holds one model together, tensors split, whole or partial on each axis.

    `mesh` are names and sizes of axes, the outermost first. Either `layout` maps named dimensions
    to axes (Mesh-TensorFlow), or `signatures` say by operation what devices have of its input,
    weight and output (OneFlow's SBP, "B,S(1)"); what neither states is chosen by cost.
    """

    name: ClassVar[str] = "layout"
    mesh: tuple[tuple[str, int], ...] = (("devices", 2),)
    layout: tuple[tuple[str, str], ...] | None = None
    signatures: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] | None = None

    @property
    def sharers(self) -> int:
        """Workers that hold a model together: devices of the mesh."""
        return prod(size for _, size in self.mesh)

    @property
    def names(self) -> dict[str, str] | None:
        """Axes of named dimensions, where the layout is stated so."""
        return None if self.layout is None else dict(self.layout)

    @property
    def stated(self) -> dict[str, dict[str, str]] | None:
        """Signatures by operation, where they are stated."""
        return None if self.signatures is None else {n: dict(s) for n, s in self.signatures}

    def to_json(self) -> dict[str, Any]:
        """The name with the options, as mappings."""
        given = {"layout": self.names, "signatures": self.stated}
        options = {key: value for key, value in given.items() if value is not None}
        return {"name": self.name, "mesh": dict(self.mesh), **options}

    def label(self) -> str:
        """The mesh, and how the layout is stated."""
        axes = " ".join(f"{name}={size}" for name, size in self.mesh)
        dims = "" if self.layout is None else " " + " ".join(f"{d}:{a}" for d, a in self.layout)
        stated = "" if self.signatures is None else f" signatures={len(self.signatures)} stated"
        return f"{self.name} {axes}{dims}{stated}"


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


STRATEGY_KINDS: dict[str, type[Strategy]] = {
    kind.name: kind
    for kind in (
        AllReduce,
        SingleProcess,
        ParameterServer,
        AsynchronousServer,
        Gossip,
        AsynchronousGossip,
        LocalSGD,
        DiLoCo,
        BranchParallel,
        Layout,
    )
}
"""Strategies by the name that a scenario calls them."""

DDP = AllReduce()
"""What a plan has that names no strategy."""
