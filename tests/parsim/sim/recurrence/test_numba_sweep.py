"""The extra `fast`: numba's loop gives numpy's finish times to the last bit."""

import numpy as np
import pytest

from parsim.schedule import build_schedule
from parsim.sim.recurrence.maxplus import ClassTimes, _by_levels, sender_class
from parsim.sim.step.compiled_schedule import compile_schedule


@pytest.mark.parametrize(
    ("name", "pp", "m", "v"),
    [("gpipe", 3, 5, 1), ("1f1b", 4, 9, 1), ("interleaved_1f1b", 4, 8, 3), ("naive", 3, 4, 1)],
)
def test_compiled_is_bit_equal(name: str, pp: int, m: int, v: int) -> None:
    sweep = pytest.importorskip("parsim.sim.recurrence.numba_sweep", reason="needs numba").sweep
    graph = compile_schedule(build_schedule(name, pp=pp, num_microbatches=m, v=v))
    random = np.random.default_rng(pp * m * v)
    classes = 4 * graph.schedule.num_stages
    times = ClassTimes(duration=random.random((classes, 17)), hop=random.random((classes, 17)))
    tables = [np.zeros((graph.num_actions + 1, 17)) for _ in range(2)]
    _by_levels(graph, times.duration, times.hop, tables[0])
    kinds, sender = graph.duration_class, sender_class(graph)
    sweep(graph.before, graph.source, kinds, sender, times.duration, times.hop, tables[1])
    assert (tables[0] == tables[1]).all()
    assert (tables[0][1:] > 0).all()
