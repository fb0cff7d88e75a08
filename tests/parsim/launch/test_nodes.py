"""Nodes: how ranks are shared out, where the nodes meet, and what cannot be."""

from __future__ import annotations

import pytest

from parsim.errors import InputError
from parsim.launch.nodes import Nodes, host_of, meeting_name

TWO = Nodes(count=2, endpoint="node0:29400")


def test_one_node_needs_no_endpoint() -> None:
    words = Nodes().torchrun_words(4, name="x", timeout=9.0)
    assert words == ["--standalone", "--local-addr=127.0.0.1", "--nproc-per-node=4"]


def test_several_nodes_meet_at_the_endpoint() -> None:
    assert TWO.torchrun_words(8, name="x", timeout=9.4) == [
        "--nnodes=2",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=node0:29400",
        "--rdzv-id=x",
        "--rdzv-conf=join_timeout=9,read_timeout=9",
        "--nproc-per-node=4",
    ]


def test_waiting_for_others_takes_whole_seconds() -> None:
    words = TWO.torchrun_words(8, name="x", timeout=0.2)
    assert "--rdzv-conf=join_timeout=1,read_timeout=1" in words


@pytest.mark.parametrize(
    ("endpoint", "local"),
    [
        ("localhost:1", True),
        ("127.0.0.1:65535", True),
        ("127.3.2.1:29400", True),
        ("[::1]:29400", True),
        ("node-0.cluster:29400", False),
        ("127.example.org:29400", False),
        ("10.0.0.1:29400", False),
    ],
)
def test_nodes_on_one_machine_are_told_by_the_endpoint(endpoint: str, local: bool) -> None:
    nodes = Nodes(count=2, endpoint=endpoint)
    assert nodes.on_one_machine is local
    words = nodes.torchrun_words(2, name="x", timeout=9.0)
    assert ("--local-addr=127.0.0.1" in words) is local


def test_a_node_alone_is_one_machine() -> None:
    assert Nodes().on_one_machine
    assert not Nodes(count=2).on_one_machine


def test_an_address_in_brackets() -> None:
    assert host_of("[2001:db8::1]:29400") == "2001:db8::1"


@pytest.mark.parametrize(
    "endpoint",
    [
        "",
        "node0",
        "node0:",
        ":29400",
        "node0:0",
        "node0:65536",
        "node0:x",
        "a b:1",
        "::1:29400",
        "node0:29400\n",
        "$(id):1",
        "http://node0:29400",
    ],
)
def test_an_endpoint_that_is_none(endpoint: str) -> None:
    with pytest.raises(InputError, match="is not HOST:PORT with a port from 1 to 65535; "):
        Nodes(count=2, endpoint=endpoint)


def test_ranks_that_cannot_be_shared_out() -> None:
    assert Nodes(count=4).share(8) == 2
    with pytest.raises(InputError) as refused:
        Nodes(count=3).share(8)
    assert str(refused.value) == (
        "--nnodes=3 does not divide world size 8, and every node holds equally many ranks; "
        "allowed: 1, 2, 4, 8"
    )


@pytest.mark.parametrize("count", [0, -1])
def test_no_node(count: int) -> None:
    with pytest.raises(InputError, match=f"--nnodes={count} must be at least 1"):
        Nodes.asked(count, None)


def test_several_nodes_that_meet_nowhere() -> None:
    nodes = Nodes.asked(2, None)  # a script may still find out where
    with pytest.raises(InputError, match="--nnodes=2 needs --rdzv-endpoint HOST:PORT, the same on"):
        nodes.torchrun_words(2, name="x", timeout=1.0)


def test_an_endpoint_for_nobody() -> None:
    with pytest.raises(InputError, match="--rdzv-endpoint=node0:1 is where several nodes meet; "):
        Nodes.asked(None, "node0:1")
    assert Nodes.asked(1, "node0:1").count == 1
    assert Nodes.asked(None, None) == Nodes()


def test_equal_words_make_equal_names() -> None:
    """Every node computes the name in a process of its own: it is that of any process."""
    assert meeting_name(["a", "b"]) == "parsim-7e18f737311b"  # sha256 of "a\nb"
    assert meeting_name(["a", "b"]) != meeting_name(["ab"])
