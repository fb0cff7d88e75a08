"""Devices, the links of a system, and clusters of its nodes, as the catalog describes them.

Rates are per device or per link and one direction: bytes/s, FLOP/s. Vendors quote NVLink in both
directions and networks in bits; the catalog's readers convert. An efficiency is the share of the
quoted rate that a long-running kernel or transfer reaches; every number's origin is in `sources`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Literal

from parsim.cluster.evidence import RecordedStep
from parsim.errors import CatalogError

Tiles = Literal["core", "ampere", "hopper", "blackwell"]
Fabric = Literal["nvswitch", "nvlink-mesh", "pcie", "shared-memory"]
Generation = Literal["volta", "ampere", "hopper", "blackwell"]
Library = Literal["nccl-2.23", "nccl-2.19", "nccl-2.18", "gloo"]
Tuner = Literal["aws-p5", "aws-p5en", "aws-p6-b200"]
NetworkFabric = Literal["rail-optimised", "fat-tree", "ring", "torus-2d", "torus-3d", "dragonfly"]
LinkClass = Literal[
    "nvlink", "c2c", "pcie", "cpu", "shared-memory", "nic", "spine", "cable", "global", "storage"
]

CONVOLUTION: Mapping[str, float] = {
    "1x1_forward": 0.85,
    "1x1_data": 0.61,
    "1x1_weight": 0.49,
    "3x3_forward": 1.57,
    "3x3_data": 1.60,
    "3x3_weight": 1.90,
    "strided_forward": 0.85,
    "strided_data": 0.58,
    "strided_weight": 0.64,
    "other_forward": 1.09,
    "other_data": 1.39,
    "other_weight": 1.18,
    "tensor_forward": 1.0,
    "tensor_data": 1.0,
    "tensor_weight": 1.0,
}
"""Shares of the fp32 peak (direct FLOPs) by class and direction, and of the tile model's rate on
matrix units, where a device does not say its own. Source: V100 SXM2 in fp32, DeepBench
(baidu-research, commit da81ba7), 94 layers, least mean |log| error (24 %) beside 30 us a kernel and
bytes at 0.8 of the bandwidth."""

MOST_DEVICES = 1_000_000
"""Devices of a cluster: ten times the largest built."""

Measured = Mapping[str, tuple[tuple[float, ...], ...]]
"""Kind of kernel or collective -> measured points: coordinates, then measured over modelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One accelerator (or CPU socket share) and how well kernels use it.

    `peak_flops` maps a precision (fp32 tf32 fp16 bf16 fp8 mxfp8 nvfp4) to dense FLOP/s.
    `sm_count` is the number of multiprocessors a GEMM's tiles are dealt to. The `gemm_*`
    constants are those of the tile model in `parsim/cost/kernel/gemm.py`, in this order: which
    tiles there are; share of the peak one block reaches; depth k that a block's prologue and
    epilogue are worth; launch; how much a partly full last wave costs; bytes/s through the
    cache to the multiprocessors and share of the memory bandwidth; launch of a split-K
    reduction; factor of accumulating into fp32; by how much kernels longer than
    `gemm_boost_time` slow down with the clock. `gemm_unaligned` and `gemm_odd` are the shares of
    the rate where rows start at multiples of 4 or 8 bytes, and of 2, instead of 16.
    `fp8_efficiency` is the share of its peak that a product of 8 bit or less reaches, over that of
    a 16-bit one. `gemm_sustained` and
    `attention_sustained` are the shares of those rates that a training step sustains beside a
    benchmark (clocks, power, data). `attention_*_efficiency` holds for heads up to 128, times
    `attention_*_wide` beyond; the `*_tail` seconds are in `attention_time`. `grouped_*` are
    those of `grouped_gemm_time`, `convolution` of `convolution_time`, `kernel_latency` is the
    least time of a kernel. `calibrated` is True only for constants measured on a real device of
    this kind; otherwise they are the catalog's and predictions say so. `residuals` are a
    calibration's measured times over the constants' (see `parsim/cost/kernel/residuals.py`);
    `spreads`, `unmeasured` and `steps` say how sure it is, what it could not measure, and which
    runs were recorded (`parsim/cluster/evidence.py`).
    `power` are the watts that it is designed for (None: nobody says), `server_factor` those that a
    server is rated at over its devices'.
    """

    id: str
    name: str
    memory: float
    memory_bandwidth: float
    peak_flops: Mapping[str, float]
    sm_count: int
    gemm_efficiency: float
    gemm_k_half: float
    gemm_latency: float
    gemm_wave_quantisation: float
    gemm_cache_bandwidth: float
    gemm_memory_efficiency: float
    gemm_split_latency: float
    memory_efficiency: float
    attention_forward_efficiency: float
    attention_backward_efficiency: float
    kernel_latency: float
    gemm_tiles: Tiles = "ampere"
    fp8_efficiency: float = 0.8
    gemm_unaligned: float = 1.0
    gemm_odd: float = 1.0
    gemm_accumulate_factor: float = 1.0
    gemm_clock_drop: float = 1.0
    gemm_boost_time: float = 0.0
    gemm_sustained: float = 1.0
    attention_forward_wide: float = 1.0
    attention_backward_wide: float = 1.0
    attention_forward_latency: float = 0.0
    attention_backward_latency: float = 0.0
    attention_forward_floor: float = 0.0
    attention_backward_floor: float = 0.0
    attention_sustained: float = 1.0
    grouped_gemm_efficiency: float = 0.5
    grouped_weight_efficiency: float = 0.4
    grouped_gemm_latency: float = 3.6e-6
    grouped_gemm_floor: float = 4.6e-6
    launch_factor: float = 1.0
    convolution: Mapping[str, float] = field(default_factory=dict)
    context_memory: float = 0.0
    power: float | None = None
    server_factor: float = 1.8
    residuals: Measured = field(default_factory=dict)
    spreads: Mapping[str, float] = field(default_factory=dict)
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    steps: tuple[RecordedStep, ...] = ()
    calibrated: bool = False
    sources: Mapping[str, str] = field(default_factory=dict)

    def convolution_share(self, name: str) -> float:
        """Share of the rate that convolutions of a class and direction reach, `3x3_forward`."""
        return self.convolution.get(name, CONVOLUTION[name])

    @property
    def usable_memory(self) -> float:
        """Memory left for the training process beside the driver's context, bytes."""
        return self.memory - self.context_memory

    def peak(self, precision: str) -> float:
        """Dense peak FLOP/s in a precision.

        Raises:
            CatalogError: the device has no such precision.
        """
        if precision not in self.peak_flops:
            raise CatalogError(
                f"device {self.id} has no {precision} peak; allowed: {', '.join(self.peak_flops)}"
            )
        return self.peak_flops[precision]


@dataclass(frozen=True, slots=True, kw_only=True)
class IntraNode:
    """Links inside one NVLink (or PCIe, or shared-memory) domain.

    `bandwidth` is what one device can send per second, all its links together. `latency` is one
    hop. `nvls` says the switch can reduce and multicast (Hopper NVSwitch and later). `generation`
    of NVLink names the constants of collectives; None: Hopper's where `nvls`, else Ampere's.
    `c2c_bandwidth` is NVLink-C2C from a device to its host; None: PCI Express goes there.
    """

    fabric: Fabric
    bandwidth: float
    latency: float
    efficiency: float
    nvls: bool = False
    generation: Generation | None = None
    c2c_bandwidth: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Network interfaces of a node and the fabric above them.

    `nic_bandwidth` is one interface, one direction. `oversubscription` is leaf down-link over
    up-link capacity (1: full bisection). `nodes_per_leaf` counts nodes under one leaf (rail) group.
    `sharp` says that its switches reduce and that NCCL's CollNet plugin uses them. `fabric` is how
    leaves and spines are wired (`topology/fabrics.py`), `rails` how many of a rail-optimised one a
    node has (None: one for each interface). `spines` is the number of spine switches
    among which a hash chooses (static ECMP); 1 stands for all of them, as adaptive routing uses.
    """

    nics_per_node: int
    nic_bandwidth: float
    latency: float
    efficiency: float
    oversubscription: float = 1.0
    nodes_per_leaf: int = 32
    sharp: bool = False
    fabric: NetworkFabric = "fat-tree"
    rails: int | None = None
    spines: int = 1

    @property
    def node_bandwidth(self) -> float:
        """All interfaces of a node together, one direction, bytes/s."""
        return self.nics_per_node * self.nic_bandwidth


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Measured times of one collective: latency + S / bandwidth + ramp sqrt(S / 1 MiB), seconds.

    Of `ranks` ranks on `nodes` nodes, sizes `least` to `most` bytes. `bandwidth` is that of S
    (algbw) for endless S. `link` and `node_bandwidth` are the rates it was measured at, bytes/s:
    what one device can send, and what all interfaces of a node can (None on one node).
    """

    collective: str
    ranks: int
    nodes: int
    latency: float
    bandwidth: float
    ramp: float
    link: float
    node_bandwidth: float | None
    least: float
    most: float
    source: str


@dataclass(frozen=True, slots=True)
class Cable:
    """A full-duplex link between two parts: bytes/s each way, seconds, share that NCCL reaches.

    Parts are named kind:index, in a catalog file within one node: gpu:0, nvswitch:0, nic:3.
    """

    source: str
    target: str
    link_class: LinkClass
    bandwidth: float
    _: KW_ONLY
    latency: float = 0.0
    efficiency: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """A kind of node and how nodes are joined.

     `devices_per_node` shares one NVLink domain, `devices_per_host` one operating system, which
    is what a launcher starts ranks on (NVL72: 72 and, in a compute tray, 4); 0: the node is the
    host. `call_overhead` is what one collective call costs in a training step beyond a
    benchmark of collectives, `call_overhead_per_rank` what each further rank of the group in
    the node adds where compute waits for the call (seconds). `library` and its release do the
    collectives, `tuner` names the plugin that chooses their algorithms instead
    (`cost/collective/tuner.py`); `curves` are its measured ones. `straggler_spread` is the
    standard deviation, as a share, of the time that ranks take for a step (variation between
    devices and hosts), of which all wait for the slowest (`cost/step/step.py`).
    `channels` are the multiprocessors that a collective holds while it runs. `interference`, where
    measured, is the share of a collective's time that compute beside it loses: 0 where copy engines
    do the work, 1 where the core that computes also moves the bytes; without it the loss follows
    from the channels (`cost/layer/interference.py`).
    `residuals` are as for a device. `topology`, where written, are the cables in a node;
    otherwise `topology/node_cables.py` makes them. `stands_for` names
    a system that nobody described and that this one was built for. `host_bandwidth` is what the
    memory of a node's hosts moves, bytes/s, `host_memory` their bytes; None: nobody said.
    """

    id: str
    name: str
    device: Device
    devices_per_node: int
    intra: IntraNode
    network: Network | None
    call_overhead: float
    call_overhead_per_rank: float
    straggler_spread: float
    devices_per_host: int = 0
    channels: int = 0
    interference: float | None = None
    library: Library = "nccl-2.23"
    tuner: Tuner | None = None
    curves: tuple[Curve, ...] = ()
    topology: tuple[Cable, ...] = ()
    residuals: Measured = field(default_factory=dict)
    calibrated: bool = False
    stands_for: str = ""
    host_bandwidth: float | None = None
    host_memory: float | None = None
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def on_cpu(self) -> bool:
        """Whether its devices are cores of a processor, which ranks may share."""
        return self.intra.fabric == "shared-memory"

    @property
    def uncalibrated(self) -> tuple[str, ...]:
        """Device and system, as far as their constants are the catalog's and not measured."""
        pairs = (("device", self.device), ("system", self))
        return tuple(f"{what} {entry.id}" for what, entry in pairs if not entry.calibrated)

    @property
    def launched_together(self) -> int:
        """Devices of the machine that one launcher starts ranks on."""
        return min(self.devices_per_host or self.devices_per_node, self.devices_per_node)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """Equal nodes of a mixed cluster, by the name that scenario, plan and results call them."""

    name: str
    system: System
    num_nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """`num_nodes` nodes of one system, or of those of `groups` (`cluster/groups.py`).

    `placement` is the device of each rank; None: rank order. `failed` are parts (nic:0.3) and
    cables (leaf:0.1->spine:0) of the graph that are out of order, so that routes avoid them. Of a
    mixed cluster `system` is the first group's, whose switches all nodes are on; whoever prices
    with it asks `Job.system`, which refuses a mixed one.
    """

    system: System
    num_nodes: int
    placement: tuple[int, ...] | None = None
    failed: tuple[str, ...] = ()
    groups: tuple[NodeGroup, ...] = ()

    def __repr__(self) -> str:
        return f"<Cluster {self.words}: {self.num_devices} devices>"

    def __post_init__(self) -> None:
        if self.num_nodes < 1:
            raise CatalogError(f"nodes={self.num_nodes} must be at least 1")
        if self.num_devices > MOST_DEVICES:
            raise CatalogError(
                f"nodes={self.num_nodes} have {self.num_devices} devices; allowed: at most "
                f"{MOST_DEVICES}"
            )
        if self.num_nodes > 1 and self.system.network is None:
            raise CatalogError(
                f"system {self.system.id} has no network, so nodes={self.num_nodes} cannot be "
                f"joined; use nodes=1 or a system with a network"
            )
        if self.placement is not None:
            check_placement(self.placement, self.num_devices)

    @property
    def num_devices(self) -> int:
        """Devices in all nodes."""
        if self.groups:
            return sum(group.num_nodes * group.system.devices_per_node for group in self.groups)
        return self.num_nodes * self.system.devices_per_node

    @property
    def systems(self) -> tuple[System, ...]:
        """The kinds of node: one of each group, or the only one."""
        return tuple(group.system for group in self.groups) or (self.system,)

    @property
    def devices(self) -> tuple[Device, ...]:
        """The device of each kind of node."""
        return tuple(system.device for system in self.systems)

    @property
    def words(self) -> str:
        """Which nodes: 2 x dgx-h100, or 2 x dgx-h100 (fast) + 2 x dgx-a100 (slow)."""
        named = (f"{group.num_nodes} x {group.system.id} ({group.name})" for group in self.groups)
        return " + ".join(named) or f"{self.num_nodes} x {self.system.id}"

    @property
    def device(self) -> Device:
        """The device kind of every node."""
        return self.system.device


def check_placement(placement: Sequence[int], devices: int) -> None:
    """Refuse a map of ranks to devices with a device out of range or twice.

    Raises:
        CatalogError: the first rank whose device is wrong.
    """
    first: dict[int, int] = {}
    for rank, device in enumerate(placement):
        if not 0 <= device < devices:
            raise CatalogError(
                f"puts rank {rank} on device {device}, which is out of range; "
                f"allowed: 0 to {devices - 1}"
            )
        if device in first:
            raise CatalogError(
                f"puts ranks {first[device]} and {rank} on device {device}; "
                f"each device takes one rank"
            )
        first[device] = rank
    if len(placement) != devices:
        raise CatalogError(f"places {len(placement)} ranks; the cluster has {devices} devices")
