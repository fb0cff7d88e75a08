"""Groups in meshes: shares by placement, seconds of collectives, messages and whole plans."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from parsim.cluster.hardware import System
from parsim.cluster.reader import load_catalog
from parsim.cost.collective.collectives import collective_time
from parsim.cost.collective.group_bandwidth import neighbours, one_group
from parsim.cost.collective.mesh_messages import (
    best_share,
    circle_share,
    hop_shares,
    joint_share,
    mean_share,
    pair_share,
)
from parsim.scenario import load_scenario
from parsim.sim.simulate import simulate
from tests.commands import ROOT, Cli

GIB = 2.0**30
SAMPLES = ROOT / "tests" / "parsim" / "cluster" / "importers" / "samples"


def system(name: str = "dgx-1v") -> System:
    return load_catalog().system(name)


def shares(ranks: int, stride: int, name: str = "dgx-1v") -> list[float]:
    where = one_group(system(name), ranks, stride)
    return [float(6 * where.ring_share[0]), float(6 * where.pair_share[0])]


def test_the_worst_placed_group_decides() -> None:
    """Links of six that a group has: neighbours 0-1 one, strides of 4 one (2-6), quads four."""
    assert shares(2, 1)[0] == pytest.approx(1)
    assert shares(2, 4)[0] == pytest.approx(1)
    assert shares(4, 1) == pytest.approx([4, 3])
    assert shares(4, 2)[0] == pytest.approx(2)
    assert shares(8, 1)[0] == pytest.approx(6)
    assert shares(2, 8) == [6, 6]  # one rank a node: no cable inside
    assert neighbours(system(), 2, 2).ring_share[0] == pytest.approx(2 / 6)


def test_switches_give_every_group_all_links() -> None:
    for name in ("dgx-h100", "dgx-a100", "a100-pcie-node", "tpu-v3-board"):
        for ranks in (2, 4, 8):
            where = one_group(system(name), ranks)
            assert (where.ring_share[0], where.pair_share[0]) == (1.0, 1.0)
        assert best_share(system(name)) == 1.0


def test_a_pair_of_a_dgx1_is_no_faster_than_its_cable(cli: Cli) -> None:
    words = ("--system", "dgx-1v", "--ranks", 2, "--sizes", "1GiB", "--json")
    done = cli("collectives", "--kind", "all_reduce,send_recv", *words)
    assert [row["busbw_gb_per_s"] for row in done.document["rows"]] == pytest.approx(
        [22.9, 22.9], rel=0.01
    )


def test_four_of_a_node_of_eight_keep_their_cables(tmp_path: Path) -> None:
    """`devices_per_node: 4` of a DGX-1 is a quad, not four devices with all six links each."""
    text = (ROOT / "scenarios" / "bert-large-dgx-1v.yaml").read_text()
    text = text.replace("nodes: 1", "nodes: 1\n  devices_per_node: 4").replace("dp: 8", "dp: 4")
    (tmp_path / "s.yaml").write_text(text)
    four = load_scenario(tmp_path / "s.yaml").job.system
    assert one_group(four, 4).ring_share[0] == pytest.approx(4 / 6)


def test_half_of_jean_zays_links_lead_to_each_other_device() -> None:
    where = one_group(system("jean-zay-v100"), 2)
    assert where.ring_share[0] == pytest.approx(1 / 3)
    assert one_group(system("jean-zay-v100"), 4).ring_share[0] == pytest.approx(1)


def test_messages_have_the_cable_between_two_ranks() -> None:
    on, beside, world = system(), np.array([1]), np.array([8])
    hops = 6 * hop_shares(on, beside, 8, world)[:, 0]
    # 3 to 4 and 7 to 0 pass a device of the pipeline that has two links to both
    assert hops == pytest.approx([1, 2, 2, 2, 1, 2, 2, 2])
    assert circle_share(on, np.array([8]), beside, world) == pytest.approx([1 / 6])
    assert 6 * pair_share(on, 0, 5) < 1  # over the hosts
    assert 6 * best_share(on) == pytest.approx(2)
    # both neighbours of rank 1 at once: 0 on one cable, 2 on two
    assert 6 * joint_share(on, 1, [0, 2, 9]) == pytest.approx(2)
    assert 6 * mean_share(on, 1, [0, 2]) == pytest.approx(2 / (1 / 1 + 1 / 2))
    assert joint_share(system("dgx-a100"), 1, [0, 2]) == mean_share(system("dgx-a100"), 1, [0]) == 1


def test_tensor_ranks_of_a_mesh_wait_longer() -> None:
    scenario = load_scenario(
        ROOT / "scenarios" / "bert-large-dgx-1v.yaml", {"plan.tp": 2, "plan.dp": 4}
    )
    on_mesh = simulate(scenario.job, scenario.fixed_plan()).step_time
    cluster = scenario.job.cluster
    hub = replace(cluster.system, intra=replace(cluster.system.intra, fabric="nvswitch"))
    job = replace(scenario.job, cluster=replace(cluster, system=hub))
    on_switch = simulate(job, scenario.fixed_plan()).step_time
    assert 1.2 < on_mesh / on_switch < 1.3


def test_bridged_cards_have_their_bridge(cli: Cli, tmp_path: Path) -> None:
    """Pairs of an imported node reach NVLink's rate, four cards that of PCI Express."""
    out = tmp_path / "my.yaml"
    cli("catalog", "import", SAMPLES / "bridged-pairs.txt", "--as", "my-node", "--out", out)
    bridged = load_catalog([out]).system("my-node")
    pair, four = (one_group(bridged, ranks) for ranks in (2, 4))
    assert four.ring_share[0] == 1.0
    assert pair.ring_share[0] * bridged.intra.rate == pytest.approx(300e9 * 0.7, rel=0.2)
    across = one_group(bridged, 2, 2)  # 0 and 2 have no bridge
    assert across.ring_share[0] == 1.0
    assert 1.0 < pair_share(bridged, 0, 1) <= best_share(bridged)
    assert pair_share(bridged, 1, 2) == 1.0
    fast, slow = (collective_time(bridged, "all_reduce", GIB, w)[0] for w in (pair, across))
    assert fast < slow / 5


def test_simulate_says_where_nvlink_is_not_used(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "my.yaml"
    cli("catalog", "import", SAMPLES / "bridged-pairs.txt", "--as", "my-node", "--out", out)
    (tmp_path / "s.yaml").write_text(
        "model: {name: bert-large}\n"
        "cluster: {system: my-node, nodes: 1, catalog: [my.yaml]}\n"
        "training: {global_batch_size: 64, precision: bf16}\n"
        "plan: {dp: 2, tp: 2, microbatch_size: 1}\n"
    )
    notes = " ".join(load_scenario(tmp_path / "s.yaml").notes)
    assert "NVLink joins only some devices of my-node" in notes
