"""What plans a stack can run, and what it does where a plan leaves the choice."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class PlanHabits:
    """What plans a stack can run, and what it does where a plan leaves the choice."""

    # Whether it is parsim's own, which refuses more (`plan/rules/executor/`).
    executor: bool
    # Pipeline schedules that the stack has, by parsim's names: a search that names none looks at
    # these (empty: it has no pipelines).
    schedules: tuple[str, ...]
    # ZeRO stages that it has without a pipeline.
    zero_stages: tuple[int, ...]
    # ZeRO stages that it has with a pipeline.
    pipeline_zero_stages: tuple[int, ...]
    # What it does where tensor-parallel ranks are more than key-value heads: "copied", "gathered",
    # or "whole" where each head must be on one rank (`model/shared_heads.py`).
    kv_heads: str
    # Whether every stage must have as many layers, embedding and head counted as layers or not.
    even_cut: bool
    # Whether it runs several micro-batches a step without a pipeline, their gradients added up.
    accumulates: bool
    # Whether a micro-batch may have several sequences that samples are packed to.
    packs_together: bool
    # Whether a pipeline whose cut nobody states is cut by the seconds of layers, embedding and head
    # counted, where that is not slower than as many layers on every stage (`sim/cuts.py`).
    balanced_cut: bool

    def zero_stages_with(self, pp: int) -> tuple[int, ...]:
        """The ZeRO stages that the stack has with so many pipeline ranks."""
        return self.zero_stages if pp == 1 else self.pipeline_zero_stages
