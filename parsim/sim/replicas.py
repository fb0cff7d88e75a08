"""A block of late steps: clocks are (replicas, steps), one for each pipeline rank.

The tensor-parallel members of a group end every action together (see `draws`), so that one clock
serves them all. As in `plane`:

    late         clock + what the group's slowest member adds, drawn for each action
    shards       maximum over the replicas that exchange shards within actions (ZeRO-2 and 3)
    message      maximum with the sender's clock, replica by replica
    reduction    maximum over all replicas, then norm, optimizer and parameter gather

Replicas on other nodes have prices of their own, and those with other batches actions of their own
(`pipelines`); their clocks stand side by side from the reduction on. With nothing late the
arithmetic is that of `maxplus` and `tail`, or of `mixed`, to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from parsim.schedule import Kind
from parsim.sim.draws import Block, Ranks, Seconds
from parsim.sim.graph import KINDS
from parsim.sim.maxplus import ClassTimes
from parsim.sim.own_costs import compute_seconds
from parsim.sim.pipelines import Part, Pipelines
from parsim.sim.plane import PipelineEnds, add_tied, messages, reduce_gradients
from parsim.sim.tail import last_backwards, tied_owners

Array = NDArray[np.float64]


def late_steps(pipelines: Pipelines, ranks: Ranks, blocks: Sequence[Block]) -> Array:
    """Seconds of each step of a block, (steps,), without the catalog's straggler allowance.

    The draws say how much longer ranks compute; communication keeps its length. The allowance
    stands for the same waiting, fitted to measured runs, so it is left out here.

    Args:
        pipelines: the replicas, by actions and prices.
        ranks: who they are.
        blocks: the draws of each part of them.

    Leaves out: that a group meets in every collective of an action, not once in it; ranks that
    change the order of their actions when they are late; traffic that runs late with its sender;
    that of a group on several kinds of node only the slower ones' ranks decide.
    """
    parts, costs = pipelines.parts, pipelines.costs
    graph = parts[0].graph
    pairs = list(zip(parts, blocks, strict=True))
    done = _side_by_side([_pipeline(part, ranks, block) for part, block in pairs])
    reduced = np.maximum(done.clock, reduce_gradients(graph, costs, done))
    tied = np.concatenate([_of_replicas(part, part.costs.tied) for part in parts])
    reduced = add_tied(reduced, tied[:, None], tied_owners(graph))
    normed = reduced.max(axis=(0, 1)) + costs.late[0] + costs.norm[0]
    ends = [_gathered(pipelines, pairs, rank, normed) for rank in range(ranks.pp)]
    return np.asarray(np.stack(ends).max(axis=0))


def _gathered(
    pipelines: Pipelines, pairs: Sequence[tuple[Part, Block]], rank: int, normed: Array
) -> Array:
    """When all have a rank's new parameters: those that share them wait for their slowest."""
    updated: dict[int, Array] = {}
    gather: dict[int, float] = {}
    for part, block in pairs:
        seconds = dict(_each_class(part, part.costs.optimizer[rank]))
        members = [part.members(number) for number in seconds]
        late = block.late_update(rank, list(seconds.values()), members)
        for (number, one), added in zip(seconds.items(), late, strict=True):
            updated[number] = normed + (one + added)
        gather |= dict(_each_class(part, part.costs.gather[rank]))
    ends = []
    for number, seconds_of in gather.items():
        sharers = np.flatnonzero(pipelines.meets[number]).tolist()
        ends.append(np.stack([updated[one] for one in sharers]).max(axis=0) + seconds_of)
    return np.asarray(np.stack(ends).max(axis=0))


def _each_class(part: Part, values: Array) -> Iterator[tuple[int, float]]:
    """A price of each class of a part, from its column or those of its replicas."""
    replicas = _of_replicas(part, values)
    for number in np.unique(part.class_of).tolist():
        yield number, float(replicas[part.members(number)[0]])


def _of_replicas(part: Part, values: Array) -> Array:
    """The same for each replica, (replicas,)."""
    return np.broadcast_to(values, len(part.replicas))


def _side_by_side(found: Sequence[PipelineEnds]) -> PipelineEnds:
    """All parts' replicas along the second axis."""
    if len(found) == 1:
        return found[0]
    clock, made, length = (np.concatenate(values, axis=1) for values in zip(*found, strict=True))
    return PipelineEnds(clock, made, length)


def _pipeline(part: Part, ranks: Ranks, block: Block) -> PipelineEnds:
    """Walk the actions in the graph's order, as `plane` does; a message waits for its receiver."""
    graph, costs = part.graph, part.costs
    times = ClassTimes.of(graph, costs)
    times = times.blocking() if costs.blocking_p2p else times
    duration, hop = _seconds(times.duration), _seconds(times.hop)
    compute = {kind: _seconds(values) for kind, values in compute_seconds(costs).items()}
    meets = _meetings(ranks)
    needs, sends = messages(graph)
    final = dict(zip(graph.last_backward.tolist(), range(len(graph.last_backward)), strict=True))
    length, sent = map(_seconds, last_backwards(graph, costs))
    clock = list(np.zeros((ranks.pp, *block.shape)))
    made = np.empty((len(length), *block.shape))
    lengths = np.empty_like(made)
    box: dict[int, Array] = {}
    actions = zip(graph.rank.tolist(), graph.duration_class.tolist(), needs, sends, strict=True)
    for place, (rank, what, needed, sending) in enumerate(actions):
        stage, kind = divmod(what, KINDS)
        start = clock[rank] if needed < 0 else np.maximum(clock[rank], box.pop(needed))
        late = block.late(place, rank, compute[Kind(kind)][stage])
        end = start + late
        end += duration[what]
        clock[rank] = end = _together(end, meets[kind])
        if sending:
            box[place] = end + hop[what]
        if place in final:
            made[final[place]] = end - sent[stage]
            lengths[final[place]] = length[stage] + late
    return PipelineEnds(np.stack(clock), made, lengths)


def _seconds(values: Array) -> list[Seconds]:
    """A number for each row, or a column (replicas, 1) where replicas differ."""
    if values.shape[1] == 1:
        return [float(value) for value in values[:, 0]]
    return list(values[:, :, None])


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
