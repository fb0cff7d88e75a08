"""Guides of small jobs, and a row of theirs."""

from __future__ import annotations

from parsim.guide.record import FamilyRow, Guide
from tests.commands import ROOT

SCENARIOS = ROOT / "scenarios"
RESNET = SCENARIOS / "resnet50-dgx-1v.yaml"

NAMES = (
    *("one device", "DataParallel", "DDP", "parameter server", "asynchronous server"),
    *("local SGD", "ZeRO / FSDP", "tensor", "pipeline", "hybrid"),
)


def row(guide: Guide, name: str) -> FamilyRow:
    return next(each for each in guide.rows if each.name == name)


TINY = """model: {family: gpt2, num_layers: 4, hidden_size: 64, num_attention_heads: 4,
  vocab_size: 512, seq_len: 64, dropout: false}
cluster: {system: cpu, nodes: 1, devices_per_node: 2}
software: executor-cpu
training: {global_batch_size: 8, precision: fp32}
plan: {pp: 2, microbatch_size: 1, schedule: 1f1b}
"""
