"""Moving tokens to experts: how often a token is sent, and what the libraries' own figures say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsim.cluster.reader import load_catalog
from parsim.cost.collective.group_bandwidth import Groups, groups
from parsim.cost.collective.message import Message
from parsim.cost.layer.mixture.dispatch import ONCE, Routing, dispatch_time, held_share

EIGHT = Routing(top_k=8)
LIMITED = Routing(top_k=8, groups=8, top_groups=4)
"""DeepSeek-V3's 256 experts in 8 groups."""


def group(ep: int, system: str = "gb200-nvl72") -> Groups:
    sizes = np.array([ep])
    return groups(load_catalog().system(system), size=sizes, stride=sizes // ep, world=sizes)


def seconds(dispatcher: str, ep: int, top: int = 8, system: str = "gb200-nvl72") -> float:
    tokens, row = np.array([4096.0]), 14336.0
    copies = Message(kind="all_to_all", axis="ep", size=tokens * top * row, where=group(ep, system))
    taken = dispatch_time(
        load_catalog().system(system),
        dispatcher,
        tokens=tokens,
        row=row,
        routing=Routing(top_k=top),
        copies=copies,
    )
    return float(taken[0])


@given(st.integers(1, 512), st.integers(1, 16))
def test_a_token_meets_no_more_groups_than_there_are_and_than_it_has_experts(
    n: int, top: int
) -> None:
    assert 1.0 - 1e-9 <= Routing(top_k=top).met(np.array([float(n)]))[0] <= min(n, top) + 1e-9


def test_eight_groups_and_eight_experts() -> None:
    assert EIGHT.met(np.array([8.0]))[0] == pytest.approx(8 * (1 - (7 / 8) ** 8))


def drawn(holders: int, routing: Routing, experts: int = 64, tokens: int = 4000) -> float:
    """Mean number of holders that hold any of a token's experts, by drawing them."""
    random, each = np.random.default_rng(1), experts // routing.groups
    met = 0
    for _ in range(tokens):
        allowed = random.choice(routing.groups, routing.top_groups, replace=False)
        within = (allowed[:, None] * each + np.arange(each)).ravel()
        chosen = random.choice(within, routing.top_k)
        met += len(set(chosen * holders // experts))
    return met / tokens


@pytest.mark.parametrize("holders", [2, 4, 8, 16, 64])
def test_a_token_of_few_groups_meets_as_many_holders_as_drawn_ones(holders: int) -> None:
    assert LIMITED.met(np.array([float(holders)]))[0] == pytest.approx(
        drawn(holders, LIMITED), rel=0.02
    )


@pytest.mark.parametrize("experts", [32, 60, 128])
@pytest.mark.parametrize("top", [1, 4, 6, 8])
@pytest.mark.parametrize("holders", [1, 2, 4, 8, 16, 20])
def test_experts_in_turn_meet_the_holders_of_their_stretch(
    experts: int, top: int, holders: int
) -> None:
    """Dealt out token by token, as the gate of the benchmark does, and counted."""
    chosen = np.arange(experts * top).reshape(-1, top) % experts
    met = np.mean([len({int(e * holders // experts) for e in token}) for token in chosen])
    routing = Routing(top_k=top, dealt=experts)
    if experts % holders == 0:
        assert routing.met(np.array([float(holders)]))[0] == pytest.approx(met)
    assert 1.0 <= routing.met(np.array([float(holders)]))[0] <= min(holders, top)


def test_a_token_of_few_groups_is_sent_to_no_more_nodes_than_groups() -> None:
    nodes = np.array([1.0, 3.0, 8.0, 12.0])
    limited, free = LIMITED.met(nodes), EIGHT.met(nodes)
    assert limited[0] == 1.0
    assert (limited <= free + 1e-12).all()
    assert limited[2] == pytest.approx(4 * (1 - (3 / 4) ** 8))
    assert Routing(top_k=8, groups=8, top_groups=8).met(nodes) == pytest.approx(free)


@pytest.mark.parametrize(("ep", "rate"), [(8, 750e9), (16, 686e9), (32, 624e9), (36, 615e9)])
def test_hybridep_inside_nvlink_as_its_readme_says(ep: int, rate: float) -> None:
    """Dispatch and combine in bf16 of 4096 tokens of 7168 values, kernels alone on GB200."""
    sent = 4096 * 14336 * EIGHT.met(np.array([float(ep)]))[0]
    assert seconds("hybridep", ep) == pytest.approx(sent / rate, rel=0.03)


def test_between_nodes_a_token_is_sent_once_to_each() -> None:
    """README_Hybrid-EP: 50 GB/s of algorithm bandwidth on 64 ranks of H100."""
    sent = 4096 * 14336 * EIGHT.met(np.array([8.0]))[0]
    assert seconds("hybridep", 64, system="dgx-h100") == pytest.approx(sent / 50e9, rel=0.03)
    assert seconds("hybridep", 64, system="dgx-h100") < seconds("alltoall", 64, system="dgx-h100")


@settings(max_examples=30)
@given(st.sampled_from(sorted(ONCE)), st.sampled_from([2, 4, 8, 16, 32]), st.integers(1, 8))
def test_more_experts_of_a_token_are_never_faster(name: str, ep: int, top: int) -> None:
    assert seconds(name, ep, top) <= seconds(name, ep, top + 1)


@pytest.mark.parametrize("name", sorted(ONCE))
@pytest.mark.parametrize(("ep", "part"), [(8, "intra"), (16, "network")])
def test_a_transfer_takes_the_latency_of_its_links(name: str, ep: int, part: str) -> None:
    system = load_catalog().system("dgx-h100")
    links = getattr(system, part)
    later = replace(system, **{part: replace(links, latency=links.latency + 1e-3)})
    tokens, row = np.array([4096.0]), 14336.0
    copies = Message(kind="all_to_all", axis="ep", size=tokens, where=group(ep, "dgx-h100"))
    before, after = (
        dispatch_time(s, name, tokens=tokens, row=row, routing=EIGHT, copies=copies)
        for s in (system, later)
    )
    assert after - before == pytest.approx(1e-3)


def test_one_rank_moves_nothing_over_links() -> None:
    assert seconds("hybridep", 1) == 0.0


def test_transfers_hold_multiprocessors() -> None:
    assert held_share("hybridep", 148) == 32 / 148
    assert held_share("deepep", 148) < held_share("alltoall", 148) < held_share("hybridep", 148)
