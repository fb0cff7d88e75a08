"""Groups that are built once in a world, and anew in the next one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

from executor.devices.event_loops import THREADS, event_loops, let_senders_run  # noqa: E402
from executor.devices.mesh import mesh_of, process_group, subgroup  # noqa: E402
from tests.executor.launch import launch  # noqa: E402

WORKER = Path(__file__).parents[1] / "workers" / "event_loops.py"
VERSION = tuple(int(number) for number in torch.__version__.split(".")[:2])


@contextmanager
def world(store: Path) -> Iterator[None]:
    """A world of one rank."""
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def test_a_mesh_is_built_once_in_a_world(tmp_path: Path) -> None:
    ranks = torch.zeros(1, 1, dtype=torch.int64)
    with world(tmp_path / "first"):
        mesh = mesh_of("cpu", ranks, ("pp", "tp"))
        assert mesh_of("cpu", ranks.clone(), ("pp", "tp")) is mesh
        assert mesh_of("cpu", ranks, ("pp", "dp")) is not mesh
        assert mesh_of("cpu", ranks.view(1), ("pp",)).ndim == 1
        group = subgroup([[0]])
        assert subgroup([[0]]) is group
        assert subgroup([]) is None
    with world(tmp_path / "second"):
        assert mesh_of("cpu", ranks, ("pp", "tp")) is not mesh
        assert subgroup([[0]]) is not group
        dist.all_reduce(torch.ones(1), group=subgroup([[0]]))


def test_worlds_that_meet_in_torchruns_store_do_not_meet_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torchruns = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(torchruns.port)}
    variables |= {"RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    keys = []
    for start in ("0", "1"):
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", start)
        for _ in range(2):
            before = torchruns.num_keys()
            with process_group("gloo", 30.0):
                dist.all_reduce(torch.ones(1), group=subgroup([[0]]))
            keys.append(torchruns.num_keys() - before)
    assert min(keys) > 0  # none finds all its keys already there, from one before


@pytest.mark.parametrize(("backend", "named"), [("gloo", False), ("nccl", True)])
def test_only_nccl_is_told_the_device(
    backend: str, named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined: list[object] = []
    monkeypatch.setattr(
        dist, "init_process_group", lambda *_, device_id=None, **__: joined.append(device_id)
    )
    monkeypatch.setattr(dist, "destroy_process_group", lambda: None)
    device = torch.device("cuda", 0)
    with process_group(backend, 30.0, device):
        assert joined == [device if named else None]  # with one, gloo's groups would be split off


@pytest.mark.distributed
@pytest.mark.skipif(not THREADS.exists(), reason="only Linux lists its threads")
@pytest.mark.skipif(VERSION < (2, 13), reason="gloo of older torch names no event loop")
def test_event_loops_of_all_groups_take_no_core_from_who_runs(tmp_path: Path) -> None:
    for seen in launch(WORKER, ranks=2, folder=tmp_path, timeout=120.0):
        counts = [len(policies) for policies in seen]
        assert counts == sorted(set(counts))  # each group has loops of its own
        assert counts[0] > 0
        assert {policy for policies in seen for policy in policies} == {os.SCHED_BATCH}


def test_a_system_without_a_list_of_threads_has_no_event_loops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("executor.devices.event_loops.THREADS", tmp_path / "no")
    assert event_loops() == []
    let_senders_run()
