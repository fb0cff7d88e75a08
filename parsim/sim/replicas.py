"""A block of late steps: clocks are (replicas, steps), one for each pipeline rank.

The tensor-parallel members of a group end every action together (see `draws`), so that one clock
serves them all. As in `plane`:

    late         clock + what the group's slowest member adds, drawn for each action
    shards       maximum over the replicas that exchange shards within actions (ZeRO-2 and 3)
    message      maximum with the sender's clock, replica by replica
    reduction    maximum over all replicas, then norm, optimizer and parameter gather

With nothing late the arithmetic is that of `maxplus` and `tail`, to the last bit.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from parsim.cost.step import StepCosts
from parsim.schedule import Kind
from parsim.sim.draws import Block, Ranks
from parsim.sim.graph import KINDS, Graph
from parsim.sim.maxplus import ClassTimes
from parsim.sim.own_costs import compute_seconds
from parsim.sim.plane import PipelineEnds, add_tied, messages, reduce_gradients
from parsim.sim.tail import last_backwards, tied_owners

Array = NDArray[np.float64]


def late_steps(graph: Graph, costs: StepCosts, ranks: Ranks, block: Block) -> Array:
    """Seconds of each step of a block, (steps,), without the catalog's straggler allowance.

    The draws say how much longer ranks compute; communication keeps its length. The allowance
    stands for the same waiting, fitted to measured runs, so it is left out here.

    Leaves out: that a group meets in every collective of an action, not once in it; ranks that
    change the order of their actions when they are late; traffic that runs late with its sender.
    """
    done = _pipeline(graph, costs, ranks, block)
    reduced = np.maximum(done.clock, reduce_gradients(graph, costs, done)).max(axis=1)
    reduced = add_tied(reduced, float(costs.tied[0]), tied_owners(graph))
    normed = reduced.max(axis=0) + costs.late[0] + costs.norm[0]
    ends = []
    for rank in range(ranks.pp):
        seconds = float(costs.optimizer[rank, 0])
        updated = normed + (seconds + block.late_update(rank, seconds))
        ends.append(updated + costs.gather[rank, 0])
    return np.asarray(np.stack(ends).max(axis=0))


def _pipeline(graph: Graph, costs: StepCosts, ranks: Ranks, block: Block) -> PipelineEnds:
    """Walk the actions in the graph's order, as `plane` does; a message waits for its receiver."""
    times = ClassTimes.of(graph, costs)
    times = times.blocking() if costs.blocking_p2p else times
    duration, hop = times.duration[:, 0].tolist(), times.hop[:, 0].tolist()
    compute = {kind: values[:, 0].tolist() for kind, values in compute_seconds(costs).items()}
    meets = _meetings(ranks)
    needs, sends = messages(graph)
    final = dict(zip(graph.last_backward.tolist(), range(len(graph.last_backward)), strict=True))
    length, sent = last_backwards(graph, costs)
    clock = list(np.zeros((ranks.pp, *block.shape)))
    made = np.empty((len(length), *block.shape))
    lengths = np.empty_like(made)
    box: dict[int, Array] = {}
    actions = zip(graph.rank.tolist(), graph.duration_class.tolist(), needs, sends, strict=True)
    for place, (rank, what, needed, sending) in enumerate(actions):
        stage, kind = divmod(what, KINDS)
        start = clock[rank] if needed < 0 else np.maximum(clock[rank], box.pop(needed))
        late = block.late(place, rank, compute[Kind(kind)][stage])
        end = _together(start + late, meets[kind])
        end += duration[what]
        clock[rank] = end
        if sending:
            box[place] = end + hop[what]
        if place in final:
            made[final[place]] = end - sent[stage]
            lengths[final[place]] = length[stage] + late
    return PipelineEnds(np.stack(clock), made, lengths)


def _meetings(ranks: Ranks) -> dict[int, int]:
    """How many replicas end an action together, by kind."""
    forward, backward = ranks.meet_forward, ranks.meet_backward
    both = max(forward, backward)
    return {Kind.F: forward, Kind.B: both, Kind.I: forward, Kind.W: backward}


def _together(clock: Array, replicas: int) -> Array:
    """The latest of each run of so many neighbouring replicas, for all of them."""
    if replicas == 1:
        return clock
    split = clock.reshape(-1, replicas, clock.shape[1])
    split[:] = split.max(axis=1, keepdims=True)
    return clock
