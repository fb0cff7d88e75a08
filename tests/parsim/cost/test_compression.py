"""Packing gradients: indices' bytes, passes over the gradient, and where they meet the step."""

from __future__ import annotations

from typing import Any

import pytest

from parsim.cluster.reader import load_catalog
from parsim.cost.compression import chosen_values, compress_time, sum_bytes, unpack_bytes
from parsim.plan.strategies import AsynchronousServer, ParameterServer, Servers
from tests.parsim.sim.data_parallel.cases import predicted, priced, workers

TENTH: dict[str, Any] = {"compression": 0.1}
HALF: dict[str, Any] = {"compression": 0.5, "compressor": "half"}
VALUES = 1e8


@pytest.mark.parametrize("width", [2.0, 4.0])
def test_indices_are_among_the_bytes(width: float) -> None:
    """K values and K indices of 4 bytes are the share of the gradient's bytes that is sent."""
    chosen = chosen_values(ParameterServer(**TENTH), VALUES, width)
    assert chosen * (width + 4.0) == pytest.approx(0.1 * width * VALUES)


def test_a_selection_by_hand() -> None:
    """One of 20 fp32 values: 40 bytes a value and 56 a chosen one, at V100's memory rate."""
    device = load_catalog().device("v100-sxm-16gb")
    rate = device.memory_bandwidth * device.memory_efficiency
    seconds = compress_time(device, ParameterServer(**TENTH), VALUES, 4.0)
    moved = 40.0 * VALUES + 56.0 * 0.05 * VALUES
    launches = 12 * 0.5 * device.kernel_latency
    assert float(seconds) == pytest.approx(moved / rate + launches)
    cast = compress_time(device, ParameterServer(**HALF), VALUES, 4.0)
    assert float(cast) == pytest.approx(6.0 * VALUES / rate + 0.5 * device.kernel_latency)
    assert compress_time(device, ParameterServer(), VALUES, 4.0) == 0.0


def test_a_core_selects_as_fast_as_measured() -> None:
    core = load_catalog().device("cpu")
    """3.5 ns a value and 25 a chosen one, of which there is one of 20."""
    seconds = compress_time(core, ParameterServer(**TENTH), 3.5e6, 4.0)
    assert seconds == pytest.approx(3.5e6 * (3.5e-9 + 25e-9 / 20))


def test_what_servers_move() -> None:
    """Bytes of a gradient of 4: summed 12 a value, 10 from 16 bit, 16 of each twentieth."""
    whole, half, tenth = (ParameterServer(**words) for words in ({}, HALF, TENTH))
    size = 4.0 * VALUES
    assert [sum_bytes(each, size, 4.0) / VALUES for each in (whole, half, tenth)] == (
        pytest.approx([12.0, 10.0, 16.0 / 20])
    )
    assert [unpack_bytes(each, size, 4.0) / VALUES for each in (whole, half, tenth)] == (
        pytest.approx([0.0, 6.0, 4.0 + 12.0 / 20])
    )


@pytest.mark.parametrize("kind", [ParameterServer, AsynchronousServer])
def test_packing_stands_between_backward_and_push(kind: type[Servers]) -> None:
    tasks = [task.name for task in priced(kind(**TENTH)).program.tasks]
    assert tasks.index("B 0") + 1 == tasks.index("compress") == tasks.index("push") - 1
    assert "compress" not in [task.name for task in priced(kind()).program.tasks]


def test_packing_is_in_the_step() -> None:
    """The step is that of its messages, and the seconds of the selection behind backward."""
    strategy = ParameterServer(on="devices", **TENTH)
    made = priced(strategy)
    seconds = float(made.seconds["compress"][0])
    assert seconds == float(compress_time(
        workers(strategy).job.device, strategy, workers(strategy).parameters, 4.0
    ))  # fmt: skip
    whole = predicted(ParameterServer(on="devices")).step_time
    assert seconds < predicted(strategy).step_time < whole
