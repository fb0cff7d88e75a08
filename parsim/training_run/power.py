"""Watts of a device that trains, with its share of the server and of the site.

    P = power x (LOAD x server_factor - (BUSY - IDLE) x (1 - computing)) x PUE

`power` is what the device is designed for, `server_factor` what a server is rated at over that of
its devices, `computing` the share of the step in which the device runs kernels. Where it always
does, a server draws LOAD of its rating; while it waits, it draws less by what a device that waits
draws less than one that works. Host, fans and interfaces are taken as constant.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from parsim.cluster.hardware import Cluster, Device

LOAD: Final = 0.76
"""The share of a rated 10.2 kW that 8 H100 drew in heavy training (arXiv:2506.14551)."""
BUSY: Final = 0.85
"""The largest share of its rated power that an H100 drew in training (arXiv:2503.05804)."""
IDLE: Final = 0.11
"""The share of its rated power that an idle H200 draws: 74 to 80 W of 700 W."""
SPREAD: Final = 0.2
"""Error of the whole, 80 %: a model by FLOPs was off by 11 %, one by power alone by 27 to 37 %
(arXiv:2506.14551)."""


def device_watts(device: Device, computing: float, pue: float) -> float | None:
    """Watts of one device at the site's meter; None where the catalog has no power of it."""
    if device.power is None:
        return None
    share = LOAD * device.server_factor - (BUSY - IDLE) * (1.0 - computing)
    return device.power * share * pue


def cluster_watts(cluster: Cluster, computing: float, pue: float) -> float | None:
    """Watts of all devices of a cluster; None where one kind has no power in the catalog."""
    watts = 0.0
    for device, number in device_numbers(cluster):
        each = device_watts(device, computing, pue)
        if each is None:
            return None
        watts += number * each
    return watts


def device_numbers(cluster: Cluster) -> list[tuple[Device, int]]:
    """Each kind of device and how many of it there are."""
    if not cluster.groups:
        return [(cluster.device, cluster.num_devices)]
    return [
        (group.system.device, group.num_nodes * group.system.devices_per_node)
        for group in cluster.groups
    ]


WORKING: Final = ("forward", "backward", "recompute", "optimizer")
"""Parts of a step in which devices run kernels; in the others they wait or communicate."""


def computing_share(breakdown: Mapping[str, float], step_time: float) -> float:
    """The share of a step in which the mean device runs kernels."""
    return min(sum(breakdown.get(name, 0.0) for name in WORKING) / step_time, 1.0)
