"""Traces of torch's profiler, read into the same graph as every other model."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from parsim.cli.app import application
from parsim.errors import ModelError
from parsim.files import read_text
from parsim.model.graph.build import build_graph
from parsim.model.graph.document import read_graph
from parsim.model.graph.record import Graph
from parsim.model.graph.texts import Measured
from parsim.model.graph.traces.graph import read_trace

RECORDED = Path(__file__).parent / "profiles" / "linear.trace.json.gz"
NAMES = ["linear", "relu", "linear_2", "cross_entropy_loss"]
ENGINE = "autograd::engine::evaluate_function: "


def recorded() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(gzip.decompress(RECORDED.read_bytes()))
    return document


def measured(graph: Graph) -> list[Measured]:
    return [node.operation for node in graph.nodes if isinstance(node.operation, Measured)]


def span(name: str, start: float, **more: object) -> dict[str, object]:
    """An event of 10 us; `thread` and `cat` are of the event, the rest is beside it."""
    thread, category = more.pop("thread", 1), more.pop("cat", "cpu_op")
    event = {"ph": "X", "name": name, "cat": category, "pid": 1, "tid": thread}
    return {**event, "ts": start, "dur": more.pop("dur", 10.0), "args": more}


def made(name: str, start: float, number: int, width: int = 4) -> dict[str, object]:
    """An operator of forward on a batch of 2."""
    return span(name, start, **{"Sequence number": number, "Input Dims": [[2, width]]})


def undone(name: str, start: float, number: int, **more: object) -> dict[str, object]:
    """Its node of backward."""
    numbers = {"Sequence number": number, "Fwd thread id": 1}
    return span(ENGINE + name, start, thread=2, **numbers, **more)


STEP = [
    made("aten::linear", 0, 0),
    made("aten::relu", 20, 1, 6),
    made("aten::mse_loss", 40, 2, 6),
    undone("MseLossBackward0", 60, 2),
    undone("ReluBackward0", 80, 1),
    undone("AddmmBackward0", 100, 0),
]


def read(events: list[dict[str, object]]) -> Graph:
    return read_trace("t.json", {"traceEvents": events}).graph


def test_recorded_step_is_a_chain_with_all_of_its_operators_seconds() -> None:
    """Four layers; seconds of the operators that no other one called; exact parameters."""
    graph = read_graph(RECORDED)
    assert [node.name for node in graph.nodes] == NAMES
    assert [node.inputs[0] for node in graph.nodes] == ["input", *NAMES[:-1]]
    assert (graph.input_shape, [operation.output for operation in measured(graph)]) == (
        (64,),
        [(128,), (128,), (10,), (1,)],
    )
    events = [event for event in recorded()["traceEvents"] if event.get("cat") == "cpu_op"]
    forward = {event["name"]: 0.0 for event in events}
    for event in events:
        if event["name"].removeprefix("aten::") in ("linear", "relu", "cross_entropy_loss"):
            forward[event["name"]] += event["dur"]
    backward = sum(event["dur"] for event in events if event["name"].startswith(ENGINE))
    told = measured(graph)
    assert 16e6 * sum(operation.forward_s for operation in told) == pytest.approx(
        sum(forward.values())
    )
    assert 16e6 * sum(operation.backward_s for operation in told) == pytest.approx(backward)
    assert [operation.parameters for operation in told] == [8320, 0, 1290, 0]
    assert build_graph(graph).parameters == 64 * 128 + 128 + 128 * 10 + 10


def test_backward_belongs_to_the_layer_that_made_its_node() -> None:
    """ReLU's backward is its engine's call alone, though loss and products ran around it."""
    (event,) = (e for e in recorded()["traceEvents"] if e["name"] == ENGINE + "ReluBackward0")
    relu = measured(read_graph(RECORDED))[1]
    assert 16e6 * relu.backward_s == pytest.approx(event["dur"])


def test_a_number_is_of_the_last_operator_that_shows_it() -> None:
    """`to` makes no node and shows the next one's number: it is part of the layer before."""
    graph = read([*STEP[:1], {**made("aten::to", 12, 1), "dur": 5.0}, *STEP[1:]])
    assert [node.name for node in graph.nodes] == ["linear", "relu", "mse_loss"]
    assert [2e6 * operation.forward_s for operation in measured(graph)] == pytest.approx(
        [15.0, 10.0, 10.0]
    )


def test_sums_into_gradients_follow_their_node() -> None:
    inner = {"Input Dims": [[6, 4]]}
    sums = [
        span(ENGINE + "torch::autograd::AccumulateGrad", 120, thread=2),
        span("torch::autograd::AccumulateGrad", 121, thread=2, dur=5.0, **inner),
    ]
    first, *others = measured(read([*STEP, *sums]))
    assert (first.parameters, 2e6 * first.backward_s) == (24, 20.0)
    assert [other.parameters for other in others] == [0, 0]


def test_kernels_count_instead_of_operators_where_there_are_any() -> None:
    """By correlation, whatever stream and time; collectives and what no layer launched do not."""
    launches = [
        span("cudaLaunchKernel", at, cat="cuda_runtime", thread=thread, dur=1.0, correlation=number)
        for number, (at, thread) in enumerate(
            [(2, 1), (4, 1), (22, 1), (102, 2), (104, 2), (200, 1)]
        )
    ]
    kernels = [
        span(name, 300 + 40 * number, cat="kernel", thread=7, dur=30.0 + number, correlation=number)
        for number, name in enumerate(["gemm", "bias", "relu", "gemm", "ncclKernel_Sum", "adam"])
    ]
    traced = read_trace("t.json", {"traceEvents": [*STEP, *launches, *kernels]})
    told = measured(traced.graph)
    assert [2e6 * operation.forward_s for operation in told] == pytest.approx([61.0, 32.0, 0.0])
    assert [2e6 * operation.backward_s for operation in told] == pytest.approx([33.0, 0.0, 0.0])
    assert "34.000 us of collectives are left out" in traced.notes
    with pytest.raises(ModelError, match="as when a CUDA graph is replayed"):
        read([*STEP, kernels[0]])


def test_operators_of_a_module_are_one_layer() -> None:
    """A record belongs to its innermost call; a second call of the module is another layer."""
    modules = [
        span("nn.Module: Sequential_0", -2, cat="python_function", dur=60.0),
        span("nn.Module: Block_0", -1, cat="python_function", dur=34.0),
    ]
    graph = read([*modules, *STEP])
    assert [node.name for node in graph.nodes] == ["Block_0", "Sequential_0"]
    assert measured(graph)[0].output == (6,)


def test_the_last_forward_is_taken() -> None:
    later = [{**event, "ts": float(str(event["ts"])) + 1000, "dur": 4.0} for event in STEP]
    for event in later:
        details = event["args"]
        assert isinstance(details, dict)
        event["args"] = {**details, "Sequence number": details["Sequence number"] + 10}
    traced = read_trace("t.json", {"traceEvents": [*STEP, *later]})
    assert [2e6 * operation.forward_s for operation in measured(traced.graph)] == pytest.approx(
        [4.0] * 3
    )
    assert any("last of 2 forwards" in note for note in traced.notes)


def test_tokens_are_found_behind_a_table() -> None:
    """The first input of an embedding is its table; a product flattens batch and tokens."""
    table = span(
        "aten::embedding", 0, **{"Sequence number": 0, "Input Dims": [[50, 8], [2, 3], []]}
    )
    graph = read([table, made("aten::linear", 20, 1), *STEP[2:]])
    assert graph.input_shape == (3,)
    wide = span("aten::mm", 20, **{"Sequence number": 1, "Input Dims": [[6, 8], [8, 5]]})
    assert measured(read([table, wide, *STEP[2:]]))[0].output == (24,)


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([], "no training step"),
        (STEP[:3], "no training step"),
        (STEP[3:], "no training step"),
        ([{**STEP[0], "dur": float("inf")}, *STEP[1:]], "traceEvents[0]: dur=inf must be micros"),
        ([{**STEP[0], "ts": float("nan")}, *STEP[1:]], "traceEvents[0]: ts=nan must be micros"),
        ([{**STEP[0], "dur": "soon"}, *STEP[1:]], "traceEvents[0]: dur=soon must be micros"),
        (
            [*STEP, span(ENGINE + "X", 120, **{"Sequence number": 0, "Fwd thread id": 3})],
            "several threads",
        ),
        ([STEP[0], made("aten::relu", 20, 1, 5) | {"args": {"Sequence number": 1}}, *STEP[2:]],
         "aten::relu took nothing, in which a batch of 2 is not"),
    ],
)  # fmt: skip
def test_wrong_traces(events: list[dict[str, object]], message: str) -> None:
    with pytest.raises(ModelError) as told:
        read(events)
    assert message in str(told.value)


def test_traces_without_shapes_say_how_to_record_them() -> None:
    bare = recorded()
    for event in bare["traceEvents"]:
        event.get("args", {}).pop("Input Dims", None)
    with pytest.raises(ModelError, match=r"record it with profile\(..., record_shapes=True\)"):
        read_trace("t.json", bare)


def test_profile_writes_a_model_file(tmp_path: Path) -> None:
    out = tmp_path / "mine.yaml"
    told = CliRunner().invoke(
        application("profile"), ["profile", str(RECORDED), "-o", str(out), "--json"]
    )
    assert told.exit_code == 0
    assert json.loads(told.stdout)["parameters"] == 9610
    assert measured(read_graph(out)) == measured(read_graph(RECORDED))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (RECORDED.read_bytes()[:2000], "is gzip, but cut short"),
        (b"\x1f\x8b\x08\x00rubbish", "is gzip, but"),
        (b'{"traceEvents": 3}', "traceEvents must be a list"),
        (b'{"nodes": []}', "is no trace of torch's profiler"),
        (b'{"traceEvents": [', "not JSON"),
        (b'{"traceEvents": [{"ph":"X","cat":"kernel","name":"k","ts":0,"dur":1e999}]}', "dur=inf"),
    ],
)
def test_profile_refuses_what_is_no_trace(tmp_path: Path, content: bytes, message: str) -> None:
    trace = tmp_path / "t.json.gz"
    trace.write_bytes(content)
    told = CliRunner().invoke(
        application("profile"), ["profile", str(trace), "-o", str(tmp_path / "o.yaml")]
    )
    assert message in f"{told.output}{told.exception}".replace("\n", " ")
    assert told.exit_code != 0
    assert not (tmp_path / "o.yaml").exists()


@pytest.mark.parametrize("text", ['{"traceEvents": [%s]}', "nodes: [%s]"])
def test_numbers_of_many_digits_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(text % ("1" * 5000))
    with pytest.raises(ModelError, match="a number or a date that cannot be read"):
        read_graph(path)


def test_what_gzip_packed_is_limited_too(tmp_path: Path) -> None:
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(b"{}" + bytes(10**6)))
    assert len(path.read_bytes()) < 2000
    with pytest.raises(ModelError, match="has more than 2000 B"):
        read_text(path, most=2000, error=ModelError)


def test_this_torchs_own_trace(tmp_path: Path) -> None:
    """Order, parameters and seconds of a step that is recorded here, its modules told."""
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.Tanh(), torch.nn.Linear(6, 3))
    data, settings = torch.randn(4, 8), {"record_shapes": True, "with_stack": True}
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], **settings
    ) as profiler:
        net(data).square().mean().backward()
    path = tmp_path / "step.json.gz"
    profiler.export_chrome_trace(str(path))
    graph = read_graph(path)
    names = [node.name.rpartition("_")[0] or node.name for node in graph.nodes]
    assert names == ["Linear", "Tanh", "Linear", "square", "mean"]
    told = measured(graph)
    assert [operation.parameters for operation in told] == [54, 0, 21, 0, 0]
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    (whole,) = (e["dur"] for e in events if e["name"].startswith("PyTorch Profiler ("))
    seconds = [(operation.forward_s, operation.backward_s) for operation in told]
    assert all(forward > 0 and backward > 0 for forward, backward in seconds)
    assert 4e6 * sum(map(sum, seconds)) < whole
