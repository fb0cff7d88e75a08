"""What servers on devices take from the workers there, who compute while others' gradients come.

    worker 0   | F        B ~~~ | push, pull | F  ...
    server 0             | UPDATE |             of worker 1's gradient, on worker 0's device

Of every other worker's gradient the update takes the device whole (not the host, whose fixed cost
holds up no kernels), and its messages take what messages take of compute beside them. What comes
while the worker itself waits takes nothing: of a compute of C seconds in rounds of R the share
C / R is taken,

    R = max(C + exchange, n (update + messages of one server))

where the right side is a server that all n workers keep busy.

Leaves out: that workers which are held up send fewer gradients to the others.
"""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array
from parsim.sim.data_parallel.server_wires import ServerWires
from parsim.sim.data_parallel.workers import Workers


def slowed_by_servers(workers: Workers, wires: ServerWires) -> Array:
    """How many times as long workers compute beside the servers on their devices, (n,).

    1 without one, as where servers are on hosts.
    """
    if wires.on_hosts:
        return np.ones(workers.count)
    updates = wires.seconds["server_optimizer"]
    messages = float((wires.seconds["push_latency"] + wires.seconds["pull_latency"]).max())
    near = len(updates) - int(np.bincount(wires.rank, minlength=workers.count).min())
    each = messages / max(near, 1)
    kept = workers.speed_beside_messages(np.full(workers.count, messages))
    taken, on_device = np.zeros(workers.count), updates - workers.job.update_overhead
    for update, rank in zip(on_device.tolist(), wires.rank.tolist(), strict=True):
        taken[rank] += (workers.count - 1) * (update + (1.0 - kept[rank]) * each)
    exchange = messages + float(updates.max())
    served = workers.count * (float(updates.max()) + each)
    rounds = np.maximum(workers.compute + exchange, served)
    return np.asarray(1.0 + taken / rounds)
