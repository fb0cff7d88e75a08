"""The record of a case of `same_numbers`, the inputs that cases share, and names of systems.

A word of a command may hold `{out}`, the case's own empty folder; `{in}`, the folder of the inputs
below; and `{data:NAME}`, a copy of the checkout's file of that name, wherever it now stands.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

Words = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Commands that are run one after the other in one folder, by a short name of each.

    `seconds` is roughly how long they take; what takes long begins first. `quick` cases are those
    of the short run.
    """

    id: str
    commands: Mapping[str, Words]
    quick: bool = False
    seconds: float = 0.2


TWO_NODES = """model: {name: gpt-1.7b}
cluster: {system: dgx-a100, nodes: 2, network: {nodes_per_leaf: 2, oversubscription: 8}}
software: megatron-2022
training: {global_batch_size: 16, precision: bf16}
plan: {dp: 16}
"""
HALF_SLOW = """model: {name: gpt-1.7b}
cluster:
  groups:
    fast: {system: dgx-a100, nodes: 1}
    slow: {system: dgx-a100, nodes: 1, network: {nic_bandwidth: 50Gb/s}}
software: megatron-2022
training: {global_batch_size: 16, precision: bf16}
plan: {dp: 16}
"""
INPUTS = {
    "two-nodes.yaml": TWO_NODES,
    "half-slow.yaml": HALF_SLOW,
    "misspelt.yaml": TWO_NODES.replace("dp:", "dq:"),
    "no-plan.yaml": TWO_NODES.replace("plan: {dp: 16}\n", ""),
}
"""Files that cases name as {in}/NAME."""

SYSTEMS = (
    "dgx-a100",
    "dgx-1v",
    "dgx-2",
    "a100-pcie-node",
    "rtx-4090-node",
    "rtx-4090-peer-node",
    "l40s-node",
    "dgx-h100",
    "hgx-h200",
    "dgx-b200",
    "gb200-nvl72",
    "aws-p6-b200",
    "aws-p4d",
    "aws-p5",
    "aws-p5en",
    "gcp-a4",
    "gcp-a3-mega",
    "gcp-a3-high",
    "a100-nvlink-pairs",
    "h100-nvlink-pairs",
    "dgx-b300",
    "gb300-nvl72",
    "hgx-h800",
    "hgx-h20",
    "hgx-a800",
    "cpu",
)


def settings(text: str) -> Words:
    """Overrides of one text, `plan.tp=4 plan.pp=2`, as options."""
    pairs = re.split(r"\s+(?=[a-z][\w-]*(?:\.[\w-]+)*=)", text.strip()) if text.strip() else []
    return tuple(word for pair in pairs for word in ("--set", pair))


def scenario(name: str) -> str:
    """The path of a shipped scenario, relative to the checkout."""
    return f"scenarios/{name}.yaml"
