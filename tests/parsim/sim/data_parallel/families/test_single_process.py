"""One process with all devices: copies take links where there are any, else the memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parsim.cluster.hardware import Cluster
from parsim.plan import Plan
from parsim.plan.strategies import DDP, SingleProcess
from parsim.sim.data_parallel.families.priced import Priced
from parsim.sim.data_parallel.families.single_process import single_process
from parsim.sim.data_parallel.shared_links import contention_of
from parsim.sim.data_parallel.workers import Workers
from parsim.sim.recurrence.evaluate import evaluate
from tests.parsim.sim.data_parallel.cases import job, priced


def _cores(count: int) -> tuple[Workers, Priced]:
    ddp = Plan(dp_replicate=count, precision="fp32", strategy=DDP)
    plan = Plan(dp_replicate=count, precision="fp32", strategy=SingleProcess())
    cores = job(1, "cpu")
    system = replace(cores.cluster.system, devices_per_node=count)
    cores = replace(cores, cluster=Cluster(system=system, num_nodes=1))
    workers = Workers.of(evaluate(cores, ddp), plan)
    return workers, single_process(workers)


@pytest.mark.parametrize("count", [2, 4])
def test_cores_copy_in_their_memory_one_after_another(count: int) -> None:
    """A weight is read and written for each other core; a sum reads two values and writes one."""
    workers, made = _cores(count)
    device = workers.job.device
    rate = device.memory_bandwidth * device.memory_efficiency
    launch = 0.5 * device.kernel_latency
    for name, passes in (("replicate", 2), ("reduce", 3)):
        moved = passes * (count - 1) * 4.0 * workers.parameters
        assert float(made.seconds[name][0]) == pytest.approx(moved / rate + launch)


def test_cores_share_no_link() -> None:
    workers, made = _cores(2)
    assert not any(task.routes for task in made.program.tasks)
    contention = contention_of(workers.job, workers.plan)
    assert contention.step_time == pytest.approx(contention.alone)


def test_devices_exchange_on_their_links() -> None:
    tasks = priced(SingleProcess(), nodes=1).program.tasks
    routes = {task.price: task.routes for task in tasks if task.routes}
    assert routes == {"replicate": ("broadcast",), "gather": ("all_gather",), "reduce": ("reduce",)}
