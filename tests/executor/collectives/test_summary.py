"""What timings of collectives come to, and how many ranks a machine can run."""

from __future__ import annotations

import torch

from executor.collectives.__main__ import hardware
from executor.collectives.timing import Team, summary
from executor.devices.capacity import most_ranks
from executor.devices.machine import DeviceReport

CPU = DeviceReport(kind="cpu", backend="gloo", count=2, names=("cpu",), shareable=True)
UNKNOWN = DeviceReport(kind="cuda", backend="nccl", count=4, names=("Other GPU",), shareable=False)


def team(*ranks: int) -> Team:
    return Team(ranks=ranks, group=None, joined=False)


def test_a_timing_lasts_from_the_first_start_to_the_last_end() -> None:
    """Two repeats of two calls; ranks 2 and 3 belong to another group."""
    times = torch.tensor(
        [
            [[0.0, 1.0], [10.0, 12.0]],
            [[0.5, 2.0], [10.5, 13.0]],
            [[0.5, 4.0], [10.0, 11.0]],
            [[0.0, 1.0], [10.0, 19.0]],
        ],
        dtype=torch.float64,
    )
    alone = summary(times, [team(0, 1)], calls=2)
    assert alone == {"time_s": 1.25, "mad_s": 0.25, "least_s": 1.0}
    both = summary(times, [team(0, 1), team(2, 3)], calls=2)
    assert both == {"time_s": 3.25, "mad_s": 1.25, "least_s": 2.0}


def test_processors_are_shared_and_gpus_are_not() -> None:
    assert most_ranks(CPU) == 16
    assert most_ranks(UNKNOWN) == 4


def test_what_there_is_to_measure_on() -> None:
    result = hardware(CPU)
    assert (result["system"], result["backend"], result["count"]) == ("cpu", "gloo", 2)


def test_a_gpu_that_the_catalog_lacks_has_no_system() -> None:
    result = hardware(UNKNOWN)
    assert result["system"] is None
    assert result["hardware"] == "Other GPU"
