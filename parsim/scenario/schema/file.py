"""A whole scenario file, with what is beside model, cluster and plan in it."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from parsim.cluster.background import Place
from parsim.scenario.schema.cluster import (
    ClusterBlock,
    GroupBlock,
    IntraBlock,
    MixedBlock,
    NetworkBlock,
)
from parsim.scenario.schema.model import ModelBlock
from parsim.scenario.schema.plan import (
    PlanBlock,
    SearchBlock,
    SharedBlock,
    StageBlock,
    StrategyBlock,
)
from parsim.scenario.schema.training import FailuresBlock, SoftwareBlock, TrainingBlock
from parsim.scenario.schema.values import UNSET, Block, Count, Duration, Rate, Size, named

Spread = Annotated[float, Field(strict=True, ge=0, le=1, allow_inf_nan=False)]
Factor = Annotated[float, Field(strict=True, gt=0, le=1000, allow_inf_nan=False)]


class JitterBlock(Block):
    """How ranks and steps differ: the fields of `parsim.cost.jitter.Jitter`."""

    speed_spread: Spread = UNSET
    noise: Spread = UNSET
    hiccups: Annotated[float, Field(strict=True, ge=0, le=1000, allow_inf_nan=False)] = UNSET
    hiccup_length: Duration = UNSET
    slow_ranks: dict[str, Factor] = UNSET
    clusters: Count = UNSET


class StreamBlock(Block):
    """Traffic beside the steps: a size every so many steps, or a rate all the time."""

    source: Place = Field(alias="from")
    target: Place = Field(alias="to")
    size: Size = UNSET
    rate: Rate = UNSET
    every: Count = UNSET


class BackgroundBlock(Block):
    """What shares the links with a training job: checkpoints, batches, copies to the host."""

    storage_bandwidth: Rate = UNSET
    streams: dict[str, StreamBlock] = Field(default_factory=dict)


class ScenarioFile(Block):
    """A whole scenario file."""

    description: Annotated[str, Field(strict=True)] = ""
    model: ModelBlock
    cluster: ClusterBlock
    software: Annotated[SoftwareBlock, BeforeValidator(named)] = UNSET
    training: TrainingBlock
    plan: PlanBlock | None = None
    search: SearchBlock | None = None
    jitter: JitterBlock = JitterBlock()
    background: BackgroundBlock = BackgroundBlock()
    failures: FailuresBlock = FailuresBlock()


class MixedScenarioFile(ScenarioFile):
    """A whole scenario file whose cluster has groups of nodes."""

    cluster: MixedBlock  # type: ignore[assignment]


BLOCKS: dict[tuple[str, ...], type[Block]] = {
    (): ScenarioFile,
    ("model",): ModelBlock,
    ("cluster",): ClusterBlock,
    ("cluster", "intra"): IntraBlock,
    ("cluster", "network"): NetworkBlock,
    ("software",): SoftwareBlock,
    ("training",): TrainingBlock,
    ("plan",): PlanBlock,
    ("plan", "strategy"): StrategyBlock,
    ("plan", "stages", "*"): StageBlock,
    ("search",): SearchBlock,
    ("search", "common"): SharedBlock,
    ("jitter",): JitterBlock,
    ("background",): BackgroundBlock,
    ("failures",): FailuresBlock,
    ("background", "streams", "*"): StreamBlock,
}
"""Every block by its path, for hints about misspelt and misplaced keys; * is any name."""

GROUP = ("cluster", "groups")
GROUP_BLOCKS: dict[tuple[str, ...], type[Block]] = {
    (): GroupBlock,
    ("intra",): IntraBlock,
    ("network",): NetworkBlock,
}
"""Blocks of a group of nodes, by what is behind its name."""
