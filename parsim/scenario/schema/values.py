"""Kinds of values that a scenario's keys take, and what every block of it shares.

Only kinds and ranges are checked here; what must fit together (tp and the heads, the plan and the
number of devices) is for the records themselves. Integers and truth values are strict: "8" is
text. A key that is absent stays unset, so that a default can come from elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WrapValidator
from pydantic_core import PydanticCustomError

from parsim.cluster.fields import LIMITS
from parsim.cluster.hardware import Fabric, Generation, NetworkFabric
from parsim.cost.job import OPTIMIZERS
from parsim.errors import InputError, UnitError, alternatives, matching, shown
from parsim.model.spec import Activation, Parallel, Scoring
from parsim.model.transformer import Head, RopeScaling
from parsim.plan.names import AUTO, RECOMPUTE_MODULES, SCHEDULE_NAMES, WITHOUT_FLUSH
from parsim.plan.precision import PRECISIONS, SUMS
from parsim.plan.space import Between
from parsim.scenario.space.axis import fewest_or_numbers, range_or_counts, range_or_numbers
from parsim.space.axis import read_order
from parsim.units import parse_count, parse_quantity

UNSET: Any = None
"""Default of an optional key. It is never validated, so a written null is still refused."""


def _quantity(dimension: str, value: object, example: str | None = None) -> float:
    text = str(value)
    try:
        amount = parse_quantity(text, dimension, example)
    except UnitError as error:
        raise PydanticCustomError("quantity", "{text}", {"text": str(error)}) from None
    if amount <= 0 and dimension not in ("time", "span"):
        raise PydanticCustomError("quantity", "'{text}' must be above 0", {"text": shown(text)})
    return amount


def _count(value: object) -> float:
    try:
        return parse_count(str(value))
    except UnitError as error:
        raise PydanticCustomError("count", "{text}", {"text": str(error)}) from None


def _any_case(known: Iterable[str], value: object) -> object:
    """The known name that a text is but for its case; what is none is left to who checks it."""
    return (matching(value, known) or value) if isinstance(value, str) else value


def known_schedule(value: object) -> object:
    """The name of a schedule, in any case; what is none is refused here, with the nearest ones."""
    names = (*SCHEDULE_NAMES, AUTO)
    value = _any_case(names, value)
    if isinstance(value, str) and value not in names:
        known = alternatives(value, names, listing="parsim catalog schedules")
        text = f"'{shown(value)}' is unknown{known}"
        if value.lower().endswith(".csv"):
            text += "; a file belongs in plan.schedule, and a search without 'schedule' keeps it"
        raise PydanticCustomError("schedule", "{text}", {"text": text})
    return value


def _listed(value: object) -> object:
    """One value stands for a list of one."""
    return value if isinstance(value, list | dict) or value is None else [value]


def _order(value: object) -> object:
    """Axes outermost first, of a text such as pp-dp-cp-tp; a list stays."""
    if not isinstance(value, str):
        return value
    try:
        return read_order(value)
    except InputError as error:
        raise PydanticCustomError("rank_order", "{text}", {"text": str(error)}) from None


def _modules(value: object) -> object:
    """Names of modules, of a text such as mlp+layernorm; "none" has none of them."""
    if not isinstance(value, str):
        return value
    names = () if value.lower() == "none" else tuple(value.split("+"))
    for name in names:
        if name not in RECOMPUTE_MODULES:
            known = alternatives(name, RECOMPUTE_MODULES)
            raise PydanticCustomError(
                "modules", "{text}", {"text": f"'{shown(name)}' is unknown{known}"}
            )
    return names


Count = Annotated[int, Field(strict=True, ge=1, le=10**9)]
Amount = Annotated[int, Field(strict=True, ge=0, le=10**9)]
Rank = Annotated[int, Field(strict=True)]
Positive = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
Time = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
Flag = Annotated[bool, Field(strict=True)]
Text = Annotated[str, Field(strict=True, min_length=1)]
Share = Annotated[float, Field(strict=True, gt=0, le=2, allow_inf_nan=False)]
RATIO = LIMITS["ratio"]
Ratio = Annotated[float, Field(strict=True, ge=RATIO.low, le=RATIO.high, allow_inf_nan=False)]
Size = Annotated[float, BeforeValidator(partial(_quantity, "bytes"))]
Rate = Annotated[float, BeforeValidator(partial(_quantity, "bandwidth"))]
Duration = Annotated[float, BeforeValidator(partial(_quantity, "time"))]
Span = Annotated[float, BeforeValidator(partial(_quantity, "span"))]
PositiveSpan = Annotated[Span, Field(gt=0)]
Tokens = Annotated[float, BeforeValidator(_count)]
Dollars = Annotated[float, Field(strict=True, ge=0, le=10_000, allow_inf_nan=False)]
Usage = Annotated[float, Field(strict=True, ge=1, le=3, allow_inf_nan=False)]
Names = Annotated[tuple[Text, ...], Field(min_length=1)]
T = TypeVar("T")
if TYPE_CHECKING:
    AxisValues = Between | tuple[int, ...]
    StageValues = Between | tuple[int, ...]
    LayerValues = Between | tuple[int, ...]
    RepeatedLayers = Between | tuple[int, ...]
else:  # a union would name its branches in the keys of messages
    AxisValues = Annotated[tuple[Count, ...], WrapValidator(range_or_counts)]
    Stage = Annotated[int, Field(strict=True, ge=0, le=3)]
    StageValues = Annotated[tuple[Stage, ...], WrapValidator(range_or_numbers)]
    LayerValues = Annotated[tuple[Amount, ...], WrapValidator(range_or_numbers)]
    RepeatedLayers = Annotated[tuple[Amount, ...], WrapValidator(fewest_or_numbers)]
Several = Annotated[tuple[T, ...], BeforeValidator(_listed), Field(min_length=1)]
RankOrder = Annotated[tuple[Text, ...], BeforeValidator(_order)]
ModuleSet = Annotated[tuple[Text, ...], BeforeValidator(_modules)]


def named(value: object) -> object:
    """A name alone stands for a block with it."""
    return {"name": value} if isinstance(value, str) else value


def like(dimension: str, example: str) -> BeforeValidator:
    """Reads a quantity, whose messages show what its key usually holds."""
    return BeforeValidator(partial(_quantity, dimension, example=example))


def in_any_case(*known: str) -> BeforeValidator:
    """Reads a known name whatever its case."""
    return BeforeValidator(partial(_any_case, known))


PrecisionName = Annotated[Text, in_any_case(*PRECISIONS)]
OptimizerName = Annotated[Literal["adamw", "sgd", "sgd_momentum"], in_any_case(*OPTIMIZERS)]
SumsName = Annotated[Text, in_any_case(*SUMS)]
ScheduleName = Annotated[Text, in_any_case(*SCHEDULE_NAMES, AUTO, *WITHOUT_FLUSH)]
Recomputed = Literal["none", "selective", "full"]
Preset = Literal["quick", "standard", "full"]
PresetName = Annotated[Preset, in_any_case(*get_args(Preset))]
CpComm = Literal["p2p", "all_gather", "a2a"]
CpCommName = Annotated[CpComm, in_any_case(*get_args(CpComm))]
RecomputeName = Annotated[Recomputed, in_any_case(*get_args(Recomputed))]
Family = Literal[
    "gpt2",
    "llama",
    "mistral",
    "qwen2",
    "bert",
    "mixtral",
    "qwen3",
    "qwen3_moe",
    "gpt_oss",
    "deepseek_v2",
    "deepseek_v3",
    "nemotron_h",
    "roberta",
    "opt",
    "bloom",
    "gpt_neox",
    "phi3",
    "gemma",
    "gemma2",
    "gemma3_text",
    "glm4",
    "granite",
    "seed_oss",
    "smollm3",
    "starcoder2",
    "stablelm",
    "nemotron",
    "glm4_moe",
    "llama4_text",
]
FamilyName = Annotated[Family, in_any_case(*get_args(Family))]
ActivationName = Annotated[Activation, in_any_case(*get_args(Activation))]
ParallelName = Annotated[Parallel, in_any_case(*get_args(Parallel))]
ScoringName = Annotated[Scoring, in_any_case(*get_args(Scoring))]
RopeScalingName = Annotated[RopeScaling, in_any_case(*get_args(RopeScaling))]
HeadName = Annotated[Head, in_any_case(*get_args(Head))]
FabricName = Annotated[Fabric, in_any_case(*get_args(Fabric))]
GenerationName = Annotated[Generation, in_any_case(*get_args(Generation))]
NetworkFabricName = Annotated[NetworkFabric, in_any_case(*get_args(NetworkFabric))]


class Block(BaseModel):
    """A mapping that refuses keys it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    def given(self) -> dict[str, Any]:
        """What the file states, without what it leaves out."""
        return {name: getattr(self, name) for name in self.model_fields_set}
