"""What is trained, where, and with which software: the constant part of every cost."""

from __future__ import annotations

from dataclasses import dataclass, replace

from parsim.cluster.hardware import Cluster, Device, System
from parsim.cost.software import Software
from parsim.errors import InputError
from parsim.model.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """Bytes a parameter, all in fp32: `states` stay, `moved` are read and written by an update.

    Read are the parameter, its gradient and the states, written parameter and states:

        adamw          4 + 4 + 2 x 4  read,  4 + 2 x 4 written
        sgd_momentum   4 + 4 + 4      read,  4 + 4     written
        sgd            4 + 4          read,  4         written

    Source: the update rules (Loshchilov and Hutter 2019, algorithm 2; Polyak 1964).
    """

    name: str
    states: int
    moved: float


NO_UPDATE = Optimizer(name="none", states=0, moved=0.0)
"""Gradients alone, as runs have them that time forward and backward."""
ADAMW = Optimizer(name="adamw", states=8, moved=28.0)
CLIP = 1.0
"""The norm that gradients are clipped to where nothing is said (Brown et al. 2020, appendix B)."""

OPTIMIZERS = {
    optimizer.name: optimizer
    for optimizer in (
        ADAMW,
        Optimizer(name="sgd", states=0, moved=12.0),
        Optimizer(name="sgd_momentum", states=4, moved=20.0),
    )
}


EXPERTS, NETWORKS = ", experts", ", networks"
"""Ends of a practice with mixtures of experts, and with networks of convolutions or cells."""


def kind_of(practice: str) -> str:
    """The end of a practice, which says what kind of model it is of; "" of dense transformers."""
    return next((kind for kind in (EXPERTS, NETWORKS) if practice.endswith(kind)), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """The kinds of node that a rank's data-parallel groups touch, where they are several.

    A collective over such a group takes as long as the slowest of its kinds makes it.
    """

    shard: tuple[System, ...]
    replicate: tuple[System, ...]
    world: tuple[System, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A model on a cluster under a software stack, trained with a global batch.

    `global_batch_size` is the sequences of one step, which every legal plan must add up to; None
    leaves it to the plan. `reach` is given only for one kind of node of a mixed cluster (`on`).
    `clip` is the norm that gradients are clipped to, 0 if they are not. The model's key-value heads
    are laid out as the software does it (`Software.kv_heads`).
    """

    model: Model
    cluster: Cluster
    software: Software
    global_batch_size: int | None = None
    reach: Reach | None = None
    optimizer: Optimizer = ADAMW
    clip: float = CLIP

    def __post_init__(self) -> None:
        gathered = self.software.kv_heads == "gathered"
        object.__setattr__(self, "model", self.model.with_heads_gathered(gathered))

    @property
    def system(self) -> System:
        """The kind of node.

        Raises:
            InputError: the nodes are of several kinds, and the asker takes them all for one.
        """
        if self.cluster.groups:
            raise InputError(
                f"this needs nodes of one kind, but cluster.groups are {self.cluster.words}; mixed "
                f"clusters have step time, memory, timeline, shared links (--contention, "
                f"--beside), --jitter-steps and search; write one group alone, as cluster.system"
            )
        return self.cluster.system

    @property
    def device(self) -> Device:
        """The device of every rank; raises as `system` does."""
        return self.system.device

    @property
    def context_memory(self) -> float:
        """Bytes of the driver's context on the device of every rank; raises as `system` does."""
        return self.software.context_memory(self.device)

    @property
    def usable_memory(self) -> float:
        """Bytes of that device beside the driver's context; raises as `system` does."""
        return self.software.usable_memory(self.device)

    @property
    def update_overhead(self) -> float:
        """Host seconds of an update, which no device hides; 0 where there is none."""
        stack = self.software
        if self.optimizer == NO_UPDATE:
            return 0.0
        if not stack.tensor_update:
            return stack.optimizer_fixed
        return stack.optimizer_fixed + stack.tensor_update * self.model.updated.parameter_tensors

    @property
    def practice(self) -> str:
        """Whose errors tell how sure a prediction is: the software's, for each kind of model.

        What is known of a stack's dense transformers says little of its mixtures and of networks:
        other kernels, other traffic, other bugs.
        """
        if self.model.tokens == 1:
            return f"{self.software.id}{NETWORKS}"
        return self.software.id if self.model.experts is None else f"{self.software.id}{EXPERTS}"

    @property
    def mixed(self) -> bool:
        """Whether the cluster has groups of nodes, equal ones or not."""
        return bool(self.cluster.groups)

    def on(self, system: System, reach: Reach | None = None) -> Job:
        """The job as if all nodes were of one kind, as many as hold the devices."""
        nodes = -(-self.cluster.num_devices // system.devices_per_node)
        return replace(self, cluster=Cluster(system=system, num_nodes=nodes), reach=reach)
