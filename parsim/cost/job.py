"""What is trained, where, and with which software: the constant part of every cost."""

from __future__ import annotations

from dataclasses import dataclass

from parsim.cluster.hardware import Cluster, Device, System
from parsim.cost.software import Software
from parsim.model.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A model on a cluster under a software stack."""

    model: Model
    cluster: Cluster
    software: Software

    @property
    def system(self) -> System:
        """The kind of node."""
        return self.cluster.system

    @property
    def device(self) -> Device:
        """The device of every rank."""
        return self.cluster.system.device

    @property
    def practice(self) -> str:
        """Whose errors tell how sure a prediction is: the software's, apart with experts.

        What is known of a stack's dense models says little of its mixtures: other kernels, other
        traffic, other bugs.
        """
        name = self.software.id
        return name if self.model.experts is None else f"{name}, experts"
