"""The prices of workers that hold a model together: by its branches, or by a layout."""

from __future__ import annotations

import numpy as np

from parsim.plan.strategies import BranchParallel, of_kind
from parsim.sim.branches.priced import Branched
from parsim.sim.data_parallel.families.priced import Priced
from parsim.sim.data_parallel.workers import Workers
from parsim.sim.layouts.priced import LaidOut


def branch_parallel(workers: Workers) -> Priced:
    """Paths on devices, and messages between them."""
    strategy = of_kind(workers.plan.strategy, BranchParallel)
    branched = Branched(workers.evaluation, workers.plan, workers.node)
    count, passes = workers.plan.num_microbatches, workers.passes
    copies, share = branched.replicas, count / strategy.devices
    sent = branched.sent_bytes * (count / passes)
    traffic = share * (float(branched.sent_bytes.sum()) + branched.returned_bytes)
    traffic += 2.0 * float(branched.reduced.mean()) * (copies - 1) / copies
    return Priced(
        program=branched.program(copies, passes),
        seconds=branched.seconds(passes),
        sent=traffic,
        received=traffic,
        changes_training=False,
        carried={"message": np.repeat(sent, copies), "reduce": branched.reduced},
        together=branched,
    )


def layout(workers: Workers) -> Priced:
    """Parts of every tensor on all devices, and collectives between them."""
    laid_out, passes = LaidOut(workers.evaluation, workers.plan), workers.passes
    return Priced(
        program=laid_out.program(passes),
        seconds=laid_out.seconds(passes),
        sent=laid_out.sent,
        received=laid_out.sent,
        changes_training=False,
        carried=laid_out.carried(passes),
        together=laid_out,
        compute=laid_out.compute,
        layout=laid_out.to_json(),
    )
