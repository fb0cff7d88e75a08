"""List scheduling: the loops that numba compiles list what Python's list, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

from parsim.schedule.families.chimera import both_ways
from parsim.schedule.families.hanayo import waves
from parsim.schedule.orders import list_order, loops, numbered
from parsim.schedule.orders.list_order import best_order
from parsim.schedule.orders.loops import PLAIN, QUEUES, WORTH, Loops, Pace
from parsim.schedule.orders.work import Work

COMPILED = pytest.importorskip("parsim.schedule.orders.numba_listing", reason="needs numba")


def _work(pp: int, v: int, m: int, copies: int, message: float) -> Work:
    stage_rank = both_ways(pp) if copies > 1 else waves(pp, v)
    stages = len(stage_rank)
    draw = np.random.default_rng(stages * m)
    return Work(
        stage_rank=stage_rank,
        num_microbatches=m,
        forward=draw.uniform(0.5, 1.5, stages).tolist(),
        backward=draw.uniform(0.5, 3.0, stages).tolist(),
        message=message,
        limits=[max(stages // copies, 2)] * pp,
        copies=copies,
    )


@pytest.mark.parametrize("message", [0.0, 0.13])
@pytest.mark.parametrize(
    ("pp", "v", "m", "copies"), [(2, 2, 4, 1), (4, 6, 6, 1), (3, 4, 10, 1), (4, 2, 8, 2)]
)
def test_compiled_loops_list_what_pythons_do(
    monkeypatch: pytest.MonkeyPatch, pp: int, v: int, m: int, copies: int, message: float
) -> None:
    work = _work(pp, v, m, copies, message)
    orders = []
    for each in (PLAIN, Loops(COMPILED.list_turns, COMPILED.end_all, np.asarray)):
        for module in (list_order, numbered):
            monkeypatch.setattr(module, "PACE", _Always(each))
        orders.append(best_order(work, turned=2000))
    assert orders[0] == orders[1]


class _Always(Pace):
    """One kind of loops, however much was listed."""

    def __init__(self, only: Loops) -> None:
        super().__init__()
        self.only = only

    def loops(self, actions: int, queues: int) -> Loops:
        return self.only


def test_loops_are_compiled_behind_many_actions_where_flags_fit_a_number() -> None:
    pace = Pace()
    assert pace.loops(WORTH, 4) is PLAIN
    assert pace.loops(1, 4).list_turns is COMPILED.list_turns
    assert pace.loops(1, QUEUES + 1) is PLAIN


def test_a_process_without_numba_stays_with_pythons_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "find_spec", lambda name: None)
    loops._compiled.cache_clear()
    pace = Pace()
    pace.loops(WORTH, 4)
    assert pace.loops(1, 4) is PLAIN
    loops._compiled.cache_clear()
