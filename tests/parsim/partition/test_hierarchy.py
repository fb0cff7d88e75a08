"""The dynamic program against trying everything, on random chains and on a small graph."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations, pairwise
from math import ceil
from pathlib import Path

import pytest

from parsim.errors import InputError, NoFeasiblePlan
from parsim.partition.hierarchy import partition
from parsim.partition.layer_graph import LayerGraph, LayerNode, read_layer_graph
from parsim.partition.levels import Level, Options
from parsim.partition.states import states_of


def chain(rng: random.Random, count: int) -> LayerGraph:
    layers = (
        LayerNode(
            name=f"n{i}",
            description="layer",
            seconds=rng.uniform(0.1, 2.0),
            activations=rng.uniform(0.1, 3.0),
            parameters=rng.uniform(0.0, 4.0),
        )
        for i in range(count)
    )
    return LayerGraph(layers=tuple(layers), edges=tuple((i, i + 1) for i in range(count - 1)))


def shares(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    for cuts in combinations(range(1, total), parts - 1):
        ends = (0, *cuts, total)
        yield tuple(b - a for a, b in pairwise(ends))


@pytest.mark.parametrize("transfers", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_better(seed: int, transfers: bool) -> None:
    rng = random.Random(seed)
    count, devices, rate = rng.randint(2, 6), rng.randint(2, 5), rng.uniform(0.5, 8.0)
    graph = chain(rng, count)
    best = partition(states_of(graph), [Level(devices, rate)], Options(transfers=transfers))
    tried = []
    for parts in range(1, min(count, devices) + 1):
        for sizes in shares(count, parts):
            for replicas in shares(devices, parts):
                tried.append(slowest(graph, sizes, replicas, rate, transfers))
    assert best.seconds == pytest.approx(min(tried), rel=1e-12)


def slowest(
    graph: LayerGraph,
    sizes: tuple[int, ...],
    replicas: tuple[int, ...],
    rate: float,
    transfers: bool,
) -> float:
    times, at = [], 0
    for size, m in zip(sizes, replicas, strict=True):
        layers = graph.layers[at : at + size]
        weights = sum(layer.parameters for layer in layers)
        seconds = sum(layer.seconds for layer in layers)
        times.append((seconds + 4 * (m - 1) * weights / (rate * m)) / m)
        if transfers and at:
            times.append(2 * graph.layers[at - 1].activations / (rate * m))
            if at + size < len(graph.layers):
                times.append(2 * layers[-1].activations / (rate * m))
        at += size
    return max(times)


def test_branches_are_cut_between_their_layers(tmp_path: Path) -> None:
    """a - (b | c) - d: five states; the even cut of two seconds each is {a b} and {c d}."""
    file = tmp_path / "graph.txt"
    file.write_text(graph_text({"a": 1, "b": 1, "c": 1, "d": 1}, ["ab", "ac", "bd", "cd"]))
    states = states_of(read_layer_graph(file))
    assert len(states) == 5
    best = partition(states, [Level(2, 1.0)], Options(straight=True))
    assert best.seconds == 2.0
    inner = states.layers_between(0, best.stages[0].end)
    assert len(inner) == 2


def graph_text(seconds: dict[str, int], edges: list[str]) -> str:
    costs = "forward_compute_time={}, backward_compute_time=0, activation_size=1, parameter_size=0"
    nodes = [f"{name} -- L -- {costs.format(1000 * time)}" for name, time in seconds.items()]
    return "\n".join([*nodes, *(f"\t{edge[0]} -- {edge[1]}" for edge in edges)]) + "\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (graph_text({"a": 1, "b": 1}, ["ab", "ba"]), "in a circle: a -> b -> a|in a circle: b"),
        (
            graph_text(dict.fromkeys("abcdefghij", 1), [*map("".join, pairwise("abcdefghija"))]),
            r" -> \.\.\. -> .* \(10 layers\)$",
        ),
        (graph_text({"a": 1, "b": 1}, []), "node b does not hang together with a"),
        (graph_text({"a": 1}, ["ax"]), ":2: there is no node x"),
        ("hello\n", ":1: 'hello' is no line of a graph"),
        ("", "has no layers"),
        ("a -- L -- forward_compute_time=1\n", ":1: backward_compute_time= is not a finite number"),
        (graph_text({"a": -1}, []), "forward_compute_time=-1000 is not a finite number"),
        (graph_text({"a": 1}, []) * 2, ":2: node a stands there twice"),
    ],
)
def test_wrong_files(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "graph.txt"
    file.write_text(text)
    with pytest.raises(InputError, match=message):
        read_layer_graph(file)


@pytest.mark.parametrize("memory", [None, 1e12])
def test_more_devices_than_stages_without_replicas(memory: float | None) -> None:
    states = states_of(chain(random.Random(3), 4))
    options = Options(straight=True, memory=memory)
    assert len(partition(states, [Level(4, 1.0)], options).stages) == 4
    with pytest.raises(NoFeasiblePlan, match=r"each of the 8 devices .* cut into 4 at most"):
        partition(states, [Level(4, 1.0), Level(2, 1.0)], options)


def test_wrong_levels_modes_and_memory() -> None:
    states = states_of(chain(random.Random(0), 3))
    with pytest.raises(InputError, match="a level of 0 units"):
        partition(states, [Level(0, 1.0)], Options())
    with pytest.raises(InputError, match="at least one level"):
        partition(states, [], Options())
    with pytest.raises(
        InputError, match="mode='x' is unknown; allowed: pipedream, pipedream-paper"
    ):
        partition(states, [Level(2, 1.0)], Options(mode="x"))
    with pytest.raises(InputError, match=r"3 places to cut on 9 x 999999 devices take .* steps"):
        partition(states, [Level(9, 1.0), Level(999_999, 1.0)], Options())
    with pytest.raises(NoFeasiblePlan, match="no partition fits 0 B a device"):
        partition(states, [Level(2, 1.0)], Options(memory=1e-9, straight=True))


def same_layers(count: int) -> LayerGraph:
    """A chain of layers of a second, with 4 bytes of weights and 1 of activations."""
    layers = (
        LayerNode(name=f"n{i}", description="", seconds=1.0, activations=1.0, parameters=4.0)
        for i in range(count)
    )
    return LayerGraph(layers=tuple(layers), edges=tuple((i, i + 1) for i in range(count - 1)))


@pytest.mark.parametrize("mode", ["pipedream", "pipedream-paper"])
def test_every_stage_fits_a_device_with_all_its_micro_batches(mode: str) -> None:
    """Three layers of 5 bytes on 3 devices: a stage holds 1 + (devices behind it / its own)."""
    states, levels = states_of(same_layers(3)), [Level(3, 1000.0)]
    for memory in (15.0, 10.0):
        best, devices = partition(states, levels, Options(mode=mode, memory=memory)), 3
        for stage in best.stages:
            devices -= stage.replicas
            copies = 1 + ceil(devices / stage.replicas)
            assert 5.0 * (stage.end - stage.first) * copies <= memory
    for memory in (9.0, 4.0):
        with pytest.raises(NoFeasiblePlan, match=f"no partition fits {memory:g} B a device"):
            partition(states, levels, Options(mode=mode, memory=memory))
    as_pipedream = Options(mode=mode, memory=4.0, stashed_alone=True)
    assert partition(states, levels, as_pipedream).replicas == (3,)


def test_a_node_shares_what_a_device_cannot_hold() -> None:
    """Two layers of 5 bytes on a node's two devices: the first holds two copies of its layer."""
    states, levels = states_of(same_layers(2)), [Level(2, 1.0), Level(1, 1.0)]
    best = partition(states, levels, Options(memory=10.0, straight=True))
    assert best.replicas == (1, 1)
