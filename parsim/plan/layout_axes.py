"""The plan of axes that a layout of a transformer is: its dimensions on a mesh become degrees.

    layout: {batch: rows, heads: cols, ffn: cols, vocab: cols}   rows 4, cols 2     dp 4 x tp 2

    batch                             dp: devices along the axis have samples of their own
    heads, ffn and vocab together     tp: two all-reduces a layer, as both write them
    sequence, alone on its axis       cp
    sequence, on the axis of tp       sequence_parallel: what has no heads, ffn or vocab, by tokens
    experts, on the axis of batch     ep of that size, and etp = tp, for ffn is the experts' width
    experts, in the place of ffn      ep = tp, of models without feed-forward networks beside them

Nothing else is a plan of axes. Devices of the mesh take the samples of all of them together, so one
along `batch` has as many as the devices that share its model. Axes are ordered as in the mesh, and
ep's devices are neighbours, so that only those of tp may be inside of an axis of experts.

Source: Shazeer et al. 2018 (arXiv:1811.02084), section 4: data parallelism is {batch: all}, model
parallelism {vocab, d_ff, heads: all}, and both at once two axes; Lepikhin et al. 2020
(arXiv:2006.16668) for experts; Korthikanti et al. 2022 (arXiv:2205.05198) for tokens beside tp.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from parsim.errors import PlanError, alternatives, shown
from parsim.layout.mesh import REPLICAS
from parsim.model.model import Model
from parsim.plan.fields import RANK_ORDER
from parsim.plan.nearest_layout import TENSOR, nearest_layout
from parsim.plan.record import Plan
from parsim.plan.strategies import DDP, Layout

MOST_AXES = 3
"""Axes of a mesh: the signatures of an operation are as many as those of an axis to this power."""
DIMS = ("batch", "sequence", *TENSOR, "experts")
"""Dimensions of a transformer that an axis of plans splits."""
WHY_NOT = {
    "batch": "batch has an axis of its own",
    "sequence": "sequence has an axis of its own (cp), or that of heads (sequence parallelism)",
    **dict.fromkeys(TENSOR, "heads, ffn and vocab are split together, on one axis (tp)"),
    "experts": "experts go along batch's axis, or along that of heads in the place of ffn, with no "
    "axis inside but that of heads",
    "model": "the width of hidden states is split by no axis",
}
"""Why a dimension is not where a layout has it."""


def mesh_mistakes(plan: Plan, strategy: Layout) -> Iterator[str]:
    """What is wrong with a mesh, whatever is laid out on it."""
    if len(strategy.mesh) > MOST_AXES:
        yield f"mesh has {len(strategy.mesh)} axes; use at most {MOST_AXES}"
    for name, size in strategy.mesh:
        if name == REPLICAS:
            yield f"mesh: '{REPLICAS}' is the axis of copies of the mesh; use another name"
        if size < 2:
            yield f"mesh.{shown(name)}={size} splits nothing; use at least 2, or leave it out"
    workers = plan.dp_shard if plan.dp_shard > 1 else plan.dp
    if workers % strategy.sharers:
        yield (
            f"mesh has {strategy.sharers} devices, which do not divide dp={workers} workers; use a "
            f"mesh whose sizes multiply to a divisor of it"
        )
    if strategy.layout is not None and strategy.signatures is not None:
        yield "layout and signatures both state the layout; leave one of them out"


def in_axes(plan: Plan, model: Model) -> Plan:
    """The plan of axes that a plan with a layout of a transformer is; any other plan as it is.

    Raises:
        PlanError: no plan of axes is equal; the message has the nearest layout that has one.
    """
    strategy = plan.strategy
    if not isinstance(strategy, Layout) or model.graph is not None:
        return plan
    mistake = next(_mistakes(plan, strategy, model), None)
    if mistake is not None:
        raise PlanError(f"strategy.{mistake}")
    stated = strategy.names or {}
    nearest = nearest_layout(stated, [name for name, _ in strategy.mesh], model)
    if nearest != stated:
        raise PlanError(f"strategy.layout: {_refusal(stated, nearest, plan, strategy)}")
    roles = _Roles.of(stated)
    if roles.batch not in (None, strategy.mesh[0][0]) and plan.dp > strategy.sharers:
        raise PlanError(
            f"strategy.mesh: copies of the mesh share out samples as axis {roles.batch} does, so "
            f"that it stands first; use a mesh that starts with {roles.batch}"
        )
    return _equal(plan, strategy, roles)


def axes_words(plan: Plan) -> str:
    """The degrees of a plan in a few words: `dp 4 x tp 2, 8 samples a micro-batch`."""
    degrees = {"pp": plan.pp, "dp": plan.dp, "cp": plan.cp, "tp": plan.tp}
    parts = [f"{name} {size}" for name, size in degrees.items() if size > 1]
    words = " x ".join(parts) or "one device"
    words += f", ep {plan.ep}" if plan.ep > 1 else ""
    words += f", etp {plan.etp}" if plan.etp > 1 else ""
    words += ", sequence parallelism" if plan.sequence_parallel else ""
    order = [axis for axis in plan.rank_order if plan.degree(axis) > 1]
    words += f", ranks by {'-'.join(order)}" if plan.rank_order != RANK_ORDER else ""
    return f"{words}, {plan.microbatch_size} samples a micro-batch"


def _mistakes(plan: Plan, strategy: Layout, model: Model) -> Iterator[str]:
    """What is wrong beside a layout of a transformer, with its mesh, or missing in it."""
    for name in ("tp", "cp", "ep", "etp"):
        if getattr(plan, name) > 1:
            yield (
                f"name={strategy.name} says the degrees of {model.name}, but "
                f"{name}={getattr(plan, name)} does too; leave {name} out"
            )
    if plan.rank_order != RANK_ORDER:
        yield f"name={strategy.name} orders ranks as its mesh does; leave rank_order out"
    yield from mesh_mistakes(plan, strategy)
    if "experts" in (strategy.names or {}) and model.experts is None:
        yield f"layout: {model.name} has no experts; leave experts out"
    if strategy.layout is None:
        yield (
            f"name={strategy.name}: {model.name} is layers of a transformer and no graph of "
            f"operations; state `layout`, dimensions ({', '.join(DIMS)}) on axes of the mesh, or "
            f"let `parsim search` choose among dp, tp, cp and ep"
        )


@dataclass(frozen=True, slots=True)
class _Roles:
    """The axis of a mesh that each axis of plans is, and the one that experts go along."""

    batch: str | None
    tensor: str | None
    context: str | None
    experts: str | None

    @classmethod
    def of(cls, layout: Mapping[str, str]) -> _Roles:
        """Who is where in a layout that is a plan."""
        tensor, sequence = layout.get("heads"), layout.get("sequence")
        context = None if sequence == tensor else sequence
        return cls(layout.get("batch"), tensor, context, layout.get("experts"))


def _equal(plan: Plan, strategy: Layout, roles: _Roles) -> Plan:
    """The plan whose degrees are those of the mesh."""
    sizes = dict(strategy.mesh)
    dp, tp, cp = (sizes.get(a or "", 1) for a in (roles.batch, roles.tensor, roles.context))
    sharded = plan.dp_shard > 1
    along = {roles.batch: dp, roles.tensor: tp}
    tokens = (strategy.names or {}).get("sequence")
    return replace(
        plan,
        dp_replicate=plan.dp_replicate if sharded else plan.dp_replicate // strategy.sharers * dp,
        dp_shard=plan.dp_shard // strategy.sharers * dp if sharded else 1,
        tp=tp,
        cp=cp,
        ep=along[roles.experts] if roles.experts else 1,
        etp=tp if roles.experts and roles.experts == roles.batch else 1,
        sequence_parallel=plan.sequence_parallel or (tp > 1 and tokens == roles.tensor),
        microbatch_size=plan.microbatch_size * strategy.sharers // dp,
        rank_order=_order(strategy, roles),
        strategy=DDP,
    )


def _order(strategy: Layout, roles: _Roles) -> tuple[str, ...]:
    """The axes of a plan in the order of the mesh; the usual one where that says the same."""
    kinds = {roles.tensor: ("tp",), roles.context: ("cp",)}
    mesh = [kinds.get(name, ("dp_replicate", "dp_shard")) for name, _ in strategy.mesh]
    listed = [axis for axes in mesh for axis in axes]
    if listed == [axis for axis in RANK_ORDER if axis in listed]:
        return RANK_ORDER
    rest = [axis for axis in RANK_ORDER if axis not in listed]
    return (*rest, *listed)


def _refusal(
    stated: Mapping[str, str], nearest: Mapping[str, str], plan: Plan, strategy: Layout
) -> str:
    """Why a layout is no plan, and the nearest one that is."""
    axes = [name for name, _ in strategy.mesh]
    unknown = next(_unknown_words(stated, axes), None)
    if unknown is not None:
        return unknown
    if not nearest:
        return "no axes of a plan are as many as the mesh has; use batch, heads and sequence"
    listed = ", ".join(f"{dim}: {axis}" for dim, axis in nearest.items())
    equal = _equal(plan, replace(strategy, layout=tuple(nearest.items())), _Roles.of(nearest))
    return (
        f"no plan of dp, tp, cp and ep is this layout, for {_why_not(stated, nearest, axes)}; the "
        f"nearest that one is: {{{listed}}}, which is {axes_words(equal)}"
    )


def _unknown_words(stated: Mapping[str, str], axes: Sequence[str]) -> Iterator[str]:
    """Dimensions that no transformer has, and axes that the mesh has not."""
    known = (*DIMS, "model")
    for dim, axis in stated.items():
        if dim not in known:
            rest = alternatives(dim, known, label="a transformer's dimensions")
            yield f"'{shown(dim)}' is no dimension of a transformer{rest}"
        if axis not in axes:
            rest = alternatives(axis, axes, label="axes of the mesh")
            yield f"{dim}: '{shown(axis)}' is no axis of the mesh{rest}"


def _why_not(stated: Mapping[str, str], nearest: Mapping[str, str], axes: Sequence[str]) -> str:
    """What of a stated layout is not in a plan, or is missing for one."""
    why = next((WHY_NOT[dim] for dim in stated if stated[dim] != nearest.get(dim)), "")
    missing = [axis for axis in axes if axis not in stated.values()]
    return why or (f"nothing is split along {missing[0]}" if missing else WHY_NOT["heads"])
