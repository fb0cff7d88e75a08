"""Twins: plans that differ from a better one in little, and gain nothing by it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from parsim.plan import Plan, Recompute
from parsim.planner.ranked import Ranked
from parsim.space.axes import SETTINGS

PLAIN = Plan()
"""What twins are taken to share."""
SWITCHES = {"zero", "shard", "sp", "recompute", "offload", "optimizer"}
"""Words of a label that a twin may have none of."""


def fold_twins(plans: Sequence[Ranked]) -> list[tuple[int, Ranked, list[Ranked]]]:
    """Plans with their places from 0, each with the twins that it beats, in the plans' order.

    A twin is slower than an earlier plan, needs at least as much memory, and has its degrees and
    micro-batches: more virtual stages, recomputation or sharding for nothing.
    """
    kept: list[tuple[int, Ranked, list[Ranked]]] = []
    for rank, ranked in enumerate(plans):
        for _, better, twins in kept:
            if _alike(better.plan) == _alike(ranked.plan) and (
                better.peak_allocated <= ranked.peak_allocated
            ):
                twins.append(ranked)
                break
        else:
            kept.append((rank, ranked, []))
    return kept


def _alike(plan: Plan) -> Plan:
    """The plan without what twins may differ in."""
    return replace(
        plan,
        v=1,
        schedule="1f1b",
        recompute=Recompute.NONE,
        recompute_layers=0,
        offload_layers=0,
        zero_stage=0,
        sequence_parallel=False,
        dp_replicate=plan.dp,
        dp_shard=1,
        **{name: getattr(PLAIN, name) for name in SETTINGS if name != "etp"},
    )


def twin_words(better: str, twin: str) -> str:
    """What a twin's label has differently: v6, zero2 recompute-full, or v5 without zero1."""
    gained = [word for word in twin.split() if word not in better.split()]
    lost = [word for word in better.split() if word not in twin.split()]
    kinds = set(map(_kind, gained))
    off = [word for word in lost if _kind(word) in SWITCHES - kinds]
    without = off if gained else lost
    return " ".join([*gained, *(("without", *without) if without else ())])


def _kind(word: str) -> str:
    """The letters with which a word of a label begins: zero of zero1, recompute of recompute4."""
    return re.split(r"[-0-9]", word)[0]
