"""Paths and branches of graphs: what may run at the same time, what hangs on what, names."""

from __future__ import annotations

import pytest

from parsim.errors import PlanError
from parsim.model.graph.build import build_graph
from parsim.model.graph.catalog import network
from parsim.model.paths import FIRST, Branching, runs
from tests.parsim.sim.branches.models import MODELS


def branching(name: str) -> Branching:
    whole = build_graph(MODELS[name]()).branching
    assert whole is not None
    return whole


def test_runs_end_at_forks_and_joins() -> None:
    #  0 -- 1 --+-- 2 -- 3 --+-- 5
    #           +----- 4 ----+
    assert runs([(FIRST,), (0,), (1,), (2,), (1,), (3, 4)]) == [[0, 1], [2, 3], [4], [5]]


@pytest.mark.parametrize("name", list(MODELS))
def test_paths_are_all_of_the_model(name: str) -> None:
    graph = MODELS[name]()
    model = build_graph(graph)
    assert model.branching is not None
    paths = model.branching.paths
    nodes = [node for path in paths for node in path.nodes]
    assert sorted(nodes) == sorted(node.name for node in graph.nodes)
    assert sum(path.layer.parameters for path in paths) == model.parameters
    assert sum(path.layer.forward_flops(2) for path in paths) == model.forward_flops(2)
    assert all(source < number for number, path in enumerate(paths) for source in path.takes)


@pytest.mark.parametrize(
    ("name", "branches", "width"),
    # 11 modules of 3 or 4 paths and 6 in each of the two forked ones; beside the auxiliary head
    # all of 7a to 7c, dropout and head may run
    [("inception-v3", 58, 7), ("tasks", 3, 3), ("towers", 4, 2), ("chain", 0, 1)],
)
def test_what_may_run_at_once(name: str, branches: int, width: int) -> None:
    whole = branching(name)
    assert (len(whole.branches), whole.width) == (branches, width)


def test_shortcuts_of_residual_networks_are_branches_where_they_compute() -> None:
    whole = build_graph(network("resnet50")).branching
    assert whole is not None
    assert [whole.paths[n].name for n in whole.branches if len(whole.paths[n].nodes) == 2] == [
        f"layer{part}.0.downsample.0" for part in (1, 2, 3, 4)
    ]


def test_what_hangs_on_a_branch_goes_with_it() -> None:
    whole = branching("modules")
    stem = whole.numbered("third.1")  # a stem, and a wide and a tall one that hang on it
    devices = whole.devices({stem: 1})
    on_one = [path.name for path, device in zip(whole.paths, devices, strict=True) if device == 1]
    assert on_one == ["third.1.0.conv", "third.1.wide.conv", "third.1.tall.conv", "third.1.join"]
    wide = whole.numbered("third.1.wide")
    devices = whole.devices({stem: 1, wide: 0})
    assert (devices[stem], devices[wide], devices[-1]) == (1, 0, 0)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("trunk.9", "no branch of the model; nearest of 18: "),
        ("first", "begins the names of 5 branches; name one: first.0.0.conv, first.1.0.conv"),
    ],
)
def test_a_name_that_is_none_is_refused(name: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        branching("modules").numbered(name)
