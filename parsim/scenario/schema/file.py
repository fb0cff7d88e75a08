"""A whole scenario file, with what is beside model, cluster and plan in it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from parsim.cluster.background import Place
from parsim.cost.job import CLIP
from parsim.cost.software import DISPATCHERS, EXPERT_CHOICES
from parsim.plan.precision import TENSOR_SCALES
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
from parsim.scenario.schema.values import (
    UNSET,
    Block,
    Count,
    Dollars,
    Flag,
    OptimizerName,
    PositiveSpan,
    PrecisionName,
    Rate,
    Ratio,
    Size,
    Text,
    Tokens,
    Usage,
    in_any_case,
    like,
    named,
)


class TrainingBlock(Block):
    """What every plan shares, and how long one trains at what price (`TrainingGoal`).

    `clip` is the norm that gradients are clipped to, 0 is none.
    """

    global_batch_size: Count
    precision: PrecisionName = "bf16"
    optimizer: OptimizerName = "adamw"
    clip: Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)] = CLIP
    tokens: Tokens = UNSET
    usd_per_device_hour: Dollars = UNSET
    pue: Usage = UNSET


class SoftwareBlock(Block):
    """A stack of the catalog, and what of it this job switches (`parsim.cost.software.SWITCHES`).

    `expert_overlap` is the share of moving tokens to experts and back that runs beside compute.
    """

    name: Text
    compile: Flag = UNSET
    tp_overlap: Flag = UNSET
    cuda_graphs: Flag = UNSET
    blocking_launches: Flag = UNSET
    fused_experts: Flag = UNSET
    fp8_scales: Annotated[Literal["delayed", "current"], in_any_case(*TENSOR_SCALES)] = UNSET
    quantized_logits: Flag = UNSET
    quantized_attention: Flag = UNSET
    expert_dispatcher: Annotated[
        Literal["alltoall", "deepep", "hybridep"], in_any_case(*DISPATCHERS)
    ] = UNSET
    expert_choice: Annotated[Literal["drawn", "consecutive"], in_any_case(*EXPERT_CHOICES)] = UNSET
    expert_overlap: Annotated[float, Field(strict=True, ge=0, le=1, allow_inf_nan=False)] = UNSET
    expert_imbalance: Ratio = UNSET
    quantized_dispatch: Flag = UNSET


class FailuresBlock(Block):
    """What interrupts a run: the fields of `parsim.training_run.Failures`."""

    device_mtbf: PositiveSpan = UNSET
    job_mtbf: Annotated[float, like("span", "11h"), Field(gt=0)] = UNSET
    restart_time: Annotated[float, like("span", "10min")] = UNSET
    checkpoint_stall: Annotated[float, like("span", "5s")] = UNSET
    checkpoint_interval: Annotated[float, like("span", "30min"), Field(gt=0)] = UNSET


Spread = Annotated[float, Field(strict=True, ge=0, le=1, allow_inf_nan=False)]
Factor = Annotated[float, Field(strict=True, gt=0, le=1000, allow_inf_nan=False)]


class JitterBlock(Block):
    """How ranks and steps differ: the fields of `parsim.cost.jitter.Jitter`."""

    speed_spread: Spread = UNSET
    noise: Spread = UNSET
    hiccups: Annotated[float, Field(strict=True, ge=0, le=1000, allow_inf_nan=False)] = UNSET
    hiccup_length: Annotated[float, like("time", "10ms")] = UNSET
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

    @property
    def states_precision(self) -> bool:
        """Whether the file says what all its plans compute in."""
        in_plan = {} if self.plan is None or self.search is not None else self.plan.given()
        return "precision" in in_plan or "precision" in self.training.given()


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
