"""Layouts on a mesh: bytes in closed form, DDP to the bit, tiers, memory, the search, refusals."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import pytest

from parsim.cost.job import Job
from parsim.cost.legal import illegal
from parsim.layout.candidates import Options
from parsim.layout.names import options_of
from parsim.model.graph.catalog import network
from parsim.model.reader import load_model_catalog
from parsim.model.transformer import build_transformer
from parsim.plan import Plan, Recompute
from parsim.plan.strategies import Layout
from parsim.sim import simulate
from parsim.sim.data_parallel.families.priced import Priced
from parsim.sim.data_parallel.priced_strategy import PricedStrategy
from parsim.sim.data_parallel.shared_links import contention_of
from parsim.sim.layouts.choose import choose
from parsim.sim.layouts.priced import LaidOut
from parsim.sim.recurrence.evaluate import evaluate
from parsim.strategy.layout import EXCHANGE, REDUCE
from tests.parsim.sim.graph_job import graph_job
from tests.parsim.sim.layouts.models import MODELS
from tests.parsim.sim.strategy_tiers import assert_tiers_agree

FP32 = 4


@cache
def job(name: str, devices: int = 8, nodes: int = 1) -> Job:
    """A model on so many V100 of each node."""
    graph = MODELS[name]() if name in MODELS else network(name)
    return graph_job(graph, devices, nodes)


def plan(
    mesh: dict[str, int] | None = None,
    layout: dict[str, str] | None = None,
    signatures: dict[str, dict[str, str]] | None = None,
    **values: Any,
) -> Plan:
    """A mesh of eight workers, 16 samples of each."""
    axes = tuple((mesh or {"devices": 8}).items())
    names = None if layout is None else tuple(layout.items())
    stated = None
    if signatures is not None:
        stated = tuple((name, tuple(parts.items())) for name, parts in signatures.items())
    chosen = {"dp_replicate": 8, "precision": "fp32", "microbatch_size": 16, **values}
    return Plan(strategy=Layout(mesh=axes, layout=names, signatures=stated), **chosen)


def laid_out(name: str, which: Plan, nodes: int = 1) -> LaidOut:
    """A plan's layout with its prices."""
    evaluation = evaluate(job(name, which.dp // nodes, nodes), which.whole_models)
    return LaidOut(evaluation, which)


def priced(name: str, which: Plan, nodes: int = 1) -> Priced:
    evaluation = evaluate(job(name, which.dp // nodes, nodes), which.whole_models)
    return PricedStrategy.of(evaluation, which).priced


def words(out: LaidOut, axis: int = 0) -> dict[str, str]:
    """What each operation goes by."""
    return {name: way[axis].word for name, way in out.laid.signatures.items()}


def test_data_parallel_is_ddp() -> None:
    """Bytes to the bit; seconds of the passes, and memory."""
    which = plan(layout={"batch": "devices"})
    out = laid_out("alexnet", which)
    parameters = job("alexnet").model.parameters
    assert out.pieces.exchanges[EXCHANGE] == []
    assert sum(e.size for e in out.pieces.exchanges[REDUCE]) == FP32 * parameters
    assert {e.axes for e in out.pieces.exchanges[REDUCE]} == {(0,)}
    ddp = simulate(job("alexnet"), replace(which, strategy=Plan().strategy))
    made = simulate(job("alexnet"), which)
    assert made.strategy is not None
    assert made.strategy.sent == 2 * FP32 * parameters * 7 / 8
    for part in ("forward", "backward"):
        assert made.breakdown[part] == pytest.approx(ddp.breakdown[part], rel=1e-6)
    assert made.memory == pytest.approx(ddp.memory, rel=1e-9)
    # the wide products' gradients come first, where DDP's form lets all come at an even pace
    assert 0.9 * ddp.step_time < made.step_time < ddp.step_time


def test_products_by_columns_and_inputs_cost_an_all_reduce_each_way() -> None:
    """Megatron's pair: fc2 by columns, fc3 by inputs; its summands and their gradient's."""
    out = laid_out("products", plan(layout={"model": "devices"}))
    assert words(out)["fc2"] == "columns"
    assert words(out)["fc3"] == "inputs"
    batch, classes = 16 * 8, 16
    assert [(e.kind, e.size) for e in out.pieces.exchanges[EXCHANGE]] == [
        ("all_reduce", batch * classes * FP32)
    ] * 2
    first = 16 * 32 + 32  # fc1 is whole, and so is the bias of fc3
    reduced = sum(e.size for e in out.pieces.exchanges[REDUCE])
    assert reduced == FP32 * (first + classes)
    local = first + (32 * 64 + 64) / 8 + 64 * classes / 8 + classes
    assert out.shares.parameters == pytest.approx(local / job("products").model.parameters)


def test_one_weird_trick_by_hand() -> None:
    """Krizhevsky's bytes: 9216 inputs of fc6, 4096 of fc7 and of fc8, of all samples, gathered."""
    by_columns = {f"fc{n}": {"weight": "S(1)"} for n in (6, 7, 8)}
    between = {f"{kind}{n}": {"output": "S(1)"} for n in (6, 7) for kind in ("relu",)}
    convolutions = {f"conv{n}": {"output": "S(0)"} for n in range(1, 6)}
    dropped = {"drop6": {"output": "S(0)"}, "drop7": {"output": "S(1)"}}
    loss = {"loss": {"input": "S(1)"}}
    stated = {**by_columns, **between, **convolutions, **dropped, **loss}
    out = laid_out("alexnet", plan(signatures=stated))
    gathers = [e.size for e in out.pieces.exchanges[EXCHANGE] if e.kind == "all_gather"]
    batch = 16 * 8
    assert gathers == [batch * width * FP32 for width in (9216, 4096, 4096)]
    scatters = [e.size for e in out.pieces.exchanges[EXCHANGE] if e.kind == "reduce_scatter"]
    assert scatters == [batch * width * FP32 for width in (4096, 4096, 9216)]
    sums = [e.size for e in out.pieces.exchanges[EXCHANGE] if e.kind == "all_reduce"]
    assert sums == [batch * FP32] * 3  # maximum, target's logit, sum of each row
    convolved = 2_469_696  # parameters of the five convolutions
    assert sum(e.size for e in out.pieces.exchanges[REDUCE]) == convolved * FP32


@pytest.mark.parametrize("name", ["alexnet", "vgg16"])
def test_one_weird_trick_comes_out_of_the_search(name: str) -> None:
    """On eight V100: convolutions by batch, the first wide product by its outputs or inputs."""
    out = laid_out(name, plan())
    ways = words(out)
    products = [node.name for node in out.graph.nodes if node.name.startswith("fc")]
    assert all(way == "batch" for node, way in ways.items() if node.startswith("conv"))
    assert all(ways[node] in ("columns", "inputs") for node in products)
    assert out.chosen.proven
    data_parallel = laid_out(name, plan(layout={"batch": "devices"}))
    assert out.chosen.seconds < data_parallel.chosen.seconds
    trick, ddp = (
        simulate(job(name), which) for which in (plan(), plan(layout={"batch": "devices"}))
    )
    assert trick.step_time < ddp.step_time


def test_what_is_found_is_the_best_of_all() -> None:
    """Every combination of signatures of a chain, priced by itself."""
    which = plan({"devices": 2}, dp_replicate=2)
    out = laid_out("mean", which)
    options = Options(out.graph, out.mesh)
    ways = options_of(options, None, None)
    costs = []
    for chosen in product(*ways.values()):
        alone = {name: (way,) for name, way in zip(ways, chosen, strict=True)}
        costs.append(choose(alone, out.prices).seconds)
    assert out.chosen.seconds == pytest.approx(min(costs), rel=1e-12)
    assert out.chosen.proven


CASES = [
    ("convolutions", plan({"rows": 2, "cols": 4}, {"batch": "rows", "ffn": "cols"})),
    ("convolutions", plan({"rows": 2, "cols": 2}, num_microbatches=3)),
    ("text", plan({"a": 4}, {"heads": "a", "ffn": "a", "vocab": "a"}, num_microbatches=2)),
    ("first row", plan({"a": 2, "b": 2}, {"batch": "a", "vocab": "b"})),
    ("tasks", plan({"rows": 2, "cols": 2}, {"batch": "rows", "channels": "cols"})),
    ("alexnet", plan()),
]


@pytest.mark.parametrize(
    ("name", "which"), CASES, ids=["named", "replicas", "text", "first row", "tasks", "alexnet"]
)
def test_the_recurrence_is_the_events_on_every_task(name: str, which: Plan) -> None:
    made = priced(name, which)
    assert_tiers_agree(made)


@pytest.mark.parametrize(
    ("name", "which"), CASES, ids=["named", "replicas", "text", "first row", "tasks", "alexnet"]
)
def test_many_micro_batches_as_one_take_as_long(
    monkeypatch: pytest.MonkeyPatch, name: str, which: Plan
) -> None:
    """Gradients are summed beside the last of them alone, however many one pass stands for."""
    many = replace(which, num_microbatches=5)
    each = simulate(job(name), many).step_time
    monkeypatch.setattr("parsim.sim.data_parallel.workers.MOST_PASSES", 1)
    assert simulate(job(name), many).step_time == pytest.approx(each, rel=1e-9)
    assert_tiers_agree(priced(name, many))


def test_layouts_on_shared_links_and_drawn() -> None:
    which = plan({"rows": 2, "cols": 4}, {"batch": "rows", "ffn": "cols", "vocab": "cols"})
    shared = contention_of(job("convolutions"), which)
    assert shared.step_time == pytest.approx(shared.alone, rel=1e-6)
    drawn = simulate(job("convolutions"), which, timeline=True)
    assert drawn.timeline is not None
    assert {"F", "B", "EXCHANGE", "OPTIMIZER"} <= {span.kind for span in drawn.timeline.spans}
    assert simulate(job("convolutions"), which, tier="events").step_time == drawn.step_time


def test_names_are_signatures() -> None:
    """A layout of names and the signatures that it becomes are one plan."""
    mesh = {"rows": 2, "cols": 4}
    named = laid_out("convolutions", plan(mesh, {"batch": "rows", "ffn": "cols", "vocab": "cols"}))
    stated = {
        name: {"output": ",".join(str(s.output) for s in way)}
        | {"input": ",".join(str(s.inputs[0]) for s in way)}
        | {"weight": ",".join(str(s.weight) for s in way)}
        for name, way in named.laid.signatures.items()
    }
    again = laid_out("convolutions", plan(mesh, signatures=stated))
    assert again.laid == named.laid
    assert again.pieces.parts == named.pieces.parts


@pytest.mark.parametrize(
    ("name", "which", "message"),
    [
        (
            "text",
            {"layout": {"batch": "devices", "heads": "devices"}},
            "batch and heads are both on",
        ),
        (
            "text",
            {"layout": {"ffn": "devices", "model": "devices"}},
            "the weight of 'fc1' has both",
        ),
        ("text", {"layout": {"heds": "devices"}}, "did you mean 'heads'"),
        ("text", {"layout": {"heads": "device"}}, "did you mean 'devices'"),
        (
            "text",
            {"layout": {"heads": "devices"}},
            "does not divide 'attention' by heads; allowed: 1, 2, 4",
        ),
        (
            "products",
            {"signatures": {"fc3": {"weight": "S(1)"}}, "mesh": {"a": 2, "b": 4}},
            "2 axes",
        ),
        ("products", {"layout": {"heads": "devices"}}, "this model's dimensions: batch"),
        (
            "products",
            {"signatures": {"fc9": {"weight": "B"}}},
            "'fc9' is no operation of the model",
        ),
        ("products", {"signatures": {"fc1": {"weights": "B"}}}, "did you mean 'weight'"),
        ("products", {"signatures": {"fc1": {"weight": "B,B"}}}, "has 2 parts, but the mesh has 1"),
        ("products", {"signatures": {"relu1": {"input": "P"}}}, "is not the sum of relu"),
        ("products", {"signatures": {"fc1": {"weight": "S(2)"}}}, "is no signature of linear"),
        ("products", {"mesh": {"a": 3}}, "do not divide dp=8"),
        ("products", {"mesh": {"a": 1}}, "a=1 splits nothing"),
        ("products", {"mesh": {"replicas": 2}}, "use another name"),
        (
            "products",
            {"layout": {"batch": "devices"}, "signatures": {"fc1": {}}},
            "leave one of them",
        ),
        ("products", {"sync_batch_norm": True}, "sync_batch_norm=false"),
        ("products", {"recompute": Recompute.FULL}, "use recompute=none"),
        ("products", {"zero_stage": 1}, "use zero_stage=0"),
    ],
)
def test_what_cannot_be_is_refused(name: str, which: dict[str, Any], message: str) -> None:
    told = illegal(job(name), plan(**which))
    assert told is not None
    assert re.search(re.escape(message), told), told


def test_a_transformer_is_told_its_axes() -> None:
    model = build_transformer(load_model_catalog()["gpt2"])
    told = illegal(replace(job("products"), model=model), plan())
    assert told is not None
    assert "state `layout`, dimensions (batch, sequence, heads" in told
