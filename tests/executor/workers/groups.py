"""Times collectives of groups of the ranks, a few sizes each."""

from __future__ import annotations

import sys
from dataclasses import replace

import torch
import torch.distributed as dist

from executor.calibration.cases.rank_groups import RankGroups
from executor.calibration.timing.bench import Bench
from executor.calibration.timing.links import link_choice, link_samples
from executor.devices.mesh import process_group
from parsim.cluster.reader import load_catalog
from tests.executor.launch import results

SECONDS, PATIENCE = 0.5, 20.0
"""Seconds of choosing, and of measuring: a busy machine leaves nothing out."""


def main() -> None:
    folder, *lists = sys.argv[1:]
    sizes, experts = (tuple(map(int, entry.split(","))) for entry in lists)
    torch.set_num_threads(1)
    with process_group("gloo", 60.0):
        groups = RankGroups(sizes=sizes, experts=experts, devices=dist.get_world_size())
        system = replace(load_catalog().system("cpu"), devices_per_node=groups.world)
        chosen = link_choice(system, groups, memory=4e6, seconds=SECONDS, cpu=True)
        bench = Bench(torch.device("cpu"), "fp32")
        result = link_samples(bench, chosen, PATIENCE)
        rows = [(entry.kind, dict(entry.shape), entry.seconds) for entry in result]
        results(folder, dist.get_rank(), rows)


if __name__ == "__main__":
    main()
