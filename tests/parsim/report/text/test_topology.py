"""The picture of a system's links: boxes apart, classes told apart, large clusters cut short."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.importers import catalog_text, import_topology
from parsim.cluster.reader import load_catalog
from parsim.cluster.topology import build_graph
from parsim.report.picture.cluster.layout import GraphLayout, lay_out
from parsim.report.picture.cluster.topology import STROKES, draw_topology
from parsim.report.text.topology import cable_rows, summary
from tests.commands import ROOT

SAMPLES = ROOT / "tests" / "parsim" / "cluster" / "importers" / "samples"
SYSTEMS = list(load_catalog().systems)


def layout_of(name: str, nodes: int, fabric: str | None = None) -> GraphLayout:
    system = load_catalog().system(name)
    if fabric is not None:
        assert system.network is not None
        network = replace(system.network, fabric=fabric, nodes_per_leaf=2, spines=2)  # type: ignore[arg-type]
        system = replace(system, network=network)
    cluster = Cluster(system=system, num_nodes=nodes)
    return lay_out(build_graph(cluster), system.devices_per_node)


def check_apart(layout: GraphLayout) -> None:
    rows = defaultdict(list)
    for box in layout.boxes.values():
        rows[box.row].append(box)
    for boxes in rows.values():
        ordered = sorted(boxes, key=lambda box: box.x)
        for left, right in pairwise(ordered):
            assert left.x + left.width / 2 <= right.x - right.width / 2 + 1e-9, (left, right)
        assert len({box.y for box in boxes}) == 1
        assert ordered[0].x - ordered[0].width / 2 > -0.3
    heights = sorted(layout.rows.values())
    assert all(b - a > 0.5 for a, b in pairwise(heights))


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("nodes", [1, 3])
def test_boxes_are_apart(name: str, nodes: int) -> None:
    check_apart(layout_of(name, 1 if name == "cpu" else nodes))


def test_no_cable_to_an_interface_runs_through_a_host(tmp_path: Path) -> None:
    file = tmp_path / "pairs.yaml"
    file.write_text(catalog_text(import_topology(SAMPLES / "lstopo.xml", None), "pair"))
    system = load_catalog([file]).system("pair")
    graph = build_graph(Cluster(system=system, num_nodes=2))
    boxes = lay_out(graph, system.devices_per_node).boxes
    hosts = [box for box in boxes.values() if box.row == "host"]
    ends = zip(graph.source.tolist(), graph.target.tolist(), strict=True)
    upward = [
        (boxes[first], boxes[two])
        for first, two in ends
        if boxes[first].row != "host"
        and boxes[two].row == "interface"
        and boxes[first].y < hosts[0].y
    ]
    assert hosts
    assert upward
    for below, above in upward:
        share = (hosts[0].y - below.y) / (above.y - below.y)
        x = below.x + share * (above.x - below.x)
        assert all(abs(host.x - x) >= host.width / 2 for host in hosts)


@pytest.mark.parametrize("fabric", ["fat-tree", "rail-optimised", "torus-2d", "ring", "dragonfly"])
def test_boxes_of_every_fabric_are_apart(fabric: str) -> None:
    check_apart(layout_of("dgx-h100", 16, fabric))


def test_the_first_nodes_stand_for_many() -> None:
    layout = layout_of("dgx-h100", 256)
    assert layout.drawn == 48
    assert len(layout.boxes) < 400
    cluster = Cluster(system=load_catalog().system("dgx-h100"), num_nodes=256)
    figure = draw_topology(cluster, build_graph(cluster))
    texts = [text.get_text() for text in figure.texts]
    assert "the first 6 of 256 nodes are drawn" in texts[1].replace("\n", " ")


def test_one_and_one_are_told_in_the_singular() -> None:
    racks = Cluster(system=load_catalog().system("gb200-nvl72"), num_nodes=2)
    texts = [text.get_text() for text in draw_topology(racks, build_graph(racks)).texts]
    assert "the first of 2 nodes is drawn" in texts[1].replace("\n", " ")
    two = Cluster(system=load_catalog().system("a100-nvlink-pairs"), num_nodes=1)
    assert summary(build_graph(two)).endswith("GB/s from rank 0 to 1")


def test_every_class_has_its_own_colour_or_dashes_and_a_name() -> None:
    looks = [(look.colour, str(look.dashes)) for look in STROKES.values()]
    assert len(set(looks)) == len(looks) == len({look.label for look in STROKES.values()})
    # Classes that meet in one picture differ in both.
    meet = [STROKES[name] for name in ("nvlink", "pcie", "cpu", "nic", "spine", "c2c")]
    assert len({look.colour for look in meet}) == len({str(look.dashes) for look in meet}) == 6


def test_the_legend_names_each_rate() -> None:
    cluster = Cluster(system=load_catalog().system("dgx-1v"), num_nodes=1)
    (legend,) = draw_topology(cluster, build_graph(cluster)).legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "NVLink 25 GB/s",
        "NVLink 50 GB/s",
        "PCI Express 15.75 GB/s",
        "CPU to CPU 6 GB/s",
        "NIC to leaf 12.5 GB/s",
    ]


def test_rows_of_the_table() -> None:
    graph = build_graph(Cluster(system=load_catalog().system("dgx-a100"), num_nodes=2))
    counts = {(row[0], row[1], row[2]): count for row, count in cable_rows(graph).items()}
    assert counts["nvlink", "gpu", "nvswitch"] == counts["nic", "nic", "leaf"] == 16
    assert counts["cpu", "host", "host"] == 2
    assert summary(graph) == "16 devices; bisection 200.0 GB/s from ranks 0..7 to 8..15"
