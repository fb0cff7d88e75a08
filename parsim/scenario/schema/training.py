"""Keys of what is trained how long, with which software, and what interrupts it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from parsim.cost.optimizer import CLIP
from parsim.cost.software import DISPATCHERS
from parsim.scenario.schema.values import (
    UNSET,
    Block,
    Count,
    Dollars,
    Flag,
    OptimizerName,
    PositiveSpan,
    PrecisionName,
    Ratio,
    Span,
    Text,
    Tokens,
    Usage,
    in_any_case,
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
    expert_dispatcher: Annotated[
        Literal["alltoall", "deepep", "hybridep"], in_any_case(*DISPATCHERS)
    ] = UNSET
    expert_overlap: Annotated[float, Field(strict=True, ge=0, le=1, allow_inf_nan=False)] = UNSET
    expert_imbalance: Ratio = UNSET
    quantized_dispatch: Flag = UNSET


class FailuresBlock(Block):
    """What interrupts a run: the fields of `parsim.training_run.Failures`."""

    device_mtbf: PositiveSpan = UNSET
    job_mtbf: PositiveSpan = UNSET
    restart_time: Span = UNSET
    checkpoint_stall: Span = UNSET
    checkpoint_interval: PositiveSpan = UNSET
