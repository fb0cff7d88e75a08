"""A partition as users see it: its stages with their layers, and what it is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from parsim.partition.hierarchy import Partition, partition
from parsim.partition.layer_graph import LayerGraph, read_layer_graph
from parsim.partition.levels import Level, Options
from parsim.partition.simulated import PARSIM, ImprovedPartition, improved
from parsim.partition.states import States, states_of

SCHEMA_VERSION = 1


class StageOfLayers(NamedTuple):
    """A stage: its replicas, the numbers of its layers, its seconds on one device, its weights."""

    replicas: int
    layers: tuple[int, ...]
    seconds: float
    parameters: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReport:
    """The best partition of a graph over a hierarchy of devices.

    `judged` is how it was found and compared, where runs judged it and no cost model.
    """

    graph: LayerGraph
    levels: tuple[Level, ...]
    options: Options
    best: Partition
    stages: tuple[StageOfLayers, ...]
    judged: ImprovedPartition | None = None

    @property
    def name(self) -> str:
        """The replicas of the stages, as the papers write them: 12-3-1."""
        return "-".join(str(stage.replicas) for stage in self.stages)

    @property
    def over_data_parallel(self) -> float:
        """How many times as fast as the whole model replicated on all devices."""
        return self.best.data_parallel / self.best.seconds

    @property
    def over_one_device(self) -> float:
        """How many times as fast as one device."""
        return self.best.one_device / self.best.seconds

    def to_json(self) -> dict[str, Any]:
        """Plain data with units in the names."""
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": "partition",
            "mode": self.options.mode,
            "plan": self.name,
            "seconds_per_microbatch_s": self.best.seconds,
            "data_parallel_s": self.best.data_parallel,
            "one_device_s": self.best.one_device,
            **({"simulated": self.judged.to_json()} if self.judged else {}),
            "stages": [
                {
                    "replicas": stage.replicas,
                    "layers": [self.graph.layers[layer].name for layer in stage.layers],
                    "compute_s": stage.seconds,
                    "parameters_bytes": stage.parameters,
                }
                for stage in self.stages
            ],
        }


def partition_file(path: Path, levels: Sequence[Level], options: Options) -> PartitionReport:
    """Read a `graph.txt` and cut it.

    Raises:
        InputError: the file, a level or the mode is wrong.
        NoFeasiblePlan: no partition fits the memory.
    """
    graph = read_layer_graph(path)
    states = states_of(graph)
    judged = None
    if options.mode == PARSIM:
        judged = improved(states, levels, options)
        best = replace(
            partition(states, levels, replace(options, mode="pipedream", memory=None)),
            stages=judged.stages,
            seconds=judged.seconds,
            data_parallel=judged.data_parallel,
        )
    else:
        best = partition(states, levels, options)
    return PartitionReport(
        graph=graph,
        levels=tuple(levels),
        options=options,
        best=best,
        stages=tuple(_stages(graph, states, best)),
        judged=judged,
    )


def _stages(graph: LayerGraph, states: States, best: Partition) -> list[StageOfLayers]:
    stages = []
    for first, end, replicas in best.stages:
        numbers = tuple(states.layers_between(first, end))
        layers = [graph.layers[number] for number in numbers]
        stages.append(
            StageOfLayers(
                replicas=replicas,
                layers=numbers,
                seconds=sum(layer.seconds for layer in layers),
                parameters=sum(layer.parameters for layer in layers),
            )
        )
    return stages
