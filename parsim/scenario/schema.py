"""Which keys a scenario file may have and what kind of value each takes.

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

from parsim.cluster.background import Place
from parsim.cluster.hardware import Fabric, Generation, NetworkFabric
from parsim.cluster.plausible import MOST_OVERSUBSCRIBED
from parsim.cost.optimizer import CLIP, OPTIMIZERS
from parsim.cost.software import DISPATCHERS
from parsim.errors import UnitError, shown
from parsim.model.transformer import Head, RopeScaling
from parsim.names import alternatives, matching
from parsim.plan.record import PRECISIONS, WITHOUT_FLUSH
from parsim.plan.rules import SCHEDULE_NAMES
from parsim.plan.space import Between
from parsim.plan.strategies import STRATEGY_KINDS, Algorithm, Compressing, Topology, Where
from parsim.scenario.space.axis import range_or_numbers
from parsim.units import parse_count, parse_quantity

UNSET: Any = None
"""Default of an optional key. It is never validated, so a written null is still refused."""


def _quantity(dimension: str, value: object) -> float:
    text = str(value)
    try:
        amount = parse_quantity(text, dimension)
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


def _schedule(value: object) -> object:
    value = _any_case(SCHEDULE_NAMES, value)
    if isinstance(value, str) and value not in SCHEDULE_NAMES:
        known = alternatives(value, SCHEDULE_NAMES, listing="parsim catalog schedules")
        text = f"'{shown(value)}' is unknown{known}"
        if value.lower().endswith(".csv"):
            text += "; a file belongs in plan.schedule, and a search without 'schedule' keeps it"
        raise PydanticCustomError("schedule", "{text}", {"text": text})
    return value


def _listed(value: object) -> object:
    """One value stands for a list of one."""
    return value if isinstance(value, list | dict) or value is None else [value]


Count = Annotated[int, Field(strict=True, ge=1, le=10**9)]
Amount = Annotated[int, Field(strict=True, ge=0, le=10**9)]
Rank = Annotated[int, Field(strict=True)]
Positive = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
Time = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Flag = Annotated[bool, Field(strict=True)]
Text = Annotated[str, Field(strict=True, min_length=1)]
Share = Annotated[float, Field(strict=True, gt=0, le=2, allow_inf_nan=False)]
Ratio = Annotated[float, Field(strict=True, ge=1, le=MOST_OVERSUBSCRIBED, allow_inf_nan=False)]
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
else:  # a union would name its branches in the keys of messages
    AxisValues = Annotated[tuple[Count, ...], WrapValidator(range_or_numbers)]
    Stage = Annotated[int, Field(strict=True, ge=0, le=3)]
    StageValues = Annotated[tuple[Stage, ...], WrapValidator(range_or_numbers)]
Several = Annotated[tuple[T, ...], BeforeValidator(_listed), Field(min_length=1)]


def _named(value: object) -> object:
    """A name alone stands for a block with it."""
    return {"name": value} if isinstance(value, str) else value


def _in_any_case(*known: str) -> BeforeValidator:
    return BeforeValidator(partial(_any_case, known))


PrecisionName = Annotated[Text, _in_any_case(*PRECISIONS)]
OptimizerName = Annotated[Literal["adamw", "sgd", "sgd_momentum"], _in_any_case(*OPTIMIZERS)]
SumsName = Annotated[Text, _in_any_case("fp32", "same")]
ScheduleName = Annotated[Text, _in_any_case(*SCHEDULE_NAMES, *WITHOUT_FLUSH)]
Recomputed = Literal["none", "selective", "full"]
Preset = Literal["quick", "standard", "full"]
PresetName = Annotated[Preset, _in_any_case(*get_args(Preset))]
RecomputeName = Annotated[Recomputed, _in_any_case(*get_args(Recomputed))]
Family = Literal[
    "gpt2",
    "llama",
    "mistral",
    "qwen2",
    "bert",
    "mixtral",
    "qwen3_moe",
    "gpt_oss",
    "deepseek_v2",
    "deepseek_v3",
    "nemotron_h",
]
FamilyName = Annotated[Family, _in_any_case(*get_args(Family))]
RopeScalingName = Annotated[RopeScaling, _in_any_case(*get_args(RopeScaling))]
HeadName = Annotated[Head, _in_any_case(*get_args(Head))]
FabricName = Annotated[Fabric, _in_any_case(*get_args(Fabric))]
GenerationName = Annotated[Generation, _in_any_case(*get_args(Generation))]
NetworkFabricName = Annotated[NetworkFabric, _in_any_case(*get_args(NetworkFabric))]


class Block(BaseModel):
    """A mapping that refuses keys it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def given(self) -> dict[str, Any]:
        """What the file states, without what it leaves out."""
        return {name: getattr(self, name) for name in self.model_fields_set}


class ModelBlock(Block):
    """`name` of the catalog or of a Hugging Face config.json, or `family` with all sizes inline.

    `config` is a config.json too, with a `name` of one's own beside it. `file` is a graph of
    operations (`parsim profile` writes one); `image_size` and `num_classes` are those of networks
    that take images.

    The other fields are those of TransformerSpec and override what name or config say.
    """

    name: Text = UNSET
    config: Text = UNSET
    file: Text = UNSET
    image_size: Count = UNSET
    num_classes: Count = UNSET
    family: FamilyName = UNSET
    num_layers: Count = UNSET
    hidden_size: Count = UNSET
    num_attention_heads: Count = UNSET
    num_key_value_heads: Count = UNSET
    head_dim: Count = UNSET
    ffn_hidden_size: Count = UNSET
    vocab_size: Count = UNSET
    seq_len: Count = UNSET
    padded_vocab_size: Count | None = UNSET
    positions: Amount = UNSET
    token_types: Amount = UNSET
    rope: Flag = UNSET
    rope_theta: Positive = UNSET
    rope_scaling: RopeScalingName = UNSET
    rope_factor: Positive = UNSET
    rope_original_positions: Amount = UNSET
    rope_low_freq_factor: Positive = UNSET
    rope_high_freq_factor: Positive = UNSET
    rope_attention_factor: Time = UNSET
    norm_epsilon: Positive = UNSET
    rms_norm: Flag = UNSET
    gated_mlp: Flag = UNSET
    qkv_bias: Flag = UNSET
    projection_bias: Flag = UNSET
    mlp_bias: Flag = UNSET
    post_norm: Flag = UNSET
    tied_embeddings: Flag = UNSET
    causal: Flag = UNSET
    pooler: Flag = UNSET
    head: HeadName = UNSET
    fused_attention: Flag = UNSET
    dropout: Flag = UNSET
    qk_norm: Flag = UNSET
    window: Amount = UNSET
    window_every: Count = UNSET
    num_experts: Amount = UNSET
    experts_per_token: Amount = UNSET
    expert_groups: Count = UNSET
    groups_per_token: Count = UNSET
    expert_ffn_hidden_size: Amount = UNSET
    shared_expert_ffn_hidden_size: Amount = UNSET
    dense_layers: Amount = UNSET
    expert_every: Count = UNSET
    norm_topk_prob: Flag = UNSET
    router_aux_loss_coef: Time = UNSET
    predicted_tokens: Amount = UNSET
    q_lora_rank: Amount = UNSET
    kv_lora_rank: Amount = UNSET
    rope_head_dim: Amount = UNSET
    value_head_dim: Amount = UNSET
    layer_pattern: Annotated[str, Field(strict=True)] = UNSET
    mamba_heads: Amount = UNSET
    mamba_head_dim: Amount = UNSET
    mamba_state: Amount = UNSET
    mamba_groups: Count = UNSET


class IntraBlock(Block):
    """Overrides of the links inside a node."""

    fabric: FabricName = UNSET
    bandwidth: Rate = UNSET
    latency: Duration = UNSET
    efficiency: Share = UNSET
    nvls: Flag = UNSET
    generation: GenerationName = UNSET
    c2c_bandwidth: Rate = UNSET


class NetworkBlock(Block):
    """Overrides of the network between nodes."""

    nics_per_node: Count = UNSET
    nic_bandwidth: Rate = UNSET
    latency: Duration = UNSET
    efficiency: Share = UNSET
    oversubscription: Ratio = UNSET
    nodes_per_leaf: Count = UNSET
    sharp: Flag = UNSET
    fabric: NetworkFabricName = UNSET
    rails: Count = UNSET
    spines: Count = UNSET


class ClusterBlock(Block):
    """A system of the catalog, how many nodes of it, and what differs.

    `placement` is the device of each rank, `failed` are parts and cables out of order; both show
    where links are shared, in the graph of `parsim catalog show`.
    """

    system: Text
    nodes: Count
    device: Text = UNSET
    devices_per_node: Count = UNSET
    catalog: tuple[Text, ...] = ()
    placement: tuple[Rank, ...] = UNSET
    failed: tuple[Text, ...] = ()
    intra: IntraBlock = IntraBlock()
    network: NetworkBlock = NetworkBlock()


class GroupBlock(Block):
    """Equal nodes of a mixed cluster: the fields of a cluster of one system."""

    system: Text
    nodes: Count
    device: Text = UNSET
    devices_per_node: Count = UNSET
    intra: IntraBlock = IntraBlock()
    network: NetworkBlock = NetworkBlock()


class MixedBlock(Block):
    """A cluster whose nodes differ: `groups` by the names that plan and results call them.

    Ranks fill the groups' nodes in this order, or in that of `plan.node_order`.
    """

    groups: Annotated[dict[Text, GroupBlock], Field(min_length=1)]
    catalog: tuple[Text, ...] = ()
    placement: tuple[Rank, ...] = UNSET
    failed: tuple[Text, ...] = ()


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
    tp_overlap: Flag = UNSET
    cuda_graphs: Flag = UNSET
    fused_experts: Flag = UNSET
    expert_dispatcher: Annotated[
        Literal["alltoall", "deepep", "hybridep"], _in_any_case(*DISPATCHERS)
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


class SharedBlock(Block):
    """Fields of a plan that a search does not vary."""

    gradient_precision: SumsName = UNSET
    reduce_precision: SumsName = UNSET
    bucket_size: Size = UNSET
    overlap_grad_reduce: Flag = UNSET
    overlap_param_gather: Flag = UNSET
    overlap_p2p: Flag = UNSET
    scatter_p2p: Flag = UNSET
    rank_order: tuple[Text, ...] = UNSET


class StrategyBlock(Block):
    """A data-parallel strategy: its name, and the options that it has (`plan/strategies.py`)."""

    name: Annotated[Text, _in_any_case(*STRATEGY_KINDS)]
    algorithm: Annotated[Algorithm, _in_any_case(*get_args(Algorithm))] = UNSET
    servers: Count = UNSET
    on: Annotated[Where, _in_any_case(*get_args(Where))] = UNSET
    compression: Annotated[float, Field(strict=True, gt=0, le=1, allow_inf_nan=False)] = UNSET
    compressor: Annotated[Compressing, _in_any_case(*get_args(Compressing))] = UNSET
    backup_workers: Amount = UNSET
    staleness: Amount = UNSET
    updates: Annotated[int, Field(strict=True, ge=10, le=100_000)] = UNSET
    topology: Annotated[Topology, _in_any_case(*get_args(Topology))] = UNSET
    every: Annotated[int, Field(strict=True, ge=1, le=10_000)] = UNSET
    node_every: Annotated[int, Field(strict=True, ge=1, le=10_000)] = UNSET
    after: Annotated[int, Field(strict=True, ge=0, le=100_000)] = UNSET
    steps: Annotated[int, Field(strict=True, ge=1, le=100_000)] = UNSET
    outer_lr: Annotated[float, Field(strict=True, gt=0, le=10, allow_inf_nan=False)] = UNSET
    outer_momentum: Annotated[float, Field(strict=True, ge=0, lt=1, allow_inf_nan=False)] = UNSET


class StageBlock(Block):
    """A stage with replicas of its own: the fields of `parsim.plan.stages.Stage`."""

    layers: Amount
    replicas: Count = UNSET
    recompute_layers: Amount = UNSET
    warmup: Amount = UNSET


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
    precision: PrecisionName = UNSET
    sync_batch_norm: Flag = UNSET
    node_order: Names = UNSET
    replica_microbatches: Annotated[tuple[Count, ...], Field(min_length=1)] = UNSET
    strategy: Annotated[StrategyBlock, BeforeValidator(_named)] = UNSET
    stages: Annotated[tuple[StageBlock, ...], Field(min_length=1)] = UNSET


class SearchBlock(Block):
    """The values a search may try; an absent key means every legal one, the stack's schedules.

    `space` is a preset that the other keys narrow (`scenario/space/presets.py`).
    """

    space: PresetName = UNSET
    tp: AxisValues = UNSET
    pp: AxisValues = UNSET
    dp: AxisValues = UNSET
    cp: AxisValues = UNSET
    ep: AxisValues = UNSET
    microbatch_size: AxisValues = UNSET
    v: AxisValues = UNSET
    schedule: Several[Annotated[Text, BeforeValidator(_schedule)]] = UNSET
    zero_stage: StageValues = UNSET
    recompute: Several[RecomputeName] = UNSET
    sequence_parallel: Several[Flag] = UNSET
    memory_margin: Annotated[float, Field(strict=True, ge=0, lt=1, allow_inf_nan=False)] = UNSET
    memory_cap: Size = UNSET
    max_bubble: Annotated[float, Field(strict=True, gt=0, lt=1, allow_inf_nan=False)] = UNSET
    common: SharedBlock = SharedBlock()


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
    streams: dict[str, StreamBlock] = {}


class ScenarioFile(Block):
    """A whole scenario file."""

    description: Annotated[str, Field(strict=True)] = ""
    model: ModelBlock
    cluster: ClusterBlock
    software: Annotated[SoftwareBlock, BeforeValidator(_named)] = UNSET
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
