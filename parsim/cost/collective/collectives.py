"""Seconds of collectives and of point-to-point messages on a group of ranks.

Seconds come from measured shapes (`parsim/cost/collective/measured_curve.py`), the algorithm and
protocol from NCCL's own model (`parsim/cost/collective/nccl.py`); gloo has a ring of its own. Sizes
follow nccl-tests: S is the whole array for all-gather and reduce-scatter, and what one rank sends
in all for all-to-all.

A system's `call_overhead` comes on top. Measured shapes hold what a call takes in a loop of
collectives alone; the overhead is what a training step adds, where ranks arrive late and the call
goes through the framework. A benchmark of collectives is compared without it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from parsim.arrays import Array, Flags
from parsim.cluster.hardware import System
from parsim.cost.collective.group_bandwidth import GLOO, Groups
from parsim.cost.collective.kinds import CONSTANTS, CollectiveKind
from parsim.cost.collective.measured_curve import shape
from parsim.cost.collective.modelled import least_seconds
from parsim.cost.collective.tuner import chosen, tuned
from parsim.cost.kernel.residuals import measured_factor


def collective_time(
    system: System,
    kind: CollectiveKind,
    size: Array | float,
    where: Groups,
    *,
    queued: bool = False,
) -> Array:
    """Time of one collective on each plan's group; 0 for groups of one rank.

    latency + S / bandwidth + ramp sqrt(S / 1 MiB), never below S over the links, plus the system's
    call overhead, times what a calibration measured beside the model.

    Args:
        system: link rates, curves and overheads.
        kind: which collective.
        size: S bytes, nccl-tests convention.
        where: placement of the groups.
        queued: one of a row of calls on a stream of their own, whose ranks have met before it.

    Source: public curves, reports/collectives.md: median error 4 % within an NVLink domain and 5 %
    across nodes for curves that the constants have not seen, 1 MiB and more.
    Leaves out: sharing of links with other traffic, dips where NCCL changes protocol.
    """
    size = np.asarray(size, dtype=np.float64)
    if not np.any(where.size > 1):
        return np.zeros(np.broadcast_shapes(size.shape, where.size.shape))
    seconds = shape(system, kind, where).seconds(size)
    if system.library != GLOO:
        if system.tuner is not None:
            seconds = tuned(system, kind, size, where, seconds)
        seconds = np.maximum(seconds, least_seconds(system, kind, size, where))
    return _called(system, kind, size, where, seconds + _overhead(system, where, queued))


def waiting_time(
    system: System,
    kind: CollectiveKind,
    size: Array | float,
    where: Groups,
    *,
    queued: bool = False,
) -> Array:
    """Seconds of a collective in which its bytes do not flow: latency at its size, and call.

    Args as of `collective_time`.
    """
    small = collective_time(system, kind, 1.0, where, queued=queued)
    return np.asarray(small + longer_wait(system, kind, size, where))


def longer_wait(system: System, kind: CollectiveKind, size: Array | float, where: Groups) -> Array:
    """By how much the latency of S bytes exceeds that of one byte, seconds.

    Nothing where the system's plugin chooses the algorithm.
    """
    size = np.asarray(size, dtype=np.float64)
    figures = shape(system, kind, where)
    more = figures.waiting(size) - figures.waiting(1.0)
    return np.where(chosen(system, kind, size, where) < 0, more, 0.0)


def _overhead(system: System, where: Groups, queued: bool) -> Array:
    """Seconds that a call costs in a step beyond a benchmark, (B,).

    The part that grows with the ranks is what compute waits for the last of the processes of a node
    to launch its part: between nodes nobody has measured it, and a call that is queued behind
    others of its group finds all ranks there.

    Source: 24 dense rows of SimuMax, tensor-parallel groups of 2 to 8 in a node of B200; as much
    for every further rank of any group put 8B on 64 to 256 B200 (MLPerf Training 5.1) at two to
    five times their step.
    """
    late = 0.0 if queued else system.call_overhead_per_rank * (where.per_node - 1.0)
    return np.asarray(system.call_overhead + late)


def _called(
    system: System, kind: CollectiveKind, size: Array, where: Groups, seconds: Array
) -> Array:
    seconds = seconds * _measured(system, kind, size, where)
    return np.where((where.size > 1) & (size > 0), seconds, 0.0)


def _measured(system: System, kind: CollectiveKind, size: Array, where: Groups) -> Array | float:
    """What a calibration of one node measured beside the model, by size and ranks of the group."""
    if kind not in system.residuals:
        return 1.0
    ranks = np.maximum(where.size, 2.0)
    factor = measured_factor(system.residuals, kind, size, ranks)
    return np.where(where.nodes > 1, 1.0, factor)


def time_at_share(
    system: System,
    kind: CollectiveKind,
    size: Array,
    where: Groups,
    share: Array | float,
    *,
    queued: bool,
) -> Array:
    """Seconds with a share of the best bandwidth; latency and ramp are kept."""
    best = shape(system, kind, where)
    slower = replace(best, bandwidth=best.bandwidth * share)
    seconds = np.maximum(slower.seconds(size), least_seconds(system, kind, size, where))
    return _called(system, kind, size, where, seconds + _overhead(system, where, queued))


def p2p_time(
    system: System,
    size: Array | float,
    *,
    crosses: Flags | bool,
    sharing: Array | float,
    spine: Array | float = 1.0,
    share: Array | float = 1.0,
) -> Array:
    """Time of one message between two ranks.

    latency + S / bandwidth, in a mesh that of the cables between the two; across nodes the senders
    of one node share its interfaces, and those of a leaf group its up-links. NCCL adds what its
    call takes; gloo's is all in the system's overhead.

    Args:
        system: link rates.
        size: bytes of the message.
        crosses: whether the message leaves the node.
        sharing: how many ranks of a node send at the same time.
        spine: what the up-links leave of an interface's bandwidth, as a divisor (`spine_divisor`).
        share: what the two have of a device's rate inside their node (`pair_share`).

    Source: alpha-beta model; one hop from the system file, NCCL's call from `CONSTANTS`.
    Leaves out: protocol switch of small messages, other traffic on the same links.
    """
    size = np.asarray(size, dtype=np.float64)
    near, far = (0.0, 0.0)
    if system.library != GLOO:
        near, far = CONSTANTS.message, CONSTANTS.message_across
    inside = near + system.intra.latency + size / (system.intra.rate * share)
    network = system.network
    if network is None:
        across = np.full(size.shape, np.inf)
    else:
        lane = np.minimum(network.nic_bandwidth, network.node_bandwidth / np.maximum(sharing, 1.0))
        across = far + network.latency + size / (lane * network.efficiency / spine)
    seconds = np.where(crosses, across, inside) + system.call_overhead
    return np.where(size > 0, seconds * measured_factor(system.residuals, "send_recv", size), 0.0)
