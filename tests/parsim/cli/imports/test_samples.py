"""Systems made of topologies: each sample is read, shown and simulated."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsim.cluster.hardware import Cluster, System
from parsim.cluster.reader import load_catalog
from parsim.cluster.topology import Graph, bisection, build_graph
from tests.commands import Cli
from tests.parsim.cli.imports.imported import H100, SAMPLES

SCENARIO = """model: {{name: bert-large}}
cluster: {{system: my-node, nodes: {nodes}, catalog: [my.yaml]}}
training: {{global_batch_size: 64, precision: {precision}}}
plan: {{dp: {ranks}, tp: 1, microbatch_size: 1}}
"""


def imported(cli: Cli, folder: Path, sample: str | Path, *words: str) -> System:
    out = folder / "my.yaml"
    done = cli("catalog", "import", SAMPLES / sample, "--as", "my-node", "--out", out, *words)
    assert (done.code, done.out) == (0, "")
    return load_catalog([out]).system("my-node")


def graph_of(system: System, nodes: int = 1) -> Graph:
    return build_graph(Cluster(system=system, num_nodes=nodes))


def stops(graph: Graph, a: int, b: int) -> list[str]:
    return [graph.nodes[graph.target[link]] for link in graph.route(a, b)]


@pytest.mark.parametrize(
    ("sample", "words", "devices", "nodes", "precision"),
    [
        ("dgx-a100.txt", ("--device", "a100-sxm-80gb"), 8, 2, "bf16"),
        ("dgx-1v.txt", (), 8, 1, "fp16"),
        ("bridged-pairs.txt", (), 4, 2, "bf16"),
        ("h100-topology.xml", (), 4, 2, "bf16"),
        ("v100-pair.xml", (), 2, 1, "fp16"),
        ("lstopo.xml", (), 2, 2, "bf16"),
        ("h100-rings.xml", H100, 4, 2, "bf16"),
        ("astra.yml", H100, 4, 2, "bf16"),
    ],
)
def test_imported_shown_and_simulated(
    cli: Cli,
    tmp_path: Path,
    sample: str,
    words: tuple[str, ...],
    devices: int,
    nodes: int,
    precision: str,
) -> None:
    system = imported(cli, tmp_path, sample, *words)
    assert system.devices_per_node == devices
    (tmp_path / "s.yaml").write_text(
        SCENARIO.format(nodes=nodes, ranks=nodes * devices, precision=precision)
    )
    done = cli("simulate", tmp_path / "s.yaml", "--json")
    assert done.code == 0
    assert done.document["step_time_s"] > 0
    shown = cli("catalog", "show", "my-node", "--catalog", tmp_path / "my.yaml", "--nodes", nodes)
    assert shown.code == 0
    assert f"{nodes * devices} devices; bisection" in shown.out


def test_a_table_of_dgx_a100_is_the_catalogs(cli: Cli, tmp_path: Path) -> None:
    system = imported(cli, tmp_path, "dgx-a100.txt", "--device", "a100-sxm-80gb")
    known = load_catalog().system("dgx-a100")
    assert (system.device, system.intra, system.network) == (
        known.device,
        known.intra,
        known.network,
    )
    graph = graph_of(system, 2)
    # Each device its own interface and rail, two of each on a switch.
    rails = [next(s for s in stops(graph, r, 8 + r) if s.startswith("nic")) for r in range(8)]
    assert rails == [f"nic:0.{rail}" for rail in range(8)]
    assert bisection(graph) == pytest.approx(200e9)
    assert len(graph.route_between("gpu:7", "host:0.1")) == 3


def test_a_table_of_dgx1_is_the_mesh(cli: Cli, tmp_path: Path) -> None:
    graph = graph_of(imported(cli, tmp_path, "dgx-1v.txt"))
    assert bisection(graph) == 150e9
    assert stops(graph, 0, 7) == ["gpu:4", "gpu:7"]
    known = graph_of(load_catalog().system("dgx-1v"))
    for a in range(8):
        for b in range(8):
            assert [graph.capacity[i] for i in graph.route(a, b)] == [
                known.capacity[i] for i in known.route(a, b)
            ]


def test_bridged_pairs_talk_over_their_hosts(cli: Cli, tmp_path: Path) -> None:
    system = imported(cli, tmp_path, "bridged-pairs.txt")
    graph = graph_of(system)
    assert (system.intra.fabric, system.device.id) == ("pcie", "a100-pcie-80gb")
    assert stops(graph, 0, 1) == ["gpu:1"]
    assert stops(graph, 1, 2) == ["host:0.0", "host:0.1", "gpu:2"]
    assert system.network is not None
    assert system.network.nics_per_node == 1


def test_spaces_for_tabs_and_no_escapes(cli: Cli, tmp_path: Path) -> None:
    text = (SAMPLES / "dgx-a100.txt").read_text()
    plain = text.replace("\x1b[4m", "").replace("\x1b[0m", "").expandtabs(12)
    (tmp_path / "t.txt").write_text(plain)
    words = ("--device", "a100-sxm-80gb")
    both = [imported(cli, tmp_path, file, *words) for file in ("dgx-a100.txt", tmp_path / "t.txt")]
    assert both[0].topology == both[1].topology


def test_nccl_topology(cli: Cli, tmp_path: Path) -> None:
    system = imported(cli, tmp_path, "h100-topology.xml")
    assert (system.device.id, system.intra.fabric) == ("h100-sxm-80gb", "nvswitch")
    assert system.intra.bandwidth == 450e9  # 5 + 4 + 5 + 4 links of 25 GB/s
    assert system.network is not None
    assert (system.network.nics_per_node, system.network.nic_bandwidth) == (4, 50e9)
    graph = graph_of(system)
    (slot,) = {graph.capacity[i] for i in range(graph.num_links) if graph.link_class[i] == "pcie"}
    assert slot == pytest.approx(32e9 * 16 * 128 / 130 / 8, rel=1e-4)
    # Sapphire Rapids between the sockets
    between = [i for i in range(graph.num_links) if graph.link_class[i] == "cpu"]
    assert {graph.capacity[i] for i in between} == {22e9}


def test_nccl_direct_links_without_speeds(cli: Cli, tmp_path: Path) -> None:
    system = imported(cli, tmp_path, "v100-pair.xml")
    assert (system.intra.fabric, system.intra.bandwidth) == ("nvlink-mesh", 75e9)
    assert system.network is None


def test_nccl_rings_give_efficiencies(cli: Cli, tmp_path: Path) -> None:
    system = imported(cli, tmp_path, "h100-rings.xml", *H100)
    assert system.channels == 8
    assert system.intra.efficiency == pytest.approx(8 * 40 / 450, rel=1e-5)
    assert system.network is not None
    assert system.network.efficiency == pytest.approx(8 * 20 / (4 * 50))


def test_lstopo_has_hosts_switches_and_the_slowest_link_of_a_way(cli: Cli, tmp_path: Path) -> None:
    """Ports are passed through, the management port and the board's display are left out."""
    system = imported(cli, tmp_path, "lstopo.xml")
    assert system.device.id == "h100-sxm-80gb"
    graph = graph_of(system)
    assert stops(graph, 0, 1) == ["nvswitch:0.0", "gpu:1"]
    kinds = sorted({name.partition(":")[0] for name in graph.nodes})
    assert kinds == ["gpu", "host", "leaf", "nic", "nvswitch", "pcie"]
    rates = {
        (graph.link(i).source, graph.link(i).target): graph.link(i).capacity
        for i in range(graph.num_links)
    }
    assert rates["gpu:0", "pcie:0.0"] == pytest.approx(63.0154e9)
    assert rates["nic:0.1", "pcie:0.1"] == pytest.approx(31.5077e9)
    assert rates["host:0.0", "host:0.1"] == 22e9  # Sapphire Rapids


def test_a_clouds_static_file_has_classes_only(cli: Cli, tmp_path: Path) -> None:
    pci = '<pci busid="000{}:00:00.0" class="{}" link_speed="16 GT/s" link_width="16"/>'
    inner = [pci.format(n, "0x030200") + pci.format(n + 4, "0x020700") for n in range(4)]
    switch = '<pci busid="ffff:ff:0{}.0" class="0x060400" link_speed="16 GT/s" link_width="16">'
    cpus = [
        f'<cpu numaid="{n}" arch="x86_64" vendor="AuthenticAMD">{switch.format(n)}'
        f"{''.join(inner[2 * n : 2 * n + 2])}</pci></cpu>"
        for n in range(2)
    ]
    (tmp_path / "t.xml").write_text(f"<!-- static --><system version='1'>{''.join(cpus)}</system>")
    system = imported(cli, tmp_path, tmp_path / "t.xml", "--device", "a100-sxm-80gb")
    assert (system.devices_per_node, system.intra.bandwidth) == (4, 300e9)
    assert system.network is not None
    assert (system.network.nics_per_node, system.network.nic_bandwidth) == (4, 25e9)
    graph = graph_of(system, 2)
    ways = [stops(graph, rank, 4 + rank) for rank in range(4)]
    assert [next(s for s in way if s.startswith("nic")) for way in ways] == [
        f"nic:0.{rank}" for rank in range(4)
    ]


def test_astra_counts_in_powers_of_two(cli: Cli, tmp_path: Path) -> None:
    system = imported(cli, tmp_path, "astra.yml", *H100)
    # two neighbours of a ring
    assert system.intra.bandwidth == pytest.approx(2 * 200 * 2**30, rel=1e-5)
    assert system.intra.latency == pytest.approx(0.5e-6)
    assert system.network is not None
    assert system.network.nic_bandwidth == pytest.approx(50 * 2**30, rel=1e-5)
    assert bisection(graph_of(system)) == pytest.approx(2 * 200 * 2**30, rel=1e-5)


def test_astra_third_dimension_is_the_spine(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "n.yml").write_text(
        "topology: [FullyConnected, Switch, Switch]\nnpus_count: [4, 2, 2]\n"
        "bandwidth: [100, 50, 25]\nlatency: [500, 1000, 1000]\n"
    )
    system = imported(cli, tmp_path, tmp_path / "n.yml", *H100)
    assert system.network is not None
    assert (system.network.oversubscription, system.network.nodes_per_leaf) == (2.0, 2)
    graph = graph_of(system, 4)
    assert bisection(graph) == pytest.approx(2 * 4 * 25 * 2**30, rel=1e-5)


def test_an_astra_spine_that_is_faster_than_its_leaves_waits_for_them(
    cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "n.yml").write_text(
        "topology: [FullyConnected, Switch, Switch]\nnpus_count: [4, 2, 2]\n"
        "bandwidth: [100, 50, 100]\nlatency: [500, 1000, 1000]\n"
    )
    system = imported(cli, tmp_path, tmp_path / "n.yml", *H100)
    assert system.network is not None
    assert system.network.oversubscription == 1.0
