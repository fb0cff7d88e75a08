"""A kind of node: its devices, the links inside it, and the network that joins such nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Literal

from parsim.cluster.hardware.device import Device, Measured

Fabric = Literal["nvswitch", "nvlink-mesh", "full-mesh", "pcie", "shared-memory"]
Generation = Literal["volta", "ampere", "hopper", "blackwell", "xgmi", "ici"]
Library = Literal["nccl-2.23", "nccl-2.19", "nccl-2.18", "rccl-2.21", "gloo"]
Tuner = Literal["aws-p5", "aws-p5en", "aws-p6-b200"]
NetworkFabric = Literal["rail-optimised", "fat-tree", "ring", "torus-2d", "torus-3d", "dragonfly"]
LinkClass = Literal[
    "nvlink", "c2c", "pcie", "cpu", "shared-memory", "nic", "spine", "cable", "global", "storage"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class IntraNode:
    """Links inside one NVLink (or xGMI, PCIe, or shared-memory) domain.

    `bandwidth` is what one device can send per second, all its links together; in a `full-mesh` it
    has one of equal links to each other device. `latency` is one hop. `nvls` says the switch can
    reduce and multicast (Hopper NVSwitch and later). `generation` of NVLink, of AMD's xGMI or of
    TPUs' ICI names the constants of collectives; None: Hopper's where `nvls`, else Ampere's.
    `c2c_bandwidth` is NVLink-C2C from a device to its host; None: PCI Express goes there. `torus`
    is how many axes the devices' torus has, whose links groups have by where they lie; 0: none.
    """

    fabric: Fabric
    bandwidth: float
    latency: float
    efficiency: float
    nvls: bool = False
    generation: Generation | None = None
    c2c_bandwidth: float | None = None
    torus: int = 0

    @property
    def rate(self) -> float:
        """Bytes/s that large transfers of one device reach."""
        return self.bandwidth * self.efficiency

    @property
    def meshed(self) -> bool:
        """Whether links join devices directly, without a switch."""
        return self.fabric in ("nvlink-mesh", "full-mesh")


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
    what one device can send, and what all interfaces of a node can (None on one node). `hop` and
    `crossing` are the latencies that the system's file has of a link inside a node and of the
    network, whatever a scenario makes of them (None: those of the system).
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
    hop: float | None = None
    crossing: float | None = None


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
    devices and hosts), of which all wait for the slowest (`cost/stragglers.py`); `rank_spread` is
    the same within one node, where it was measured: fitted constants of kernels hold it already.
    `channels` are the multiprocessors that a collective holds while it runs. `interference`, where
    measured, is the share of a collective's time that compute beside it loses: 0 where copy engines
    do the work, 1 where the core that computes also moves the bytes; without it the loss follows
    from the channels (`cost/layer/interference.py`). `interference_rate` is the links' rate in that
    measurement, bytes/s: where cores move the bytes, slower links take less of them; None: the
    share is the same on any. `message_interference` is the same beside messages that a rank sends
    and receives; None: that of collectives.
    `memory_contention` is by what share an
    update is longer where all devices of a node make one at once and share its memory, as cores do;
    0 where each has memory of its own; `two_way_loss` by what share messages take longer while as
    many bytes go the other way: 0 of full-duplex links, 1 where cores copy either way, more where
    they hinder each other.
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
    interference_rate: float | None = None
    message_interference: float | None = None
    rank_spread: float = 0.0
    memory_contention: float = 0.0
    two_way_loss: float = 0.0
    library: Library = "nccl-2.23"
    tuner: Tuner | None = None
    curves: tuple[Curve, ...] = ()
    topology: tuple[Cable, ...] = ()
    residuals: Measured = field(default_factory=dict, hash=False)
    calibrated: bool = False
    stands_for: str = ""
    host_bandwidth: float | None = None
    host_memory: float | None = None
    sources: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def on_cpu(self) -> bool:
        """Whether its devices are cores of a processor, which ranks may share."""
        return self.intra.fabric == "shared-memory"

    @property
    def uncalibrated(self) -> tuple[str, ...]:
        """Device and system, as far as their constants are the catalog's and not measured."""
        pairs = (("device", self.device), ("system", self))
        return tuple(f"{what} {entry.id}" for what, entry in pairs if not entry.calibrated)

    def of_devices(self, devices: int) -> System:
        """The node with so many devices; in a full mesh each then has a link to each of these."""
        intra = self.intra
        if intra.fabric == "full-mesh":
            links = (devices - 1) / (self.devices_per_node - 1)
            intra = replace(intra, bandwidth=intra.bandwidth * links)
        return replace(self, devices_per_node=devices, intra=intra)

    @property
    def launched_together(self) -> int:
        """Devices of the machine that one launcher starts ranks on."""
        return min(self.devices_per_host or self.devices_per_node, self.devices_per_node)
