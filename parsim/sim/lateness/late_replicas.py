"""A block of late steps: clocks are (replicas, steps), one for each pipeline rank.

The tensor-parallel members of a group end every action together (see `draws`), so that one clock
serves them all:

    late         clock + what the group's slowest member adds, drawn for each action
    shards       maximum over the replicas that exchange shards within actions (ZeRO-2 and 3)
    message      maximum with the sender's clock, replica by replica
    reduction    maximum over all replicas, then norm, optimizer and parameter gather

Replicas on other nodes have prices of their own, and those with other batches actions of their own
(`pipelines`); their clocks stand side by side from the reduction on, where the step's program is
walked as without lateness. With nothing late the arithmetic is that of `maxplus` and `walk`, to the
last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from parsim.arrays import Array, Flags, sorted_values
from parsim.schedule import Kind
from parsim.sim.lateness.draws import Block
from parsim.sim.lateness.pipelines import AlikeReplicas, RankGrid, ReplicaPipelines, Seconds
from parsim.sim.recurrence.maxplus import ClassTimes, last_backwards
from parsim.sim.recurrence.walk import PipelineEnds, walk
from parsim.sim.step.compiled_schedule import KINDS, CompiledSchedule
from parsim.sim.step.priced_step import prices_of
from parsim.sim.step.schedule_costs import compute_seconds
from parsim.strategy import Meeting


def late_steps(pipelines: ReplicaPipelines, ranks: RankGrid, blocks: Sequence[Block]) -> Array:
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
    pairs = list(zip(pipelines.parts, blocks, strict=True))
    actions = _side_by_side([_pipeline(part, ranks, block) for part, block in pairs])
    prices = _prices(pipelines, pairs, ranks)
    end = walk(pipelines.program, prices, actions, _join(pipelines.sharers))
    return np.asarray(end.updated[0])


def _join(sharers: Flags) -> Callable[[Meeting, Array], Array]:
    """Join of times (..., replicas, steps); behind the norm they are (..., classes, steps)."""

    def join(meeting: Meeting, ready: Array) -> Array:
        if meeting in (Meeting.REPLICAS, Meeting.WORLD):
            return np.asarray(ready.max(axis=-2, keepdims=True))
        if meeting is Meeting.SHARERS:
            latest = np.where(sharers[..., None], ready[..., None, :, :], -np.inf)
            return np.asarray(latest.max(axis=-2))
        return ready

    return join


def _prices(
    pipelines: ReplicaPipelines, pairs: Sequence[tuple[AlikeReplicas, Block]], ranks: RankGrid
) -> Mapping[str, Array]:
    """Prices of the tasks behind the pipelines: what all do at once, and late updates by class."""
    prices = {name: value[..., None] for name, value in prices_of(pipelines.costs).items()}
    prices = {name: value[..., :1, :] for name, value in prices.items()}
    tied = np.concatenate([_of_replicas(part, part.costs.tied) for part in pipelines.parts])
    prices["tied"] = tied[:, None]
    updates = [_late_updates(pipelines, pairs, rank) for rank in range(ranks.pp)]
    prices["optimizer"] = np.stack(updates)
    prices["gather"] = np.stack([_gathers(pipelines, rank) for rank in range(ranks.pp)])
    return prices


def _late_updates(
    pipelines: ReplicaPipelines, pairs: Sequence[tuple[AlikeReplicas, Block]], rank: int
) -> Array:
    """Seconds of the update of each class on a pipeline rank, lateness included, (C, steps)."""
    updates: dict[int, Array] = {}
    for part, block in pairs:
        seconds = dict(_each_class(part, part.costs.optimizer[rank]))
        replicas = [part.replicas_of_class(number) for number in seconds]
        late = block.late_update(rank, list(seconds.values()), replicas)
        for (number, alone), added in zip(seconds.items(), late, strict=True):
            updates[number] = np.broadcast_to(alone + added, block.shape[1:])
    return np.stack([updates[number] for number in range(len(pipelines.sharers))])


def _gathers(pipelines: ReplicaPipelines, rank: int) -> Array:
    """Seconds in which each class gathers a pipeline rank's parameters, (C, 1)."""
    gathers: dict[int, float] = {}
    for part in pipelines.parts:
        gathers |= dict(_each_class(part, part.costs.gather[rank]))
    return np.array([[gathers[number]] for number in range(len(pipelines.sharers))])


def _each_class(part: AlikeReplicas, values: Array) -> Iterator[tuple[int, float]]:
    """A price of each class of a part, from its column or those of its replicas."""
    replicas = _of_replicas(part, values)
    for number in sorted_values(part.class_of).tolist():
        yield number, float(replicas[part.replicas_of_class(number)[0]])


def _of_replicas(part: AlikeReplicas, values: Array) -> Array:
    """Spread a price over the replicas of a part, (replicas,)."""
    return np.broadcast_to(values, len(part.replicas))


def _side_by_side(parts: Sequence[PipelineEnds]) -> PipelineEnds:
    """All parts' replicas along the second axis."""
    if len(parts) == 1:
        return parts[0]
    return PipelineEnds(*(np.concatenate(times, axis=1) for times in zip(*parts, strict=True)))


def _pipeline(part: AlikeReplicas, ranks: RankGrid, block: Block) -> PipelineEnds:
    """Walk the actions in the compiled order; a message waits in a box for its one receiver."""
    compiled, costs = part.compiled, part.costs
    times = ClassTimes.of(compiled, costs)
    times = times.blocking() if costs.blocking_p2p else times
    duration, hop = _seconds(times.duration), _seconds(times.hop)
    meets = _meetings(ranks)
    final = {position: stage for stage, position in enumerate(compiled.last_backward.tolist())}
    length, sent = map(_seconds, last_backwards(compiled, costs))
    clock = list(np.zeros((ranks.pp, *block.shape)))
    released = np.empty((len(length), *block.shape))
    lengths = np.empty_like(released)
    box: dict[int, Array] = {}
    for position, visit in enumerate(_visits(part, block)):
        rank, duration_class, needed, sending, late = visit
        stage, kind = divmod(duration_class, KINDS)
        start = clock[rank] if needed < 0 else np.maximum(clock[rank], box.pop(needed))
        end = start + late
        end += duration[duration_class]
        clock[rank] = end = _together(end, meets[kind])
        if sending:
            box[position] = end + hop[duration_class]
        if position in final:
            released[final[position]] = end - sent[stage]
            lengths[final[position]] = length[stage] + late
    return PipelineEnds(np.stack(clock), released, lengths)


def _visits(
    part: AlikeReplicas, block: Block
) -> Iterator[tuple[int, int, int, bool, Array | float]]:
    """Each action's rank, class of length, what it hears, if it is heard, and how late it is."""
    compiled = part.compiled
    compute = {kind: _seconds(values) for kind, values in compute_seconds(part.costs).items()}
    owners, classes = compiled.rank.tolist(), compiled.duration_class.tolist()
    computed = [compute[Kind(number % KINDS)][number // KINDS] for number in classes]
    return zip(owners, classes, *messages(compiled), block.late(owners, computed), strict=True)


def messages(compiled: CompiledSchedule) -> tuple[list[int], list[bool]]:
    """Per action: the action on another rank that it hears from (-1: none), and if it is heard.

    Inputs from the same rank need no message, the rank's own clock has passed them.
    """
    crosses = (compiled.source > 0) & (compiled.rank[compiled.source - 1] != compiled.rank)
    needs = np.where(crosses, compiled.source - 1, -1)
    sends = np.zeros(compiled.num_actions, dtype=bool)
    sends[needs[crosses]] = True
    return needs.tolist(), sends.tolist()


def _seconds(values: Array) -> list[Seconds]:
    """A number for each row, or a column (replicas, 1) where replicas differ."""
    if values.shape[1] == 1:
        return [float(value) for value in values[:, 0]]
    return list(values[:, :, None])


def _meetings(ranks: RankGrid) -> dict[int, int]:
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
