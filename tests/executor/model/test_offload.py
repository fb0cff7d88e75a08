"""Activations on the host: gradients to the bit, what leaves, what is on the device meanwhile."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.software import software
from parsim.cost.step.layer_table import LayerTable
from parsim.model.graph.catalog import network
from parsim.model.transformer import TransformerSpec, build_transformer
from parsim.plan import Plan, PlanTable, Recompute

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402

from executor.devices.accelerator import Host  # noqa: E402
from executor.measure.memory import peak_above  # noqa: E402
from executor.model.module import build_model, seed_dropout  # noqa: E402
from executor.model.offload import HostStore, is_dense, keep_on_host  # noqa: E402
from tests.executor.rehearsal import rehearsed  # noqa: E402
from tests.executor.tiny import EXPERTS, draw, each_trained, gradients, tiny  # noqa: E402

CPU = torch.device("cpu")


def with_host(
    spec: TransformerSpec, layers: int, recompute: Recompute = Recompute.NONE
) -> tuple[dict[str, Tensor], HostStore | None]:
    """Gradients of a model some of whose layers are on the host."""
    tokens, targets = draw(spec)
    stage = build_model(spec, recompute=recompute)
    store = keep_on_host(stage.layers, layers, CPU)
    seed_dropout(0)
    return gradients(stage, tokens, targets), store


@each_trained
@pytest.mark.parametrize("recompute", list(Recompute))
def test_gradients_are_those_without_to_the_bit(
    spec: TransformerSpec, recompute: Recompute
) -> None:
    here, _ = with_host(spec, 0, recompute)
    for layers in (1, 3, 4):
        there, store = with_host(spec, layers, recompute)
        assert store is not None
        assert store.moved > 0
        assert all(torch.equal(here[name], there[name]) for name in here)


@pytest.mark.parametrize("recompute", list(Recompute))
def test_dropout_draws_what_it_drew(recompute: Recompute) -> None:
    spec = tiny("gpt2", dropout=True)
    here, there = (with_host(spec, layers, recompute)[0] for layers in (0, 4))
    assert all(torch.equal(here[name], there[name]) for name in here)


def test_several_micro_batches_are_on_the_host_at_once() -> None:
    spec = tiny("llama3-8b")
    tokens, others = draw(spec)
    grads = []
    for layers in (0, 3):
        stage = build_model(spec)
        keep_on_host(stage.layers, layers, CPU)
        outputs = [stage(tokens), stage(others)]
        for output in outputs:  # as a pipeline does: forwards ahead of the first backward
            output.square().mean().backward()
        grads.append([parameter.grad.clone() for parameter in stage.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


@pytest.mark.parametrize("recompute", list(Recompute))
@pytest.mark.parametrize(
    ("name", "changes"), [("llama3-8b", {}), ("gpt2", {}), ("mixtral-8x7b", EXPERTS)]
)
def test_what_leaves_is_what_is_predicted(
    name: str, changes: dict[str, Any], recompute: Recompute
) -> None:
    wide = {"hidden_size": 64, "head_dim": 16, "ffn_hidden_size": 160, "seq_len": 64}
    wide |= {"expert_ffn_hidden_size": 96} if changes else {}
    spec = tiny(name, positions=64, **{**changes, **wide})
    cluster = Cluster(system=load_catalog().system("cpu"), num_nodes=1)
    job = Job(model=build_transformer(spec), cluster=cluster, software=software("executor-cpu"))
    plan = Plan(microbatch_size=3, offload_layers=2, recompute=recompute, precision="fp32")
    predicted = LayerTable.of(job, PlanTable.of([plan])).moved[0][0]
    _, store = with_host(spec, 2, recompute)
    assert store is not None
    # beside it: tables of rotations, and a norm's reciprocal of each token
    assert store.moved == pytest.approx(2 * predicted, rel=0.05)


class Elsewhere:
    """Copies into memory that torch does not count: the device's bytes are then torch's own."""

    behind = 0

    def leave(self, tensor: Tensor) -> tuple[Any, None]:
        return tensor.numpy().copy(), None

    def bring(self, copied: Any) -> tuple[Tensor, None]:
        return torch.tensor(copied), None

    def wait(self, moment: None) -> None:
        del moment


class Counted(Host):
    """A processor whose host is elsewhere."""

    def copier(self) -> Elsewhere:
        return Elsewhere()


def test_layers_on_the_host_leave_the_device_but_for_two() -> None:
    spec = tiny("llama3-8b", num_layers=8, seq_len=128)
    tokens, targets = draw(spec)
    peaks, moved = [], 0.0
    for layers in (0, 8):
        stage = build_model(spec)
        with rehearsed(Counted()):
            store = keep_on_host(stage.layers, layers, CPU)
        step = partial(gradients, stage, tokens, targets)
        step()  # gradients exist from here on
        moved = 0.0 if store is None else store.moved / layers
        peaks.append(peak_above(CPU, step))
    saved = (peaks[0] - peaks[1]) / moved
    assert 5.0 < saved < 8.0  # of 8 layers two are on their way


@pytest.mark.parametrize("recompute", [Recompute.NONE, Recompute.FULL])
def test_a_network_of_images_too(recompute: Recompute) -> None:
    graph = network("resnet18", 32, 10)
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    grads = []
    for layers in (0, 5):
        stage = build_model(graph, recompute=recompute)
        keep_on_host(stage.layers, layers, CPU)
        stage(images).square().mean().backward()
        grads.append([parameter.grad for parameter in stage.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


def test_which_tensors_are_a_piece_of_memory() -> None:
    x = torch.zeros(4, 6, 2)
    assert is_dense(x)
    assert is_dense(x.transpose(0, 2))
    assert is_dense(x[1])
    assert not is_dense(x[:, :3])
    assert not is_dense(torch.zeros(1, 3).expand(4, 3))
