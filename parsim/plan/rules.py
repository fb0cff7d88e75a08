"""Which plans are legal, and the error that names value, allowed values and fix.

Each rule reads a plan, the model and the number of devices and returns the message of the first
thing it finds wrong, or None. `check_plan` raises; the search asks `violation` for single plans
and builds its space so that only the arithmetic rules remain (planner/space/).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from math import gcd, lcm

from parsim.cluster.hardware import Cluster
from parsim.errors import PlanError, shown
from parsim.model.model import Model
from parsim.model.operators import Experts, Linear, Split
from parsim.names import alternatives
from parsim.plan.batch_rules import batch_rules, node_rules
from parsim.plan.context import CpCommType
from parsim.plan.divisors import divisors, listed
from parsim.plan.expert_rules import expert_rules
from parsim.plan.offload_rules import offload_rules
from parsim.plan.precision import PRECISIONS, SUMS
from parsim.plan.record import AUTO, AXES, OFFLOAD_MODULES, RECOMPUTE_MODULES, WITHOUT_FLUSH, Plan
from parsim.plan.stage_rules import stage_rules
from parsim.plan.strategy_rules import strategy_rules

_CHUNKED = ("interleaved_1f1b", "looped_bfs", "hanayo")
_WHOLE = ("naive", "gpipe", "1f1b", "eager_1f1b", *_CHUNKED)
_SPLIT = ("zb_h1", "zb_h2", "zb_1p", "zb_2p", "zb_auto")
_V_SHAPED = ("zb_v", "v_half", "v_min", "dualpipe_v")

SCHEDULE_NAMES = (*_WHOLE, *_SPLIT, *_V_SHAPED)
"""Schedules a plan may name; `parsim.schedule.SCHEDULES` holds their generators."""

_RARE = ("eager_1f1b", "looped_bfs", "hanayo", "dualpipe_v")

USUAL = tuple(name for name in SCHEDULE_NAMES if name not in _RARE)
"""Schedules that a search looks at where it is not told which."""

ZERO_STAGES = (0, 1, 2, 3)
"""What ZeRO shards: nothing, optimizer states, gradients too, parameters too."""

TWO_WAY = ("chimera", "dualpipe")
"""Schedules with two copies of the model, which no search looks at."""

_EVERY_SCHEDULE = (*SCHEDULE_NAMES, *TWO_WAY, AUTO, *WITHOUT_FLUSH)

CHUNKED = frozenset(_CHUNKED)
"""Schedules with any number of chunks a rank above one."""

WHOLE = frozenset(_WHOLE)
"""Schedules whose backward is one action."""

V_SHAPED = frozenset(_V_SHAPED)
"""Schedules with two chunks a rank, placed as a V."""

FOLDED = V_SHAPED.union({"hanayo"})
"""Schedules whose stages go down the ranks and back up, once or more often."""

SPLIT = V_SHAPED.union(_SPLIT)
"""Schedules whose backward is in two actions, I and W."""

MOST_SEARCHED = 60_000
"""Actions of the longest schedule that is searched for: some seconds."""

MAX_ACTIONS = 4_000_000
"""Largest schedule that is simulated: a table of 32 MB per plan, some seconds."""

Rule = Callable[[Plan, Model, Cluster], str | None]


def _degrees(plan: Plan, model: Model, cluster: Cluster) -> str | None:
    degrees = ("tp", "pp", "dp_replicate", "dp_shard", "cp", "ep", "etp")
    for name in (*degrees, "microbatch_size", "num_microbatches", "v"):
        if getattr(plan, name) < 1:
            return f"{name}={getattr(plan, name)} must be at least 1"
    return None


def _known_schedule(plan: Plan, model: Model, cluster: Cluster) -> str | None:
    if plan.actions is not None:
        return None
    return _unknown("schedule", plan.schedule, _EVERY_SCHEDULE)


def _unknown(field: str, value: str, allowed: Sequence[str]) -> str | None:
    if value in allowed:
        return None
    known = alternatives(value, allowed, listing=f"parsim catalog {field}s")
    return f"{field}={shown(repr(value))} is unknown{known}"


def _names(plan: Plan, model: Model, cluster: Cluster) -> str | None:
    choices: tuple[tuple[str, str, tuple[str, ...]], ...] = (
        ("precision", plan.precision, tuple(PRECISIONS)),
        ("gradient_precision", plan.gradient_precision, SUMS),
        ("reduce_precision", plan.reduce_precision, SUMS),
        *(("recompute_modules", name, RECOMPUTE_MODULES) for name in plan.recompute_modules),
        *(("offload_modules", name, OFFLOAD_MODULES) for name in plan.offload_modules),
    )
    for field, value, allowed in choices:
        if message := _unknown(field, value, allowed):
            return message
    if sorted(plan.rank_order) != sorted(AXES):
        return (
            f"rank_order={'-'.join(plan.rank_order)} must name each of {', '.join(AXES)} once, "
            f"outermost first"
        )
    if not _has_peaks(plan.precision, cluster):
        used = _peaks_of(plan.precision)
        without = next(device for device in cluster.devices if not used <= device.peak_flops.keys())
        return (
            f"precision={plan.precision!r} has no peak on device {without.id}; "
            f"allowed: {', '.join(name for name in PRECISIONS if _has_peaks(name, cluster))}"
        )
    return None


def _has_peaks(name: str, cluster: Cluster) -> bool:
    used = _peaks_of(name)
    return all(used <= device.peak_flops.keys() for device in cluster.devices)


def _peaks_of(name: str) -> set[str]:
    return {PRECISIONS[name].compute, PRECISIONS[name].products}


def _world(plan: Plan, model: Model, cluster: Cluster) -> str | None:
    if plan.world_size == cluster.num_devices:
        return None
    if plan.stages is not None:
        return (
            f"world size mismatch: stages have {plan.world_size} ranks (replicas x tp={plan.tp}), "
            f"but the cluster has {cluster.num_devices} devices; change replicas"
        )
    rest = plan.pp * plan.cp * plan.tp
    fix = f"pp x cp x tp = {rest} must divide {cluster.num_devices}"
    if cluster.num_devices % rest == 0:
        fix = f"use dp={cluster.num_devices // rest}"
    return (
        f"world size mismatch: pp={plan.pp} x dp={plan.dp} x cp={plan.cp} x tp={plan.tp} = "
        f"{plan.world_size}, but the cluster has {cluster.num_devices} devices; {fix}"
    )


def tensor_splits(model: Model) -> dict[str, int]:
    """What tensor parallelism must divide, by its name in a config file."""
    attention = model.attention
    splits: dict[str, int] = {}
    if attention is not None:
        splits["num_attention_heads"] = attention.heads
        splits["num_key_value_heads"] = attention.kv_heads
    for op in model.kinds[0].operators if model.kinds else ():
        if isinstance(op, Linear) and op.name == "fc2" and op.split is Split.ROW:
            splits["ffn_hidden_size"] = op.inputs
    return splits


def is_splittable(model: Model) -> bool:
    """Whether any of a model's matrices can be divided over tensor-parallel ranks."""
    return any(
        isinstance(op, Linear | Experts) and getattr(op, "split", None) is not Split.NONE
        for layer in model.kinds
        for op in layer.operators
    )


def _tensor(plan: Plan, model: Model, cluster: Cluster) -> str | None:
    if plan.tp > 1 and not is_splittable(model):
        return (
            f"tp={plan.tp}: {model.name} has no matrices that tensor parallelism splits; use tp=1"
        )
    splits = tensor_splits(model)
    for name, size in splits.items():
        if size % plan.tp:
            allowed = listed(divisors(gcd(*splits.values())))
            return f"tp={plan.tp} does not divide {name}={size}; allowed: {allowed}"
    if plan.sequence_parallel and plan.tp == 1:
        return "sequence_parallel=true needs tp > 1; use sequence_parallel=false with tp=1"
    if plan.sequence_parallel and model.tokens % plan.tp:
        return (
            f"sequence_parallel=true: tp={plan.tp} does not divide seq_len={model.tokens}; "
            f"allowed: {listed(divisors(model.tokens, 1024))}"
        )
    return None


def _context(plan: Plan, model: Model, cluster: Cluster) -> str | None:
    """What context parallelism cuts: two pieces a rank of a causal sequence, from either end."""
    if plan.cp == 1:
        return None
    attention = model.attention
    if attention is None or not attention.fused:
        what = "no attention" if attention is None else "unfused attention"
        return (
            f"cp={plan.cp}: context parallelism needs fused attention, whose blocks can be merged, "
            f"but {model.name} has {what}; use cp=1"
        )
    pieces = plan.cp * lcm(2 if attention.causal else 1, plan.tp if plan.sequence_parallel else 1)
    if model.tokens % pieces:
        return (
            f"cp={plan.cp} cuts seq_len={model.tokens} into {pieces} equal pieces, which it "
            f"cannot be cut into; use a seq_len that is a multiple of {pieces}, or a smaller cp"
        )
    return _heads_shared_out(plan, model) if plan.cp_comm_type is CpCommType.A2A else None


def _heads_shared_out(plan: Plan, model: Model) -> str | None:
    """All-to-alls give each context rank as many heads, of keys and values too."""
    heads = {name: size for name, size in tensor_splits(model).items() if name.endswith("heads")}
    for name, size in heads.items():
        if size % (plan.tp * plan.cp):
            each = gcd(*heads.values()) // plan.tp
            return (
                f"cp_comm_type=a2a gives each rank the same number of heads, but tp={plan.tp} x "
                f"cp={plan.cp} does not divide {name}={size}; allowed cp: "
                f"{listed(divisors(each))}, or cp_comm_type p2p or all_gather"
            )
    return None


def most_stages(model: Model) -> int:
    """Stages that a pipeline may have at most: one a layer, and one for each end with its own."""
    return model.num_layers + len(_end_stages(model))


def _end_stages(model: Model) -> list[str]:
    """What a stage without layers holds: the even cut leaves the last one so first."""
    return [layer.name for layer in (*model.before, *model.behind) if model.behind][:2]


def _stages(plan: Plan, model: Model, cluster: Cluster) -> str | None:
    layers, ends = model.num_layers, _end_stages(model)
    if plan.num_stages > layers + len(ends):
        parts = ", ".join([f"{layers} layers", *ends])
        return (
            f"more stages than layers: pp={plan.pp} x v={plan.v} = {plan.num_stages} stages for "
            f"{parts}; use pp x v <= {layers + len(ends)}"
        )
    cut, name = plan.cut, "stage_layers" if plan.stages is None else "layers of stages"
    if cut is None:
        return None
    if len(cut) != plan.num_stages:
        return (
            f"{name} has {len(cut)} entries, but pp={plan.pp} x v={plan.v} needs {plan.num_stages}"
        )
    if min(cut) < 0 or sum(cut) != layers:
        return (
            f"{name} sums to {sum(cut)}, but the model has {layers} layers; "
            f"entries must be >= 0 and sum to {layers}"
        )
    return None


def _schedule(plan: Plan, model: Model, cluster: Cluster) -> str | None:
    if plan.actions is not None:
        return _own_schedule(plan)
    if plan.schedule in SPLIT:
        return _zero_bubble(plan)
    if plan.schedule in CHUNKED:
        return _chunked(plan)
    if plan.schedule in WITHOUT_FLUSH:
        return _without_flush(plan)
    if plan.schedule in TWO_WAY and plan.actions is None:
        return _both_ways(plan)
    if plan.schedule == AUTO and (message := _searched(plan)):
        return message
    if plan.v > 1:
        return (
            f"v={plan.v} needs schedule='interleaved_1f1b', but schedule={plan.schedule!r} has "
            f"one chunk per rank; use v=1 or schedule='interleaved_1f1b'"
        )
    return None


def _chunked(plan: Plan) -> str | None:
    if plan.v < 2 or plan.pp < 2:
        return (
            f"schedule={plan.schedule!r} needs pp >= 2 and v >= 2, but pp={plan.pp}, "
            f"v={plan.v}; use schedule='1f1b'"
        )
    if plan.schedule == "hanayo" and plan.v % 2:
        return f"schedule='hanayo' has two chunks per rank and wave, but v={plan.v}; use an even v"
    if plan.schedule == "interleaved_1f1b" and plan.num_microbatches % plan.pp:
        return (
            f"schedule='interleaved_1f1b': pp={plan.pp} does not divide "
            f"num_microbatches={plan.num_microbatches}; allowed: multiples of {plan.pp}"
        )
    return None


def _zero_bubble(plan: Plan) -> str | None:
    chunks = 2 if plan.schedule in V_SHAPED else 1
    if plan.pp < 2:
        return f"schedule={plan.schedule!r} needs pp >= 2, but pp={plan.pp}; use schedule='1f1b'"
    if plan.v != chunks:
        needed = "two chunks per rank, placed as a V" if chunks == 2 else "one chunk per rank"
        return f"schedule={plan.schedule!r} has {needed}, but v={plan.v}; use v={chunks}"
    return None


def _searched(plan: Plan) -> str | None:
    """What an order can be searched for."""
    if plan.pp < 2:
        return f"schedule={AUTO!r} needs pp >= 2, but pp={plan.pp}; use schedule='1f1b'"
    most = MOST_SEARCHED // (3 * plan.pp)
    if plan.num_microbatches > most:
        return (
            f"schedule={AUTO!r} with pp={plan.pp} orders at most {most:,} micro-batches in a few "
            f"seconds, but num_microbatches={plan.num_microbatches}; use a named schedule, whose "
            f"middle repeats, or a larger microbatch_size"
        )
    return None


def _both_ways(plan: Plan) -> str | None:
    """What two directions share out evenly, one stage of each on every rank."""
    where = f"schedule={plan.schedule!r} runs in two directions"
    for name in ("pp", "num_microbatches"):
        value = getattr(plan, name)
        if value % 2 or (name == "pp" and value < 2):
            return f"{where}, but {name}={value}; allowed: 2, 4, 6, ..."
    if plan.v > 1:
        return f"{where} with one chunk each per rank, but v={plan.v}; use v=1"
    return None


def _without_flush(plan: Plan) -> str | None:
    """What a pipeline that updates between micro-batches cannot stand beside."""
    where = f"schedule={plan.schedule!r}"
    if plan.pp < 2:
        return f"{where} needs pp >= 2, but pp={plan.pp}; use schedule='1f1b'"
    for name in ("v", "dp", "cp"):
        if getattr(plan, name) > 1:
            return (
                f"{where} updates a stage behind a backward, without others to reduce with, but "
                f"{name}={getattr(plan, name)}; use {name}=1"
            )
    if plan.strategy.own_program:
        return f"{where} cannot stand beside strategy {plan.strategy.name}; leave one of them out"
    if plan.schedule == "pipedream_2bw" and plan.num_microbatches < plan.pp - 1:
        return (
            f"{where} with num_microbatches={plan.num_microbatches} would need more than two "
            f"versions of pp={plan.pp} stages; use at least {plan.pp - 1} micro-batches"
        )
    return None


def _own_schedule(plan: Plan) -> str | None:
    """A user's schedule needs a name; `parsim.schedule.parse_user_schedule` checks its actions."""
    if plan.schedule in SCHEDULE_NAMES:
        return (
            f"schedule={plan.schedule!r} is the name of a schedule that parsim builds, but actions "
            f"are given too; name them otherwise, e.g. '{plan.schedule}.csv'"
        )
    if plan.pp == 1:
        return (
            f"schedule={plan.schedule!r} needs pp >= 2, but pp=1: without a pipeline the step is a "
            f"plain loop over micro-batches; leave schedule out"
        )
    return None


def _sharding(plan: Plan, model: Model, cluster: Cluster) -> str | None:
    if plan.zero_stage not in ZERO_STAGES:
        stages = ", ".join(map(str, ZERO_STAGES))
        return f"zero_stage={plan.zero_stage} is unknown; allowed: {stages}"
    if plan.zero_stage == 0 and plan.dp_shard > 1:
        return (
            f"zero_stage=0 shards nothing, but dp_shard={plan.dp_shard}; use "
            f"dp_replicate={plan.dp} or zero_stage 1, 2 or 3"
        )
    if plan.zero_stage > 0 and plan.dp_shard * plan.cp == 1:
        return (
            f"zero_stage={plan.zero_stage} has nothing to shard over with dp_shard=1; "
            f"use zero_stage=0 or dp_shard > 1"
        )
    return None


def offload_rule(plan: Plan, model: Model, cluster: Cluster) -> str | None:
    """The first thing that is wrong with the layers on the host; of a plan that is legal else."""
    return offload_rules(plan, most_layers(plan, model), in_two=splits_backward(plan))


def most_layers(plan: Plan, model: Model) -> int:
    """Layers of the largest stage, of an even cut where the plan says none."""
    return max(plan.cut or (-(-model.num_layers // plan.num_stages),))


def splits_backward(plan: Plan) -> bool:
    """Whether the backward of a plan's schedule is in two actions, I and W."""
    if plan.actions is None:
        return plan.pp > 1 and plan.schedule in SPLIT | {"dualpipe"}
    return re.search(r"\d[IW]", plan.actions) is not None


def _size(plan: Plan, model: Model, cluster: Cluster) -> str | None:
    each = 3 if plan.schedule in SPLIT else 2
    actions = each * plan.num_stages * plan.num_microbatches
    if actions <= MAX_ACTIONS:
        return None
    return (
        f"num_microbatches={plan.num_microbatches} on {plan.num_stages} stages is a schedule of "
        f"{actions:,} actions; at most {MAX_ACTIONS:,} are simulated: use a larger "
        f"microbatch_size, more replicas or a smaller global batch"
    )


RULES: tuple[Rule, ...] = (
    _degrees,
    _known_schedule,
    _names,
    _sharding,
    _tensor,
    _context,
    expert_rules,
    _schedule,
    stage_rules,
    _stages,
    _world,
    node_rules,
    batch_rules,
    strategy_rules,
    _size,
    offload_rule,
)


SHAPE_RULES: tuple[Rule, ...] = (
    _known_schedule,
    _schedule,
    stage_rules,
    _stages,
    batch_rules,
    _size,
)
"""Rules that read schedule or chunks, in the order of `RULES`.

A plan that differs from a legal one in these fields alone breaks none of the others, but that of
layers on the host, which reads schedule, chunks and these layers and comes last.
"""


def violation(
    plan: Plan, model: Model, cluster: Cluster, rules: tuple[Rule, ...] = RULES
) -> str | None:
    """The first broken rule's message, or None for a legal plan; of all rules, or of some."""
    for rule in rules:
        message = rule(plan, model, cluster)
        if message is not None:
            return message
    return None


def check_plan(plan: Plan, model: Model, cluster: Cluster) -> None:
    """Raise PlanError unless the plan is legal for this model and cluster."""
    message = violation(plan, model, cluster)
    if message is not None:
        raise PlanError(message)
