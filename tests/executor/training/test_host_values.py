"""Updates in the host's memory, rehearsed on a CPU: the weights of updates on the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from executor.devices.accelerator import Cuda  # noqa: E402
from executor.training.build import build_trainer  # noqa: E402
from executor.training.trainer import Trainer  # noqa: E402
from executor.training.update_rule import OptimizerConfig  # noqa: E402
from parsim.plan import Plan  # noqa: E402
from tests.executor.fake_cuda import FakeCuda  # noqa: E402
from tests.executor.launch import launch  # noqa: E402
from tests.executor.rehearsal import rehearsed  # noqa: E402
from tests.executor.tiny import draw, tiny  # noqa: E402

CPU = torch.device("cpu")
WORKER = Path(__file__).with_name("host_values_worker.py")
SPEC = tiny("llama3-8b")


def trained(plan: Plan, optimizer: str = "adamw", after: Callable[[Trainer], Any] = id) -> Any:
    """Weights, losses and the trainer of three steps; `after` the second one something is done."""
    config = OptimizerConfig(name=optimizer, clip=1.0)
    trainer = build_trainer(SPEC, plan, device=CPU, seed=0, optimizer=config)
    batch, losses = draw(SPEC, 2), []
    for number in range(3):
        losses += trainer.step(*batch)
        if number == 1:
            after(trainer)
    weights = {name: p.detach().clone() for name, p in trainer.replicas[0].stage.named_parameters()}
    return weights, losses, trainer


@contextmanager
def on_a_gpu(plan: Plan) -> Iterator[FakeCuda | None]:
    """A device that is not the host, where a plan updates there."""
    cuda = FakeCuda() if plan.optimizer_offload else None
    with nullcontext() if cuda is None else rehearsed(Cuda(CPU, cuda)):
        yield cuda


def both(plan_of: Callable[[bool], Plan], **how: Any) -> Iterator[Any]:
    for offload in (False, True):
        plan = plan_of(offload)
        with on_a_gpu(plan) as cuda:
            yield (*trained(plan, **how), cuda)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd_momentum"])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "bf16_amp", "fp16_amp"])
def test_weights_and_losses_are_those_of_updates_on_the_device(
    precision: str, optimizer: str, one_rank: None
) -> None:
    def plan_of(offload: bool) -> Plan:
        return Plan(precision=precision, num_microbatches=2, optimizer_offload=offload)

    here, there = both(plan_of, optimizer=optimizer)
    assert here[1] == there[1]
    for name, weight in here[0].items():
        assert torch.equal(weight, there[0][name]), name
    updated = there[2].optimizer._updated
    # a step copies each gradient, and the first values were copied once
    assert there[3].calls.count("stream") == 4 * len(updated)
    kept = {p.data_ptr() for p in there[2].replicas[0].stage.parameters()}
    assert kept.isdisjoint(values.data_ptr() for values in updated.values())


def test_what_is_loaded_from_a_checkpoint_is_what_is_updated(one_rank: None) -> None:
    def changed(trainer: Trainer) -> None:
        with torch.no_grad():
            for parameter in trainer.replicas[0].stage.parameters():
                parameter.mul_(0.5)
        trainer.optimizer.reload()

    here, there = both(
        lambda offload: Plan(precision="fp32", optimizer_offload=offload), after=changed
    )
    assert all(torch.equal(weight, there[0][name]) for name, weight in here[0].items())


def test_a_host_that_is_the_device_copies_nothing(one_rank: None) -> None:
    optimizer = trained(Plan(precision="fp32", optimizer_offload=True))[2].optimizer
    stage = optimizer.replicas[0].stage
    assert {id(p) for p in stage.parameters()} == {id(v) for v in optimizer._updated.values()}


@pytest.mark.distributed
def test_two_ranks_have_the_weights_of_updates_on_their_devices(tmp_path: Path) -> None:
    """Under DDP, buckets, shares of ZeRO-1 and 2, a pipeline and split weights."""
    for cases in launch(WORKER, ranks=2, folder=tmp_path, timeout=240.0):
        for name, same in cases.items():
            assert same.pop("copies") > 0, name
            assert same == {"losses": True, "norm": True, "weights": True}, name
