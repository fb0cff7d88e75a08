"""What strategies do on GPUs, as far as a CPU can tell: nothing here has run on CUDA yet."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402
from torch import distributed as dist  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402

from executor.model.batch_norm import _of_all  # noqa: E402
from executor.strategies import gossip as gossip_module  # noqa: E402
from executor.strategies import train as train_module  # noqa: E402
from executor.strategies.gossip import gossip  # noqa: E402
from executor.strategies.link import Link, begun_together  # noqa: E402
from executor.strategies.replica import FlatReplica  # noqa: E402
from executor.strategies.train import check_off_cpu, verify  # noqa: E402
from parsim.errors import PlanError  # noqa: E402
from parsim.plan import Plan  # noqa: E402
from parsim.plan.strategies import (  # noqa: E402
    AllReduce,
    AsynchronousGossip,
    AsynchronousServer,
    DiLoCo,
    Gossip,
    LocalSGD,
    ParameterServer,
    Strategy,
)
from tests.executor.tiny import FAMILIES, draw  # noqa: E402


@pytest.fixture
def ranks() -> Iterator[None]:
    """Be rank 0 of two, whose messages go nowhere."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize(
    ("strategy", "name"),
    [
        (AsynchronousServer(), "asynchronous_server"),
        (AsynchronousGossip(), "asynchronous_gossip"),
        (ParameterServer(servers=1, backup_workers=1), "parameter_server with backup_workers=1"),
    ],
)
def test_messages_told_apart_by_tags_stay_on_a_cpu(strategy: Strategy, name: str) -> None:
    with pytest.raises(PlanError, match=f"strategy.name={name} tells .* tags, which NCCL ignores"):
        check_off_cpu(Plan(dp_replicate=4, precision="fp32", strategy=strategy))


@pytest.mark.parametrize(
    "strategy", [AllReduce(), ParameterServer(), Gossip(), LocalSGD(every=2), DiLoCo(every=2)]
)
def test_other_strategies_may_be_on_gpus(strategy: Strategy) -> None:
    check_off_cpu(Plan(dp_replicate=4, precision="fp32", strategy=strategy))


def test_gossip_begins_its_messages_together(ranks: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else NCCL's sends would wait for receives that are queued behind them."""
    begun: list[list[str]] = []

    def note(messages: list[dist.P2POp]) -> list[Any]:
        begun.append([message.op.__name__ for message in messages])
        return []

    monkeypatch.setattr(dist, "batch_isend_irecv", note)
    monkeypatch.setattr(gossip_module, "gradient_of", lambda _, __: (1.0, torch.ones(3)))
    monkeypatch.setattr(
        gossip_module, "FlatOptimizer", lambda *_: SimpleNamespace(apply=lambda *_: 1.0)
    )
    quiet = SimpleNamespace(wait=lambda **_: None)
    work = SimpleNamespace(
        plan=Plan(dp_replicate=2, precision="fp32", strategy=Gossip()),
        replica=SimpleNamespace(flat=torch.ones(3)),
        config=None,
        rounds=2,
        link=quiet,
        end=lambda *_: None,
    )
    gossip(work)  # type: ignore[arg-type]
    assert begun == [["isend", "irecv"]] * 2


class _Noted(Exception):
    """Ends a computation whose values a CPU does not have."""


def test_losses_and_clocks_are_reduced_where_the_replica_is(
    ranks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NCCL takes tensors of a GPU only; torch's device without memory stands for it."""
    reduced: list[str] = []

    def note(values: Tensor, **_: object) -> None:
        reduced.append(values.device.type)
        if values.dtype == torch.float64:
            raise _Noted

    monkeypatch.setattr(dist, "all_reduce", note)
    elsewhere = torch.zeros(3, device="meta")
    monkeypatch.setattr(train_module, "gradient_of", lambda *_: (1.0, elsewhere))
    work = SimpleNamespace(
        plan=Plan(dp_replicate=2, precision="fp32", strategy=LocalSGD(every=2)), replica=None
    )
    with pytest.raises(_Noted):
        verify(work, 0)  # type: ignore[arg-type]
    with pytest.raises(_Noted):
        begun_together(Link(1e6), elsewhere.device)
    assert reduced == ["meta"] * 3


def test_a_loss_is_read_once_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reading stops the host until the device is done."""
    readings: list[Tensor] = []
    plain = Tensor.__float__

    def read(x: Tensor) -> float:
        readings.append(x)
        return float(plain(x))

    monkeypatch.setattr(Tensor, "__float__", read)
    replica = FlatReplica(FAMILIES["gpt2"], seed=0, device=torch.device("cpu"))
    loss, _ = replica.gradient(draw(FAMILIES["gpt2"], 4), microbatches=4)
    assert loss > 0.0
    assert len(readings) == 1


def test_synchronised_statistics_take_nothing_from_the_host(
    ranks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of numbers would be copied to the device, which stops the host."""

    def copied(*_: object) -> Tensor:
        raise AssertionError("copied from the host")

    def gathered(parts: list[Tensor], mine: Tensor, group: object) -> None:
        for part in parts:
            part.copy_(mine)

    monkeypatch.setattr(Tensor, "new_tensor", copied)
    monkeypatch.setattr(torch, "tensor", copied)
    monkeypatch.setattr(dist, "all_gather", gathered)
    x = torch.randn(6, 2, 3, 3)
    mean, var, total = _of_all(x, dist.group.WORLD)  # two ranks with the same batch
    assert torch.allclose(mean, x.mean((0, 2, 3)), atol=1e-6)
    assert torch.allclose(var, x.var((0, 2, 3), correction=0), atol=1e-6)
    assert float(total) == 2 * 6 * 9
