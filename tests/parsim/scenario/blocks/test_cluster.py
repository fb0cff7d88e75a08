"""What the cluster block makes: links with units, devices, catalogs of the user."""

from __future__ import annotations

from pathlib import Path

from tests.parsim.scenario.blocks.written import load


def test_units_of_the_links_are_read(tmp_path: Path) -> None:
    cluster = {
        "system": "dgx-a100",
        "nodes": 2,
        "intra": {"bandwidth": "250GB/s", "efficiency": 0.7, "nvls": True},
        "network": {"nic_bandwidth": "400Gb/s", "latency": "5us", "oversubscription": 2},
    }
    system = load(tmp_path, cluster=cluster).job.system
    assert (system.intra.bandwidth, system.intra.efficiency, system.intra.nvls) == (
        250e9,
        0.7,
        True,
    )
    assert system.network is not None
    assert (system.network.nic_bandwidth, system.network.latency) == (50e9, 5e-6)
    assert (system.network.oversubscription, system.network.nics_per_node) == (2.0, 8)


def test_unused_devices_leave_their_interfaces_unused(tmp_path: Path) -> None:
    cluster = {"system": "dgx-a100", "nodes": 4, "devices_per_node": 2}
    scenario = load(tmp_path, cluster=cluster)
    assert scenario.job.cluster.num_devices == 8
    assert scenario.job.system.network is not None
    assert scenario.job.system.network.nics_per_node == 2
    assert scenario.notes == (
        "devices_per_node=2 of 8: 2 of 8 network interfaces of a node are used",
    )


def test_the_number_of_interfaces_can_be_stated(tmp_path: Path) -> None:
    cluster = {
        "system": "dgx-a100",
        "nodes": 4,
        "devices_per_node": 2,
        "network": {"nics_per_node": 8},
    }
    scenario = load(tmp_path, cluster=cluster)
    assert scenario.job.system.network is not None
    assert (scenario.job.system.network.nics_per_node, scenario.notes) == (8, ())


def test_another_device_in_a_system(tmp_path: Path) -> None:
    cluster = {"system": "dgx-a100", "nodes": 1, "device": "a100-sxm-40gb"}
    assert load(tmp_path, cluster=cluster).job.device.id == "a100-sxm-40gb"


def test_a_catalog_is_found_beside_the_scenario(tmp_path: Path) -> None:
    mine = "systems: {mine: {from: dgx-a100, devices_per_node: 4}}\n"
    (tmp_path / "mine.yaml").write_text(mine, encoding="utf-8")
    scenario = load(tmp_path, cluster={"system": "mine", "nodes": 1, "catalog": ["mine.yaml"]})
    assert (scenario.job.system.id, scenario.job.cluster.num_devices) == ("mine", 4)
    assert scenario.catalog == (tmp_path.resolve() / "mine.yaml",)
