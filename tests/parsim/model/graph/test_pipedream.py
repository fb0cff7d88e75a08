"""PipeDream's profiles of layers, read into the same graph as every other model."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from parsim.cli.app import application
from parsim.errors import ModelError
from parsim.model.graph.build import build_graph
from parsim.model.graph.document import read_graph
from parsim.model.graph.pipedream import is_profile, per_sample, read_profile
from parsim.model.graph.record import Graph
from parsim.model.operators import Timed
from parsim.scenario import load_scenario

ALEXNET = Path(__file__).parent / "profiles" / "alexnet.graph.txt"

LINE = "node{0} -- Conv2d(3, 4) -- forward_compute_time=1.0, backward_compute_time=2.0, "
LINE += "activation_size={1}, parameter_size=8.000\n"


def test_alexnet_of_pipedream() -> None:
    """Input and its 635 ms of loading take no part: 85.321 ms a mini-batch, 61.1 M parameters."""
    model = build_graph(read_graph(ALEXNET))
    operators = [op for layer in model.layers for op in layer.operators if isinstance(op, Timed)]
    seconds = sum(op.forward + op.backward for op in operators)
    assert seconds == pytest.approx(0.085321, rel=1e-5)
    assert model.parameters == 61_100_840
    assert (len(operators), model.num_layers) == (22, 21)


def test_lists_of_sizes_are_added_up_and_edges_join() -> None:
    text = LINE.format(1, "[4.0; 8.0; 4.0]") + LINE.format(2, "8.000") + LINE.format(3, "8.000")
    graph = read_profile("g.graph.txt", text + "\tnode1 -- node2\n\tnode1 -- node3\n", "")
    assert is_profile(text)
    assert graph.name == "g"
    assert [node.inputs for node in graph.nodes] == [("input",), ("node1",), ("node1",)]
    assert graph.shapes["node1"] == (4,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LINE.format(1, "1.0") + "\tnode1 -- node9\n", "edge node1 -- node9 names no node"),
        (LINE.format(1, "1.0") + "hello\n", "line 2 is neither a node nor an edge: 'hello'"),
        (
            LINE.format(1, "1.0") + LINE.format(2, "1.0") + "\tnode1 -- node2\n\tnode2 -- node1\n",
            "the edges around node1 go in a circle",
        ),
        (LINE.format(1, "1.0") * 2, "line 2: node node1 stands there twice"),
        (
            "".join(LINE.format(number, "1.0") for number in range(1, 5))
            + "\tnode1 -- node2\n\tnode3 -- node4\n",
            "node node3 does not hang together with node1; allowed: a graph in one piece",
        ),
        ("node1 -- Conv -- forward_compute_time=1\n", "line 1: 'backward_compute_time' is missing"),
        (LINE.format(1, "1e999"), "=inf is not between 0 and 1e+15"),
        (LINE.format(1, "-1"), "=-1 is not between 0 and 1e+15"),
    ],
)
def test_wrong_profiles(text: str, message: str) -> None:
    with pytest.raises(ModelError) as told:
        read_profile("g.txt", text, "")
    assert message in str(told.value)


def test_a_sample_is_a_part_of_the_mini_batch_that_was_profiled() -> None:
    """One of 256 images of 3 x 224 x 224 takes a 256th of the seconds, with all parameters."""
    whole = read_graph(ALEXNET)
    graph = per_sample(whole, (256, 3, 224, 224))
    assert graph.input_shape == (3, 224, 224)
    assert per_sample(whole, (256,)).input_shape == (3 * 224 * 224,)
    model = build_graph(graph)
    seconds = sum(op.forward + op.backward for op in timed(graph))
    assert 256 * seconds == pytest.approx(0.085321, rel=1e-5)
    assert model.parameters == 61_100_840
    kept = [sum(op.saved for op in timed(each)) for each in (whole, graph)]
    assert kept[0] == pytest.approx(256 * kept[1], rel=1e-4)


def timed(graph: Graph) -> list[Timed]:
    """The measured operators of a graph."""
    layers = build_graph(graph).layers
    return [op for layer in layers for op in layer.operators if isinstance(op, Timed)]


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((100, 3, 224, 224), "the input has 38,535,168 values, which are no 100 samples"),
        ((256, 3, 225, 224), "the input has 38,535,168 values, which are not 256x3x225x224"),
    ],
)
def test_another_mini_batch_is_refused(sizes: tuple[int, ...], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        per_sample(read_graph(ALEXNET), sizes)


def told(*words: str) -> tuple[int, str]:
    """Exit code and words of `parsim profile`."""
    ran = CliRunner().invoke(application("profile"), ["profile", *words])
    return ran.exit_code, f"{ran.output}{ran.exception}".replace("\n", " ")


def test_profile_writes_a_model_file_of_samples(tmp_path: Path) -> None:
    out = tmp_path / "mine.yaml"
    assert told(str(ALEXNET), "--input", "256x3x224x224", "-o", str(out))[0] == 0
    assert read_graph(out).input_shape == (3, 224, 224)
    assert build_graph(read_graph(out)).parameters == 61_100_840


def test_profile_asks_for_the_mini_batch(tmp_path: Path) -> None:
    out = tmp_path / "mine.yaml"
    code, words = told(str(ALEXNET), "-o", str(out))
    assert code != 0
    assert "does not say how many samples its mini-batch had; give --input" in words
    (tmp_path / "g.txt").write_text('{"nodes": [], "input_shape": [3]}')
    assert told(str(tmp_path / "g.txt"), "--input", "4", "-o", str(out))[0] != 0
    assert not out.exists()


def test_a_scenario_says_what_a_sample_of_a_profile_is(tmp_path: Path) -> None:
    scenario = tmp_path / "s.yaml"
    text = f"model: {{file: {ALEXNET}}}\ncluster: {{system: dgx-1v, nodes: 1}}\n"
    text += "training: {global_batch_size: 8, precision: fp32}\nplan: {dp: 8, microbatch_size: 1}\n"
    scenario.write_text(text)
    told_of = load_scenario(scenario).notes
    assert any("is the whole mini-batch that was profiled" in note for note in told_of)
