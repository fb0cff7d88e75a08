"""The plan of a measured run: what the row says, and what is assumed where it says nothing."""

from __future__ import annotations

from collections.abc import Mapping

from parsim.cost.software import Software
from parsim.errors import shown
from parsim.plan import RANK_ORDER, Plan, Recompute
from parsim.plan.names import SCHEDULE_NAMES, SPLIT, V_SHAPED
from parsim.plan.precision import PRECISIONS
from parsim.validation.step.assumptions import Assumptions
from parsim.validation.step.measured_run import MeasuredRun
from parsim.validation.step.recipes import Recipe, offload_layers, repeated_modules
from parsim.validation.tables import RowSkipped

FSDP = 3
"""The ZeRO stage that a row means by sharded parameters, where it states none."""


def case_plan(
    run: MeasuredRun, assumed: Assumptions, stack: Software, recipe: Recipe | None = None
) -> Plan:
    """The plan, with the stack's habits and the recipe's modules where the row is silent."""
    zero = _zero_stage(run, assumed)
    replicate, shard = (run.dp, 1) if zero == 0 else _shards(run)
    again = repeated_modules(run, recipe)
    precision = _precision(run, assumed)
    sums = _sums(run, assumed, zero, stack.sums_of(precision))
    return Plan(
        tp=run.tp,
        pp=run.pp,
        dp_replicate=replicate,
        dp_shard=shard,
        cp=run.cp,
        ep=run.ep,
        etp=run.etp or 1,
        microbatch_size=run.microbatch_size,
        num_microbatches=run.num_microbatches,
        schedule=_schedule(run),
        v=_chunks(run),
        zero_stage=zero,
        sequence_parallel=run.tp > 1
        and (assumed.sequence_parallel if run.sequence_parallel is None else run.sequence_parallel),
        recompute=Recompute.NONE if again else _recompute(run, assumed),
        recompute_layers=_recompute_layers(run),
        recompute_modules=again,
        precision=precision,
        gradient_precision=sums["gradient_precision"],
        reduce_precision=sums["reduce_precision"],
        overlap_grad_reduce=_overlapped(run, ("dp", "fsdp"), stack.overlap_grad_reduce),
        overlap_param_gather=_overlapped(run, ("dp", "fsdp"), stack.overlap_param_gather),
        overlap_p2p=_overlapped(run, ("p2p",), stack.overlap_p2p),
        scatter_p2p=stack.scatter_p2p,
        rank_order=run.rank_order or RANK_ORDER,
        stage_layers=run.stage_layers,
        offload_layers=offload_layers(run),
    )


def _sums(
    run: MeasuredRun, assumed: Assumptions, zero: int, usual: Mapping[str, str]
) -> Mapping[str, str]:
    """What gradients are accumulated and reduced in: as the row says, else as its stack does.

    A few stacks do otherwise with sharded 16-bit parameters.
    """
    pure = run.precision == "bf16" and zero == FSDP
    stated = run.gradient_precision or (assumed.sharded_sums if pure else "")
    return dict.fromkeys(usual, stated) if stated else usual


def _overlapped(run: MeasuredRun, words: tuple[str, ...], usual: bool) -> bool:
    """Whether what any of the words names runs beside compute, as usual where no word says so.

    Only `none` says that nothing does: `tp` alone is a job whose products overlap too.
    """
    if run.overlap is None or not run.overlap & {"none", *words}:
        return usual
    return bool(run.overlap & set(words))


def _zero_stage(run: MeasuredRun, assumed: Assumptions) -> int:
    stage = run.zero_stage
    if stage is None:
        stage = FSDP if run.fsdp_size > 1 else assumed.zero_stage
    if stage == FSDP and run.pp > 1:
        stage = assumed.piped_fsdp
    return stage if run.dp * run.cp > 1 else 0


def _shards(run: MeasuredRun) -> tuple[int, int]:
    shard = min(run.fsdp_size, run.dp) if run.fsdp_size > 1 else run.dp
    if run.dp % shard:
        raise RowSkipped(f"fsdp_size={run.fsdp_size} does not divide dp={run.dp}")
    return run.dp // shard, shard


def _schedule(run: MeasuredRun) -> str:
    stated = run.schedule
    if stated in (None, "none"):
        return "interleaved_1f1b" if run.v > 1 and run.pp > 1 else "1f1b"
    if stated == "1f1b" and run.v > 1:
        raise RowSkipped(f"schedule 1f1b contradicts vpp={run.v}")
    if stated not in SCHEDULE_NAMES:
        raise RowSkipped(f"schedule {stated} is not yet simulated")
    if (stated in V_SHAPED and run.v > 2) or (stated in SPLIT - V_SHAPED and run.v > 1):
        raise RowSkipped(f"schedule {stated} contradicts vpp={run.v}")
    return stated if run.pp > 1 else "1f1b"


def _chunks(run: MeasuredRun) -> int:
    """Chunks of a rank; those of a V are two, whether the row says so or not."""
    if run.pp == 1:
        return 1
    return 2 if run.schedule in V_SHAPED else run.v


BLOCK = "block"
"""Recomputation of the first `recompute_layers` of each stage, as Megatron-Core calls it."""


def _recompute_layers(run: MeasuredRun) -> int:
    """Layers of each stage that are repeated as a whole where only some are."""
    if (run.recompute == BLOCK) != bool(run.recompute_layers):
        raise RowSkipped(f"recompute={BLOCK} and recompute_layers, how many, go together")
    return run.recompute_layers or 0


def _recompute(run: MeasuredRun, assumed: Assumptions) -> Recompute:
    name = run.recompute or assumed.recompute
    if name == BLOCK:
        return Recompute.NONE
    if name.upper() not in Recompute.__members__:
        raise RowSkipped(
            f"recompute='{shown(name)}' is unknown; allowed: none, selective, full, {BLOCK}"
        )
    return Recompute[name.upper()]


def _precision(run: MeasuredRun, assumed: Assumptions) -> str:
    name = run.precision or assumed.precision
    if name not in PRECISIONS:
        raise RowSkipped(f"precision '{shown(name)}' is not yet simulated")
    return name
