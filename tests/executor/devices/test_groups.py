"""Groups that are built once in a world, and anew in the next one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

from executor.devices.mesh import mesh_of, subgroup  # noqa: E402


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
