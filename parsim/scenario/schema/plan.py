"""Keys of a plan, and of a space of plans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, get_args

from pydantic import BeforeValidator, Field, create_model

from parsim.plan.strategies import STRATEGY_KINDS, Algorithm, Compressing, Topology, Where
from parsim.scenario.schema.values import (
    UNSET,
    Amount,
    AxisValues,
    Block,
    Count,
    CpCommName,
    Flag,
    LayerValues,
    ModuleSet,
    Names,
    PrecisionName,
    PresetName,
    RankOrder,
    RecomputeName,
    RepeatedLayers,
    ScheduleName,
    Several,
    Size,
    StageValues,
    SumsName,
    Text,
    Time,
    in_any_case,
    known_schedule,
    like,
    named,
)
from parsim.space.axes import AXES


class SharedBlock(Block):
    """Fields of a plan that a search does not vary."""

    gradient_precision: SumsName = UNSET
    reduce_precision: SumsName = UNSET
    bucket_size: Annotated[float, like("bytes", "25MiB")] = UNSET
    overlap_grad_reduce: Flag = UNSET
    overlap_param_gather: Flag = UNSET
    overlap_p2p: Flag = UNSET
    scatter_p2p: Flag = UNSET
    optimizer_offload: Flag = UNSET
    rank_order: tuple[Text, ...] = UNSET


class StrategyBlock(Block):
    """A data-parallel strategy: its name, and the options that it has (`plan/strategies/`)."""

    name: Annotated[Text, in_any_case(*STRATEGY_KINDS)]
    algorithm: Annotated[Algorithm, in_any_case(*get_args(Algorithm))] = UNSET
    servers: Count = UNSET
    on: Annotated[Where, in_any_case(*get_args(Where))] = UNSET
    compression: Annotated[float, Field(strict=True, gt=0, le=1, allow_inf_nan=False)] = UNSET
    compressor: Annotated[Compressing, in_any_case(*get_args(Compressing))] = UNSET
    backup_workers: Amount = UNSET
    node_sums: Flag = UNSET
    overlap: Flag = UNSET
    staleness: Amount = UNSET
    updates: Annotated[int, Field(strict=True, ge=10, le=100_000)] = UNSET
    topology: Annotated[Topology, in_any_case(*get_args(Topology))] = UNSET
    every: Annotated[int, Field(strict=True, ge=1, le=10_000)] = UNSET
    node_every: Annotated[int, Field(strict=True, ge=1, le=10_000)] = UNSET
    after: Annotated[int, Field(strict=True, ge=0, le=100_000)] = UNSET
    steps: Annotated[int, Field(strict=True, ge=1, le=100_000)] = UNSET
    outer_lr: Annotated[float, Field(strict=True, gt=0, le=10, allow_inf_nan=False)] = UNSET
    devices: Annotated[int, Field(strict=True, ge=1, le=1_024)] = UNSET
    branches: Annotated[dict[Text, Amount], Field(min_length=1)] = UNSET
    mesh: Annotated[dict[Text, Count], Field(min_length=1, max_length=3)] = UNSET
    layout: Annotated[dict[Text, Text], Field(min_length=1)] = UNSET
    signatures: Annotated[dict[Text, dict[Text, Text]], Field(min_length=1)] = UNSET
    outer_momentum: Annotated[float, Field(strict=True, ge=0, lt=1, allow_inf_nan=False)] = UNSET


class StageBlock(Block):
    """A stage with replicas of its own: the fields of `parsim.plan.stages.Stage`."""

    layers: Amount
    replicas: Count = UNSET
    tp: Count = UNSET
    recompute_layers: Amount = UNSET
    warmup: Amount = UNSET
    late_update: Flag = UNSET


class PlanBlock(SharedBlock):
    """One plan. `dp` is short for dp_replicate, or for dp_shard where zero_stage is above 0.

    `schedule` is a name, or a file ending in .csv (scenario/schedule.py).
    """

    tp: Count = UNSET
    pp: Count = UNSET
    dp: Count = UNSET
    dp_replicate: Count = UNSET
    dp_shard: Count = UNSET
    cp: Count = UNSET
    cp_comm_type: CpCommName = UNSET
    ep: Count = UNSET
    etp: Count = UNSET
    microbatch_size: Count = UNSET
    num_microbatches: Count = UNSET
    schedule: ScheduleName = UNSET
    action_times: Annotated[tuple[Time, ...], Field(min_length=5, max_length=5)] = UNSET
    v: Count = UNSET
    stage_layers: tuple[Amount, ...] | None = UNSET
    zero_stage: Amount = UNSET
    sequence_parallel: Flag = UNSET
    recompute: RecomputeName = UNSET
    recompute_modules: Names = UNSET
    recompute_layers: Amount = UNSET
    offload_layers: Amount = UNSET
    offload_modules: Names = UNSET
    precision: PrecisionName = UNSET
    sync_batch_norm: Flag = UNSET
    node_order: Names = UNSET
    replica_microbatches: Annotated[tuple[Count, ...], Field(min_length=1)] = UNSET
    strategy: Annotated[StrategyBlock, BeforeValidator(named)] = UNSET
    stages: Annotated[tuple[StageBlock, ...], Field(min_length=1)] = UNSET


class LimitsBlock(Block):
    """Keys of a search block that are no axis.

    `space` is a preset that the axes' keys narrow (`space/words.py`).
    """

    space: PresetName = UNSET
    memory_margin: Annotated[float, Field(strict=True, ge=0, lt=1, allow_inf_nan=False)] = UNSET
    memory_cap: Size = UNSET
    max_bubble: Annotated[float, Field(strict=True, gt=0, lt=1, allow_inf_nan=False)] = UNSET
    unequal_stages: Flag = UNSET
    strategies: Several[Annotated[StrategyBlock, BeforeValidator(named)]] = UNSET
    synchronous: Flag = UNSET
    common: SharedBlock = SharedBlock()


_KINDS: Mapping[str, Any] = {
    "count": AxisValues,
    "stage": StageValues,
    "layers": LayerValues,
    "repeated": RepeatedLayers,
    "flag": Several[Flag],
    "schedule": Several[Annotated[Text, BeforeValidator(known_schedule)]],
    "recompute": Several[RecomputeName],
    "order": Several[RankOrder],
    "modules": Several[ModuleSet],
    "exchange": Several[CpCommName],
}
"""How the values of an axis are written, by its kind."""

if TYPE_CHECKING:
    SearchBlock = LimitsBlock
else:
    SearchBlock = create_model(
        "SearchBlock",
        __base__=LimitsBlock,
        __doc__="The values a search may try, by axis (`space/axes.py`); absent: every legal one.",
        **{axis.name: (_KINDS[axis.kind], UNSET) for axis in AXES},
    )
